"""The charts of a study: true to the numbers, in the page's colours, readable with many arms or with few."""

import re
import xml.etree.ElementTree as ET

import numpy as np
import pytest
import synthetic_study

from headstart.report.chart_parts import arm_marks
from headstart.report.study_charts import (
    band_over_seeds,
    epochs_chart,
    epochs_limits,
    forest_chart,
    labels_chart,
    pretraining_chart,
)
from headstart.study.record import CurvePoint, StudyRecord, TrialRecord, parse

OBJECTIVES = ("causal", "masked", "masked-nsp")
EXTRA = ("frozen", "shuffled", "scratch-long")


def typed(found):
    return parse(StudyRecord, found, "study.json")


@pytest.fixture(scope="module")
def large_study():
    return typed(synthetic_study.study(objectives=OBJECTIVES, extra=EXTRA))


def all_charts(study):
    marks = arm_marks(study.arms)
    charts = [epochs_chart(study, marks, budget) for budget in study.budgets]
    charts += [labels_chart(study, marks), forest_chart(study, marks, "equal labels")]
    charts += [forest_chart(study, marks, "equal compute"), pretraining_chart(study, marks, "bits_per_byte")]
    return [*charts, pretraining_chart(study, marks, "loss")]


@pytest.fixture(scope="module")
def drawn_charts(large_study):
    """Every chart of a large study, drawn once."""
    return all_charts(large_study)


def texts(svg):
    return [node.text for node in ET.fromstring(svg).iter("text")]


def flat_lines(svg, colour):
    """The height of every flat line in a colour of the page, from the top."""
    lines = [node.get("d") for node in ET.fromstring(svg).iter("path") if f"stroke: {colour}" in node.get("style", "")]
    found = [re.fullmatch(r"M \S+ (\S+) L \S+ (\S+)", line) for line in lines]
    return [float(match[1]) for match in found if match and match[1] == match[2]]


# ---- numbers ------------------------------------------------------------------------------------------------


def trial(seed, *points, status="done"):
    curve = [CurvePoint(epoch=epoch, accuracy=value) for epoch, value in points]
    return TrialRecord(arm="scratch", budget=50, seed=seed, status=status, curve=curve)


def test_the_band_is_the_mean_the_lowest_and_the_highest_seed():
    band = band_over_seeds([trial(0, (1, 0.5), (2, 0.7)), trial(1, (1, 0.6), (2, 0.6)), trial(2, (1, 0.7), (2, 0.8))])
    assert band.seeds == 3
    np.testing.assert_allclose(band.epochs, [1, 2])
    np.testing.assert_allclose(band.mean, [0.6, 0.7])
    np.testing.assert_allclose(band.low, [0.5, 0.6])
    np.testing.assert_allclose(band.high, [0.7, 0.8])


def test_the_band_ends_where_the_first_seed_ends():
    band = band_over_seeds([trial(0, (1, 0.5), (2, 0.6), (3, 0.7)), trial(1, (1, 0.5), (2, 0.8))])
    np.testing.assert_allclose(band.epochs, [1, 2])


def test_epochs_that_another_seed_skipped_are_read_between_its_points():
    band = band_over_seeds([trial(0, (1, 0.5), (2, 0.6), (3, 0.7)), trial(1, (1, 0.5), (3, 0.9))])
    np.testing.assert_allclose(band.mean, [0.5, 0.65, 0.8])


def test_failed_trials_and_missing_values_are_not_in_the_band():
    band = band_over_seeds([trial(0, (1, 0.5), (2, None)), trial(1, (1, 0.9), status="failed")])
    assert (band.seeds, list(band.mean)) == (1, [0.5])
    assert band_over_seeds([trial(0)]) is None


def test_a_long_curve_is_thinned_but_keeps_its_ends():
    band = band_over_seeds([trial(0, *((float(e), e / 5000) for e in range(5000)))])
    assert len(band.epochs) == 200
    assert (band.epochs[0], band.epochs[-1]) == (0, 4999)


def test_tfidf_stands_at_what_it_reached_on_valid_not_on_test():
    found = synthetic_study.study(budgets=(50,), seeds=2)
    for one in found["trials"]:
        if one["arm"] == "tfidf":
            one |= {"chosen": 10, "accuracy": 0.99}
            one["tries"] = [{"value": 1, "accuracy": 0.6}, {"value": 10, "accuracy": 0.7 + 0.02 * one["seed"]}]
    study = typed(found)
    chart = epochs_chart(study, arm_marks(study.arms), 50)
    assert "TF-IDF and logistic regression 71.0\xa0% without epochs" in chart.words
    ticks = [int(text) for text in texts(chart.narrow) if text.isdigit() and int(text) > 20]
    used = [node for node in ET.fromstring(chart.narrow).iter("path") if "stroke: var(--rule)" in node.get("style", "")]
    grid = [float(node.get("d").split()[2]) for node in used]
    (level,) = flat_lines(chart.narrow, "var(--ink)")
    assert np.interp(level, grid[::-1], ticks[::-1]) == pytest.approx(71.0, abs=0.1)


