"""The paper's table by hand, and crossings of lines whose formula is known."""

import pytest

from headstart.planning import layers
from headstart.planning.layers import (
    LayerTimes,
    crossing,
    layer_costs,
    layer_times,
    measure_layers,
    measured_crossing,
    times_of,
)


def test_the_papers_table_by_hand():
    rows = {row.layer: row for row in layer_costs(length=10, width=4, kernel=3)}
    assert {name: row.operations for name, row in rows.items()} == {
        "attention": 400,
        "recurrence": 160,
        "convolution": 480,
    }
    assert {name: row.formula for name, row in rows.items()} == {
        "attention": "n²·d",
        "recurrence": "n·d²",
        "convolution": "k·n·d²",
    }
    assert rows["recurrence"].sequential_steps == rows["recurrence"].longest_path == "n"


def test_on_paper_attention_passes_recurrence_at_the_width():
    lengths = [16, 64, 256, 1024]
    costs = [{row.layer: row.operations for row in layer_costs(n, 200, 3)} for n in lengths]
    point = crossing(lengths, [c["attention"] for c in costs], [c["recurrence"] for c in costs])
    assert point == (pytest.approx(200), pytest.approx(200**3))
    point = crossing(lengths, [c["attention"] for c in costs], [c["convolution"] for c in costs])
    assert point[0] == pytest.approx(600)


def test_lines_that_do_not_cross_say_so():
    assert crossing([1, 10], [1, 10], [20, 200]) is None
    assert crossing([1, 10], [30, 300], [20, 200]) is None


@pytest.mark.parametrize(
    ("rounds", "is_noisy"),
    [
        ([[1, 2, 4], [1.1, 2.1, 4.2]], [False, False, False]),
        ([[1, 90, 4], [1.1, 2.1, 4.2], [1.2, 2, 9]], [False, False, False]),  # one round of each was disturbed
        ([[1, 2, 4], [1.5, 2.1, 4.2]], [True, False, False]),
        ([[1, 1364, 2.3], [1, 1360, 2.3]], [False, True, False]),  # a longer text takes less
        ([[2, 1.5, 4], [2, 1.5, 4]], [False, False, False]),
    ],
)
def test_times_that_disagree_are_noisy(rounds, is_noisy):
    found = times_of(rounds)
    assert found.is_noisy == is_noisy
    assert found.seconds == [min(each) for each in zip(*rounds, strict=True)]


def test_lengths_are_measured_in_rounds_until_two_of_them_agree(monkeypatch):
    measured = []

    def measure(length, *arguments):
        measured.append(length)
        return {"attention": 100.0 if len(measured) <= 4 else 1.0}

    monkeypatch.setattr(layers, "measure_layers", measure)
    assert layer_times([8, 16], 16, 3, 2, "cpu") == {"attention": ([1.0, 1.0], [False, False])}
    assert measured == [8, 16] * 4


@pytest.mark.parametrize(("noisy", "is_clear"), [([], True), ([0], True), ([1], False), ([2], False), ([3], True)])
def test_a_crossing_is_clear_where_the_times_around_it_are(noisy, is_clear):
    attention = LayerTimes([1.0, 2.0, 8.0, 20.0], [index in noisy for index in range(4)])
    other = LayerTimes([4.0] * 4, [False] * 4)
    for pair, crosses in (((attention, other), True), ((other, attention), False)):
        point, found = measured_crossing([10, 20, 80, 200], *pair)
        assert (point is not None) == crosses
        assert found == (is_clear if crosses else not noisy)


def test_the_layers_are_measured():
    seconds = measure_layers(8, 16, 3, 2, "cpu")
    assert set(seconds) == {"attention", "recurrence", "convolution", "attention's projections"}
    assert all(value > 0 for value in seconds.values())
