"""The paper's table by hand, and crossings of lines whose formula is known."""

import pytest

from headstart.planning.layers import crossing, layer_costs, measure_layers


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


def test_the_layers_are_measured():
    seconds = measure_layers(8, 16, 3, 2, "cpu")
    assert set(seconds) == {"attention", "recurrence", "convolution", "attention's projections"}
    assert all(value > 0 for value in seconds.values())