def test_the_words_tell_the_ends_of_the_lines():
    study = typed(synthetic_study.study(seeds=1))
    last = next(t for t in study.trials if (t.arm, t.budget) == ("finetuned", 1600)).curve[-1].accuracy
    words = epochs_chart(study, arm_marks(study.arms), 1600).words
    assert f"pretrained, then fine-tuned {100 * last:.1f}\xa0%" in words
    assert "seeds from" not in words


def test_scratch_with_the_compute_of_the_pretraining_does_not_stretch_the_epochs(drawn_charts):
    chart = drawn_charts[2]
    assert "scratch-long" not in chart.arms
    assert "50" not in texts(chart.wide)


def test_small_charts_share_their_axis():
    study = typed(synthetic_study.study())
    marks, shared = arm_marks(study.arms), epochs_limits(study, *study.budgets)
    low, high = shared
    assert low < min(p.accuracy for t in study.trials for p in t.curve)
    assert high > max(p.accuracy for t in study.trials for p in t.curve)
    ticks = [
        [t for t in texts(epochs_chart(study, marks, budget, shared).narrow) if t.isdigit() and int(t) > 20]
        for budget in (50, 200)
    ]
    assert ticks[0] == ticks[1]


def test_token_frequencies_are_a_line_in_the_measure_of_the_curve(large_study):
    chart = pretraining_chart(large_study, arm_marks(large_study.arms), "bits_per_byte")
    end = large_study.pretraining[0].curve[-1]
    assert f"token frequencies alone give {6.5 * end.bits_per_byte / end.loss:.3f} (causal)" in chart.words
    assert "frequencies" in texts(chart.wide)
    assert "6.500 (masked)" in pretraining_chart(large_study, arm_marks(large_study.arms), "loss").words


# ---- what is not there is not drawn -------------------------------------------------------------------------


def test_without_curves_pretraining_or_differences_there_are_no_charts():
    found = synthetic_study.study() | {"pretraining": [], "differences": [], "scores": []}
    found["trials"] = [t | {"curve": []} for t in found["trials"]]
    assert all_charts(typed(found)) == [None] * 8


def test_one_budget_is_drawn_as_a_row_for_each_arm():
    study = typed(synthetic_study.study(budgets=(200,), seeds=1))
    chart = labels_chart(study, arm_marks(study.arms))
    assert {"majority", "tfidf", "scratch", "finetuned"} <= set(texts(chart.narrow))
    assert "log scale" not in str(chart.wide)


def test_masked_objectives_are_drawn_by_their_loss(drawn_charts):
    bits, loss = drawn_charts[-2:]
    assert "causal" in texts(bits.wide)
    assert "masked" not in texts(bits.wide)
    assert {"masked", "masked-nsp"} <= set(texts(loss.wide))


# ---- the drawing --------------------------------------------------------------------------------------------


def test_every_drawn_colour_is_a_variable_of_the_page(drawn_charts):
    for chart in drawn_charts:
        for svg in (chart.wide, chart.narrow):
            assert not re.search(r"(fill|stroke): ?(#|rgb|black)", svg)
            for node in ET.fromstring(svg).iter("text"):
                assert "fill: var(--" in node.get("style")


def test_drawings_belong_to_the_page(drawn_charts):
    seen = set()
    for chart in drawn_charts:
        for svg in (chart.wide, chart.narrow):
            root = ET.fromstring(svg)
            names = {node.tag for node in root.iter()}
            assert names <= {"svg", "g", "defs", "path", "use", "text", "clipPath", "rect"}
            ids = [node.get("id") for node in root.iter() if node.get("id")]
            assert len(ids) == len(set(ids))
            assert not seen & set(ids), "two charts share an id"
            seen |= set(ids)
            used = re.findall(r"#([\w-]+)", svg)
            assert set(used) == set(ids)
            assert "http" not in svg
            assert "font-family" not in svg
            assert root.get("aria-hidden") == "true"


def test_the_same_results_give_the_same_bytes(large_study, drawn_charts):
    assert all_charts(large_study) == drawn_charts


def test_a_dollar_sign_is_no_formula_and_other_scripts_are_kept():
    found = synthetic_study.study(budgets=(200,))
    text = "$x^2$ 中文 <b>"
    found = _renamed(found, "finetuned", text)
    study = typed(found)
    charts = all_charts(study)
    assert text in texts(charts[0].wide)
    assert text in texts(charts[1].wide)
    assert f"{text} minus scratch" in texts(charts[2].narrow)


def _renamed(value, old, new):
    if isinstance(value, dict):
        return {_renamed(key, old, new): _renamed(part, old, new) for key, part in value.items()}
    if isinstance(value, list):
        return [_renamed(part, old, new) for part in value]
    return new if value == old else value
