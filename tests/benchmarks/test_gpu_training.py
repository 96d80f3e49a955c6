"""The GPU table: the peers do the same work, one that fails stops nobody, and the figures mean what they say."""

import dataclasses
import json
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"


@pytest.fixture(autouse=True)
def _benchmarks_are_found(monkeypatch):
    monkeypatch.syspath_prepend(str(BENCHMARKS))
    precision = torch.get_float32_matmul_precision()
    yield
    torch.set_float32_matmul_precision(precision)  # peers set it


TINY = {"depth": 2, "width": 16, "heads": 2, "ffn": 32, "vocab": 97, "rows": 4, "length": 16}


def tiny_shape(**changed):
    from peers import Shape

    return Shape(**{**TINY, **changed})


# ---- the same work --------------------------------------------------------------------------------------------


def headstart_with_weights_of(plain, shape):
    """Headstart's model for a shape, with the plain one's weights."""
    from gpu_training import headstart_config

    from headstart.config.model import HeadConfig
    from headstart.model.model import build

    model = build(headstart_config(shape), HeadConfig(kind="lm"))
    own, theirs = dict(model.named_parameters()), dict(plain.named_parameters())
    names = {
        "base.embedding.tokens.weight": "tokens.weight",
        "base.stack.final_norm.weight": "final_norm.weight",
    }
    names |= {name: "positions.weight" for name in own if name.startswith("base.embedding.positions")}
    parts = {
        "attention_norm": "attention_norm", "attention.qkv": "qkv", "attention.output": "output",
        "feed_forward_norm": "ffn_norm", "feed_forward.input": "inner", "feed_forward.output": "outer",
    }  # fmt: skip
    for block in range(shape.depth):
        for ours, other in parts.items():
            names[f"base.stack.blocks.{block}.{ours}.weight"] = f"blocks.{block}.{other}.weight"
    assert sorted(names) == sorted(own)
    assert sorted(names.values()) == sorted(theirs)
    with torch.no_grad():
        for name, other in names.items():
            own[name].copy_(theirs[other])
    return model


def test_headstart_and_the_plain_gpt_have_the_same_loss_with_the_same_weights():
    from peers import PlainGPT

    shape = tiny_shape()
    torch.manual_seed(3)
    plain = PlainGPT(shape)
    model = headstart_with_weights_of(plain, shape)
    tokens = torch.randint(2, 97, (4, 17))
    wanted = plain(tokens[:, :-1], tokens[:, 1:])
    logits = model(tokens[:, :-1])
    found = torch.nn.functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten())
    torch.testing.assert_close(found, wanted)


def test_headstarts_stream_has_a_target_at_every_place_and_one_document():
    from gpu_training import causal_work

    objective, rows = causal_work(tiny_shape())
    batch = objective.batch_at(0, 0)
    assert rows == 4
    assert set(batch) == {"tokens", "targets"}
    assert batch["tokens"].shape == (4, 16)
    assert (batch["tokens"][:, 1:] == batch["targets"][:, :-1]).all()
    assert (batch["targets"] >= 0).mean() > 0.95


@pytest.fixture(scope="module")
def reviews_directory(tmp_path_factory):
    directory = tmp_path_factory.mktemp("reviews")
    sys.path.insert(0, str(BENCHMARKS))
    import reviews

    reviews.prepare(directory, tiny=True)
    sys.path.remove(str(BENCHMARKS))
    return directory


def test_packed_and_padded_documents_are_as_many_tokens(reviews_directory):
    import reviews
    from gpu_training import masked_work
    from peers import padded_batches

    found = reviews.read(reviews_directory)
    tokenizer, rows = found.tokenizer, 8
    assert found.lengths.tolist() == [len(row) for row in found.framed]
    assert found.lengths.max() <= found.longest == 64
    _, blocks = masked_work(tiny_shape(rows=rows, length=64), found)
    batches = padded_batches(
        found.framed, rows, 64, tokenizer.id_of("pad"), tokenizer.id_of("mask"), tokenizer.size, 99
    )
    useful = np.mean([batch["attention_mask"].sum() for batch in batches])
    assert len(batches) == len(found.ids) // rows
    assert abs(blocks * 64 - useful) <= 64


