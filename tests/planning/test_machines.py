"""Machines by name, and what a user knows better."""

import pytest
from expected_errors import refused

from headstart.planning.machines import CARDS, GIB, card_like, cpu, named, with_overrides


@pytest.mark.parametrize("name", CARDS)
def test_every_card_has_numbers_that_can_be(name):
    card = CARDS[name]
    assert card.kind == "cuda"
    assert 0 < card.utilisation < 1
    assert f"{card.utilisation:.0%}".replace("%", " %") in card.why
    assert card.peak["fp32"] > 1e12
    assert card.memory > 3 * GIB
    assert card.precision == ("bf16" if "bf16" in card.peak else "fp32")


def test_old_cards_train_in_fp32():
    assert [name for name, card in CARDS.items() if card.precision == "fp32"] == [
        "v100", "t4", "1080ti", "1060", "1050ti",
    ]  # fmt: skip


def test_cards_are_found_by_what_people_and_drivers_call_them():
    assert named("RTX4090").name == "rtx4090"
    assert named("GTX 1050ti").name == "1050ti"
    assert card_like("NVIDIA GeForce GTX 1050 Ti").name == "1050ti"
    assert card_like("NVIDIA H200").name == "h200"
    assert card_like("NVIDIA A100-SXM4-80GB").name == "a100"
    assert card_like("Tesla T4").name == "t4"
    assert card_like("Radeon VII") is None


def test_cpus_are_counted_in_cores():
    assert named("cpu:2") == cpu(2)
    assert cpu(1).title == "1 core"
    assert cpu(4).peak["fp32"] == 2 * cpu(2).peak["fp32"]


@pytest.mark.parametrize("name", ["rtx4099", "cpu:", "gpu", ""])
def test_an_unknown_machine_is_refused_with_those_that_are_known(name):
    with refused("unknown-name", repr(name), "cpu:N", "rtx4090"):
        named(name)


def test_a_cpu_without_cores_is_refused():
    with refused("bad-value", "0 cores"):
        named("cpu:0")


def test_a_typo_gets_the_nearest_name():
    with refused("unknown-name", "'rtx4090'"):
        named("rtx4009")


def test_the_user_knows_better():
    found = with_overrides(CARDS["t4"], 0.2, 12)
    assert (found.utilisation, found.memory) == (0.2, 12 * GIB)
    assert found.why == "20 % of the peak, as given"
    for wrong in ((1.5, None), (None, 0)):
        with refused("bad-value", "1.5" if wrong[0] else "0 GB"):
            with_overrides(CARDS["t4"], *wrong)
