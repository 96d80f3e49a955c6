"""Numbers as the report writes them."""

import pytest

from headstart.report.wording import duration, estimate, operations, percent, points, probability, size


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        (percent(0.81249), "81.2\xa0%"), (percent(None), "–"), (percent(-0.00001), "0.0\xa0%"), (points(0.12), "+12.0"),
        (points(-0.012), "−1.2"), (points(-0.0001), "−0.0"), (points(-0.0), "+0.0"), (probability(0.0004), "< 0.001"),
        (probability(1.0), "1.000"),
        (operations(2.1e12), "2.1\xa0×\xa010¹²"), (operations(950), "950"), (operations(9.99e12), "1.0\xa0×\xa010¹³"),
        (duration(3.14), "3.1\xa0s"), (duration(59.99), "60.0\xa0s"), (duration(251.3), "4\xa0min 11\xa0s"),
        (duration(7500), "2\xa0h 05\xa0min"), (duration(3599.7), "1\xa0h 00\xa0min"), (size(1_500_000), "1.5\xa0MB"),
        (size(12), "12\xa0bytes"), (estimate(None), "–"),
    ],
)  # fmt: skip
def test_numbers_are_written_so(said, expected):
    assert said == expected