def test_documents_are_padded_to_64s_and_masked_on_text_alone():
    from peers import padded_batches

    documents = [np.full(length, 50 + length) for length in (3, 65, 100, 130)] * 40
    batches = padded_batches(documents, 2, 512, pad_id=0, mask_id=1, vocab=500, count=80)
    widths = {batch["input_ids"].shape[1] for batch in batches}
    assert widths == {64, 128, 192}
    hidden = present = 0
    for batch in batches:
        mask, targets = batch["attention_mask"] == 1, batch["labels"]
        assert (batch["input_ids"][~mask] == 0).all()
        assert (targets[~mask] == -100).all()
        length = mask.sum(axis=1)
        right = np.broadcast_to(50 + length[:, None], targets.shape)
        assert (targets[targets != -100] == right[targets != -100]).all()
        hidden, present = hidden + (targets != -100).sum(), present + mask.sum()
    assert 0.13 < hidden / present < 0.17


def test_a_batch_that_memory_does_not_hold_gives_the_same_update_in_parts():
    from peers import PlainGPT, next_token_batches, step_of

    shape = tiny_shape()
    batches = next_token_batches(shape, torch.device("cpu"))
    ended = []
    for rows_that_fit in (4, 1):
        torch.manual_seed(0)
        model, notes = PlainGPT(shape), []

        def loss_of(batch, model=model, rows_that_fit=rows_that_fit):
            if len(batch["tokens"]) > rows_that_fit:
                raise torch.OutOfMemoryError
            return model(batch["tokens"], batch["targets"])

        step_of(model, loss_of, batches, torch.device("cpu"), notes)(0)
        ended.append((model.tokens.weight.detach(), notes))
    (whole, nothing), (cut, said) = ended
    torch.testing.assert_close(whole, cut, atol=1e-4, rtol=1e-4)
    assert (nothing, said) == ([], ["out of memory: 4 micro-batches"])


# ---- the figures ----------------------------------------------------------------------------------------------


def test_operations_give_the_utilisation_that_goes_with_the_anchors():
    from gpu_cases import ANCHORS, CASES

    assert CASES["gpt2"][0].shape.operations() == 6 * 123_568_128 + 12 * 12 * 768 * 1024
    published = {
        ("GPT-2 124M, 64 × 1024", "plain compiled"): 0.583,
        ("4 layers, width 200, vocabulary 50,304, 64 × 256", "plain compiled"): 0.217,
        ("4 layers, width 200, vocabulary 8,192, 64 × 256", "plain compiled"): 0.090,
        ("6 layers, width 384, characters, 64 × 256", "plain compiled"): 0.163,
    }
    shapes = {case.name: case.shape for cases in CASES.values() for case in cases}
    for (case, system), utilisation in published.items():
        found = ANCHORS[case, system] * shapes[case].operations() / 777e12
        assert abs(found - utilisation) < 0.002, case


def test_every_anchor_and_goal_is_of_a_system_that_is_measured():
    from gpu_cases import ANCHORS, CASES, GOALS

    measured = {(case.name, name) for cases in CASES.values() for case in cases for name in case.systems}
    assert set(ANCHORS) <= measured
    assert set(GOALS) <= measured


def test_the_table_says_who_counts_and_by_how_much_headstart_is_faster():
    from gpu_training import table

    common = {
        "case": "a case",
        "spread": 0.01,
        "operations": 1e9,
        "goal": None,
        "anchor": None,
        "failure": "",
    }
    found = [
        {**common, "system": "headstart", "tokens_a_second": 300.0, "rates": [300.0], "memory_gb": 1.0},
        {**common, "system": "plain compiled", "tokens_a_second": 100.0, "rates": [1], "memory_gb": 2.0,
         "anchor": 104.0, "goal": 2.5},
        {**common, "system": "plain eager", "tokens_a_second": 150.0, "rates": [1], "memory_gb": 4.0, "anchor": 160.0},
        {**common, "system": "hf-gpt2 eager", "tokens_a_second": None, "rates": [], "failure": "OutOfMemoryError: no"},
    ]  # fmt: skip
    lines = table(found, 1e12, True)
    own, passed, slow, failed = lines[-4:]
    assert "300 " in own
    assert "0.300" in own  # 300 tokens × 1e9 operations of 1e12
    assert "3.00 × as fast (asked: 2.50 ×) in 0.50 of its memory" in passed
    assert passed.endswith("0.96 of it: PASS")
    assert slow.endswith("0.94 of it: too slow")
    assert failed.endswith("failed: OutOfMemoryError: no")
    assert table(found, 1e12, False)[-3].endswith("another machine")


