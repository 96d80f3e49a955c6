"""Two runs side by side: the statistics against hand counts, simulations and scipy, the runs against evaluate."""

import dataclasses
import json
import math

import numpy as np
import pytest
import small
import tiny_runs
import torch
import translators
from expected_errors import refused
from scipy import stats

from headstart.config.generation import GenerationConfig
from headstart.inference import compare as comparing
from headstart.inference.compare import (
    Comparison,
    PairedDifference,
    compare,
    document_bytes,
    mcnemar_p,
    ratio_difference,
    share_difference,
)
from headstart.inference.evaluate import evaluate_run
from headstart.inference.predict import predict
from headstart.runs.load import load
from headstart.tokenizers.training import train as train_tokenizer
from headstart.training.tasks.pretrain import pretrain

MACHINE = tiny_runs.MACHINE


@pytest.fixture(autouse=True)
def own_cache(monkeypatch):
    monkeypatch.setenv("HEADSTART_CACHE", str(tiny_runs.directory() / "cache"))


def shaken(run, seed=1, scale=0.5):
    """The same run with other weights: another opinion."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in run.model.parameters():
            parameter.add_(scale * torch.randn(parameter.shape, generator=generator))
    return run


# ---- statistics -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("only_first", "only_second"), [(0, 0), (1, 0), (3, 9), (9, 3), (5, 5), (2, 30)])
def test_mcnemars_p_is_the_hand_count_of_coin_throws(only_first, only_second):
    total = only_first + only_second
    tail = sum(math.comb(total, k) for k in range(min(only_first, only_second) + 1)) / 2**total
    assert mcnemar_p(only_first, only_second) == pytest.approx(min(1.0, 2 * tail))


def test_a_share_difference_by_hand():
    # 10 of 100 texts right in the second alone, 4 in the first alone: 11/102 and 5/102 after one more of each.
    found = share_difference(only_first=4, only_second=10, count=100)
    reach = 1.959964 * math.sqrt((11 / 102 + 5 / 102 - (6 / 102) ** 2) / 102)
    assert found.value == pytest.approx(0.06)
    assert (found.low, found.high) == pytest.approx((6 / 102 - reach, 6 / 102 + reach), abs=1e-6)


@pytest.mark.parametrize(
    ("count", "first", "second"), [(30, 0.1, 0.1), (100, 0.05, 0.1), (400, 0.02, 0.02), (50, 0.2, 0.4)]
)
def test_the_interval_of_a_share_difference_holds_the_truth_in_95_of_100_trials(count, first, second):
    draws = np.random.default_rng(5).multinomial(count, [first, second, 1 - first - second], size=3000)
    intervals = [share_difference(int(a), int(b), count) for a, b, _ in draws]
    covered = np.mean([found.low <= second - first <= found.high for found in intervals])
    assert 0.935 < covered < 0.985


def test_runs_that_never_differ_still_have_an_interval_of_some_width():
    found = share_difference(0, 0, 20)
    assert found.value == 0
    assert found.low < 0 < found.high
    assert share_difference(0, 0, 2000).high < found.high


def test_the_interval_of_a_mean_difference_is_scipys_where_all_sizes_are_one():
    differences = np.random.default_rng(1).normal(0.3, 1.0, size=25)
    found = ratio_difference(differences, np.ones(25))
    expected = stats.ttest_1samp(differences, 0.0).confidence_interval(0.95)
    assert found.value == pytest.approx(differences.mean())
    assert (found.low, found.high) == pytest.approx((expected.low, expected.high))


def test_the_interval_of_a_ratio_holds_the_truth_in_95_of_100_trials():
    draws, covered = np.random.default_rng(2), []
    for _ in range(1000):
        sizes = draws.integers(20, 200, size=60).astype(float)
        found = ratio_difference(draws.normal(-0.5 * sizes, np.sqrt(sizes)), sizes)
        covered.append(found.low <= -0.5 <= found.high)
    assert 0.93 < np.mean(covered) < 0.97


def test_one_unit_gives_a_difference_and_no_interval():
    assert ratio_difference(np.array([3.0]), np.array([2.0])) == (1.5, None, None)


# ---- fine-tuned runs --------------------------------------------------------------------------------------


def test_two_classifiers_are_compared_text_by_text():
    path = tiny_runs.files()["classification", "test"]
    rows = [json.loads(line) for line in path.read_text().splitlines()]
    first, second = tiny_runs.run_of("classification"), shaken(tiny_runs.run_of("classification"))
    right = [
        [p.answer["label"] == row["label"] for p, row in zip(predict(run, texts, MACHINE), rows, strict=True)]
        for run in (first, second)
        for texts in ([row["text"] for row in rows],)
    ]
    only_first = sum(a and not b for a, b in zip(*right, strict=True))
    only_second = sum(b and not a for a, b in zip(*right, strict=True))
    assert only_first + only_second, "the two have to differ for this to show anything"
    found = compare(first, second, path, MACHINE)
    assert (found.measure, found.unit, found.unit_count) == ("accuracy", "text", len(rows))
    assert found.metrics[0] == evaluate_run(first, path, MACHINE).metrics
    assert found.metrics[1] == evaluate_run(second, path, MACHINE).metrics
    assert found.difference.value == pytest.approx((sum(right[1]) - sum(right[0])) / len(rows))
    assert found.agreement == {
        "both_right": sum(a and b for a, b in zip(*right, strict=True)),
        "only_first_right": only_first,
        "only_second_right": only_second,
        "neither_right": sum(not a and not b for a, b in zip(*right, strict=True)),
        "mcnemar_p": pytest.approx(stats.binomtest(only_first, only_first + only_second).pvalue),
    }
    turned = compare(second, first, path, MACHINE)
    assert turned.difference.value == pytest.approx(-found.difference.value)
    assert turned.difference.low == pytest.approx(-found.difference.high)


def test_a_run_compared_with_itself_differs_in_nothing():
    run = tiny_runs.run_of("classification")
    found = compare(run, run, tiny_runs.files()["classification", "test"], MACHINE)
    assert found.difference.value == 0
    assert found.agreement["mcnemar_p"] == 1.0
    assert found.settings == {}


def test_labels_in_another_order_are_the_same_labels():
    first, second = tiny_runs.run_of("classification"), tiny_runs.run_of("classification")
    second = dataclasses.replace(
        second, config=dataclasses.replace(second.config, label_names=second.config.label_names[::-1])
    )
    with torch.no_grad():  # its rows turned with them: the same classifier under other numbers
        for parameter in second.model.head.classifier.parameters():
            parameter.copy_(parameter.flip(0))
    found = compare(first, second, tiny_runs.files()["classification", "test"], MACHINE)
    assert found.difference.value == 0
    assert found.agreement["only_first_right"] == found.agreement["only_second_right"] == 0
    assert list(found.settings) == ["label_names"]


def test_several_labels_and_numbers_are_compared_too():
    path = tiny_runs.files()["multilabel", "test"]
    found = compare(tiny_runs.run_of("multilabel"), shaken(tiny_runs.run_of("multilabel")), path, MACHINE)
    assert found.difference.value == pytest.approx(found.metrics[1]["accuracy"] - found.metrics[0]["accuracy"])
    path = tiny_runs.files()["regression", "test"]
    found = compare(tiny_runs.run_of("regression"), shaken(tiny_runs.run_of("regression")), path, MACHINE)
    assert found.measure == "mae"
    assert found.difference.value == pytest.approx(found.metrics[1]["mae"] - found.metrics[0]["mae"], rel=1e-5)
    assert found.difference.low < found.difference.value < found.difference.high


def test_what_the_second_run_does_not_know_is_refused_before_the_first_computes(monkeypatch):
    first, second = tiny_runs.run_of("classification"), tiny_runs.run_of("classification")
    second = dataclasses.replace(second, config=dataclasses.replace(second.config, label_names=["oui", "autre"]))
    monkeypatch.setattr(first.model, "forward", lambda *arguments, **options: pytest.fail("computed"))
    with refused("unknown-name", "'non'"):
        compare(first, second, tiny_runs.files()["classification", "test"], MACHINE)


def test_runs_of_two_kinds_are_refused():
    for one, other in (("causal", "classification"), ("multilabel", "regression")):
        with refused("mismatch", f"{one} run", f"{other} run"):
            compare(tiny_runs.run_of(one), tiny_runs.run_of(other), "nowhere.txt", MACHINE)
    with refused("wrong-run", "masked run", "headstart compare"):
        compare(tiny_runs.run_of("causal"), tiny_runs.run_of("masked"), "nowhere.txt", MACHINE)


# ---- what the result says -------------------------------------------------------------------------------------


def test_a_verdict_names_the_settings_that_the_difference_may_come_from():
    differences = {"accuracy": PairedDifference(0.2, 0.1, 0.3)}
    for count, named in (
        (0, []),
        (1, ["one setting, a."]),
        (3, ["3 settings (a, b and c)", "all of them"]),
        (9, ["9 settings (a, b, c and 6 more)"]),
    ):
        settings = dict.fromkeys("abcdefghi"[:count], (1, 2))
        first, *caveat = Comparison(({}, {}), differences, "text", 30, settings=settings).verdict
        assert first.endswith("the second is better.")
        assert len(caveat) == bool(count)
        assert all(name in caveat[0] for name in named)


@pytest.mark.parametrize(
    ("measure", "bounds", "better"),
    [("accuracy", (0.1, 0.3), "second"), ("bits_per_byte", (0.1, 0.3), "first"), ("mae", (-0.3, -0.1), "second"),
     ("bleu", (-0.3, -0.1), "first"), ("bleu", (-0.3, 0.1), None), ("bleu", (None, None), None)],
)  # fmt: skip
def test_the_better_run_is_outside_the_interval_on_the_right_side(measure, bounds, better):
    value = 0.0 if bounds[0] is None else sum(bounds) / 2
    found = Comparison(({}, {}), {measure: PairedDifference(value, *bounds)}, "text", 30)
    assert found.better(measure) == better
    assert (f"the {better} is better" in found.verdict[0]) == (better is not None)


def test_two_runs_that_differ_in_more_than_the_start_are_told_so():
    path = tiny_runs.files()["classification", "test"]
    found = compare(tiny_runs.run_of("classification"), tiny_runs.run_of("char"), path, MACHINE)
    assert "start" in found.settings
    assert f"{len(found.settings)} settings" in found.verdict[-1]


# ---- translators ----------------------------------------------------------------------------------------------


def test_two_translators_are_compared_by_paired_bootstrap():
    first, second = translators.run_of(), shaken(translators.run_of(), scale=0.3)
    config, path = GenerationConfig(beam=1), translators.files()["test"]
    found = compare(first, second, path, MACHINE, generation=config)
    assert (found.measure, found.unit, found.unit_count) == ("bleu", "text", 15)
    for run, metrics in zip((first, second), found.metrics, strict=True):
        alone = evaluate_run(run, path, MACHINE, generation=config).metrics
        assert metrics == pytest.approx({name: alone[name] for name in ("bleu", "chrf")})
    for name, difference in found.differences.items():
        assert difference.value == pytest.approx(found.metrics[1][name] - found.metrics[0][name])
        assert difference.low < difference.value < difference.high
    assert found.differences["chrf"].value < -1, "from 0 to 100, as in sacreBLEU's signature"
    assert found.better("chrf") == "first"
    same = compare(first, first, path, MACHINE, generation=config)
    assert set(same.differences.values()) == {(0.0, 0.0, 0.0)}
    assert same.better("bleu") is None
    assert same.bootstrap["p"] == {"bleu": 1.0, "chrf": 1.0}


# ---- language models --------------------------------------------------------------------------------------


def bits_of_document(run, text):
    """What a text costs, read alone in blocks as long as itself."""
    begin, end = run.tokenizer.id_of("begin"), run.tokenizer.id_of("end")
    tokens = torch.tensor([[begin, *map(int, run.tokenizer.encode(text)), end]])
    with torch.no_grad():
        logs = run.model(tokens[:, :-1]).double().log_softmax(-1)
    return -float(logs[0].gather(1, tokens[0, 1:, None]).sum()) / math.log(2)


@pytest.fixture(scope="module")
def short_lines():
    """A corpus of enough documents for an interval over them."""
    path = tiny_runs.directory() / "many-lines.txt"
    path.write_text("\n".join(small.sentences(40, seed=21)) + "\n")
    return path


def test_two_language_models_are_compared_document_by_document(short_lines):
    first, second = tiny_runs.run_of("causal"), shaken(tiny_runs.run_of("causal"), scale=0.1)
    found = compare(first, second, short_lines, MACHINE)
    assert (found.measure, found.unit, found.unit_count) == ("bits_per_byte", "document", 40)
    for run, metrics in zip((first, second), found.metrics, strict=True):
        alone = evaluate_run(run, short_lines, MACHINE).metrics
        assert metrics["bits_per_byte"] == pytest.approx(alone["bits_per_byte"])
        assert metrics["loss"] == pytest.approx(alone["loss"])
    gained = found.metrics[1]["bits_per_byte"] - found.metrics[0]["bits_per_byte"]
    assert found.difference.value == pytest.approx(gained)
    assert found.difference.low < found.difference.value < found.difference.high


def test_the_interval_over_documents_by_hand(tmp_path):
    # One block holds it all, so that each document is read whole, and alone it gives the same bits.
    lines = [
        "une fin.",
        "un livre est belle.",
        "le style était long.",
        "la fin.",
        "une histoire très drôle.",
    ] * 4
    path = tmp_path / "few.txt"
    path.write_text("\n".join(lines) + "\n")
    first, second = tiny_runs.run_of("causal"), shaken(tiny_runs.run_of("causal"), scale=0.1)
    found = compare(first, second, path, MACHINE, length=400)
    differences = np.array([bits_of_document(second, text) - bits_of_document(first, text) for text in lines])
    sizes = np.array([len(text.encode()) for text in lines], float)
    assert document_bytes(path, first.config.data).tolist() == sizes.tolist()
    expected = ratio_difference(differences, sizes)
    assert tuple(found.difference) == pytest.approx(tuple(expected), rel=1e-4)
    assert found.difference.value == pytest.approx(differences.sum() / sizes.sum(), rel=1e-4)


def test_one_long_document_is_compared_block_by_block(monkeypatch):
    monkeypatch.setattr(comparing, "BLOCK_TOKENS", 32)
    first, second = tiny_runs.run_of("causal"), shaken(tiny_runs.run_of("causal"), scale=0.1)
    path = tiny_runs.files()["long"]
    found = compare(first, second, path, MACHINE)
    stream_length = len(first.tokenizer.encode(path.read_text().strip())) + 2
    assert (found.unit, found.unit_count) == ("block", math.ceil(stream_length / 32))
    gained = found.metrics[1]["bits_per_byte"] - found.metrics[0]["bits_per_byte"]
    assert found.difference.value == pytest.approx(gained)
    assert found.difference.low < gained < found.difference.high


def test_runs_that_read_other_lengths_or_write_other_tokens_compare_by_bytes(short_lines):
    tokenizer = train_tokenizer(lambda: iter(small.sentences(50)), vocab=60, kind="char").tokenizer
    out = tiny_runs.directory() / "characters"
    pretrain(
        [tiny_runs.files()["corpus"]], out=out, valid=tiny_runs.files()["valid"], tokenizer=tokenizer,
        model={**tiny_runs.SHAPE, "context": 64}, length=48, batch_tokens=96, steps=2,
        machine=MACHINE,
    )  # fmt: skip
    first, second, told = tiny_runs.run_of("causal"), load(out), []
    found = compare(first, second, short_lines, MACHINE, log=told.append)
    assert (found.unit, found.unit_count) == ("document", 40)
    assert found.difference.low < found.difference.value < found.difference.high
    for run, metrics in zip((first, second), found.metrics, strict=True):
        alone = evaluate_run(run, short_lines, MACHINE).metrics["bits_per_byte"]
        assert metrics["bits_per_byte"] == pytest.approx(alone)
    alone = compare(first, second, tiny_runs.files()["long"], MACHINE, log=told.append)
    assert alone.difference.low is None
    assert "too few documents" in told[-1]