# ---- taking turns ---------------------------------------------------------------------------------------------

CHILD = """
import os, sys, time
sys.path.insert(0, sys.argv[2])
import turns
def work(times=1):
    print("a library speaks")
    return {"done": times}
def fail():
    raise ValueError("no such thing\\nand more")
def die():
    print("the last word", file=sys.stderr, flush=True)
    os._exit(7)
turns.answer_questions({"work": work, "fail": fail, "die": die, "sleep": lambda: time.sleep(60)})
"""


def test_a_child_answers_and_its_errors_death_and_silence_are_told(tmp_path):
    import turns

    script = tmp_path / "child.py"
    script.write_text(CHILD)
    one, other = (turns.Child(str(script), BENCHMARKS, log=tmp_path / name) for name in ("one", "other"))
    try:
        assert one.ask("work", 20, times=3) == {"done": 3}
        with pytest.raises(turns.Failed, match=r"^ValueError: no such thing$"):
            one.ask("fail", 20)
        assert one.ask("work", 20) == {"done": 1}
        with pytest.raises(turns.Failed, match="ended with 7: the last word"):
            one.ask("die", 20)
        with pytest.raises(turns.Failed, match="the last word"):
            one.ask("work", 20)
        assert other.ask("work", 20) == {"done": 1}
        began = time.monotonic()
        with pytest.raises(turns.Failed, match="no answer"):
            other.ask("sleep", 0.1)
        assert time.monotonic() - began < 20
    finally:
        one.close()
        other.close()


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["headstart", "plain", "hf-gpt2", "hf-bert", "x-transformers"])
def test_every_system_trains_on_random_tokens(kind, tmp_path):
    import gpu_cases
    import gpu_training
    import peers

    if not peers.is_installed(kind):
        pytest.skip(f"{kind} is not installed")
    for how in ("",) if kind == "headstart" else ("eager", "compiled"):
        case = gpu_cases.Case("a case", tiny_shape(dropout=0.1), ())
        system = gpu_training.System(case, f"{kind} {how}".strip(), torch.device("cpu"), False, tmp_path)
        assert system.prepare()["memory_gb"] > 0
        found = system.measure(0.01)
        assert found["steps"] >= 2
        assert found["tokens_a_second"] > 0


@pytest.mark.slow
def test_a_row_of_tiny_shapes_runs_from_the_command_line(tmp_path):
    pytest.importorskip("transformers")
    command = [
        sys.executable, BENCHMARKS / "gpu_training.py", "--row", "bert", "--device", "cpu", "--tiny",
        "--rounds", "2", "--seconds", "0.02", "--json", tmp_path / "found.json",
    ]  # fmt: skip
    done = subprocess.run([*map(str, command)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads((tmp_path / "found.json").read_text())["found"]
    assert [one["failure"] for one in found] == [""] * len(found)
    assert all(len(one["rates"]) == 2 and one["mfu"] > 0 for one in found)
    assert any(one["ratio"] for one in found)


# ---- exact resume ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changed", "wanted"),
    [
        ({}, (True, True, True)),
        ({"again": "sha256:b"}, (False, True, True)),
        ({"killed": "sha256:b"}, (True, False, True)),
        ({"other seed": "sha256:a"}, (True, True, False)),
        ({"killed": "was not killed"}, (False, False, False)),
    ],
)
def test_a_kind_is_exact_where_three_agree_and_another_seed_does_not(changed, wanted):
    from exact_resume_gpu import judged

    digests = {
        "one": "sha256:a",
        "again": "sha256:a",
        "killed": "sha256:a",
        "other seed": "sha256:c",
        **changed,
    }
    found = judged(digests)
    assert (found["same_twice"], found["same_after_kill"], found["other_seed_differs"]) == wanted


@pytest.mark.slow
def test_a_killed_run_is_found_exact_on_the_cpu():
    command = [sys.executable, BENCHMARKS / "exact_resume_gpu.py", "--device", "cpu", "--kinds", "causal"]
    done = subprocess.run([*map(str, command), "--at-once", "2"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "same after kill: yes" in done.stdout


def test_a_tiny_shape_keeps_what_a_case_is_about():
    from gpu_cases import CASES, tiny

    dropped_out = CASES["shakespeare"][1].shape
    assert tiny(dropped_out, False).dropout == 0.2
    assert dataclasses.replace(tiny(dropped_out, False), dropout=0.0) == tiny_shape()
