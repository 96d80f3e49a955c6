"""From a call to a run: what is given is kept, and names the directory."""

import dataclasses
import inspect
from types import SimpleNamespace

import pytest
import small
import tiny_runs
import translators
from expected_errors import refused

import headstart
from headstart.config.presets import preset
from headstart.config.training import (
    FinetuneSettings,
    LoopConfig,
    OptimizerConfig,
    PretrainSettings,
    TokenizerConfig,
)
from headstart.runs.directory import RunDirectory
from headstart.runs.load import load
from headstart.training.fit import Console, Session
from headstart.training.tasks import finetune, translation
from headstart.training.tasks.arguments import call_of, default_out, tokenizer_for

SHAPE = {"model": tiny_runs.SHAPE, "length": 16, "machine": tiny_runs.MACHINE}


def trained(kind, out, **given):
    given = {**SHAPE, "tokenizer": small.tokenizer(), **given}
    if kind == "translation":
        return headstart.train_translator(
            translators.files()["train"],
            out=out,
            **{**given, "model": translators.SHAPE, "batch_tokens": 300},
        )
    files = tiny_runs.files()
    if kind == "finetune":
        return headstart.finetune(files["classification", "train"], out=out, **given)
    return headstart.pretrain(files["corpus"], out=out, **{**given, "batch_tokens": 64})


@pytest.mark.parametrize("kind", ["pretrain", "finetune", "translation"])
def test_settings_in_groups_are_not_overwritten(kind, tmp_path):
    trained(
        kind, tmp_path / "run", optimizer=OptimizerConfig(learning_rate=1e-4, weight_decay=0.2),
        loop=LoopConfig(steps=3, seed=5, schedule="constant"),
    )  # fmt: skip
    config = load(tmp_path / "run").config
    assert (config.optimizer.learning_rate, config.optimizer.weight_decay) == (1e-4, 0.2)
    assert (config.loop.steps, config.loop.seed, config.loop.schedule) == (3, 5, "constant")


@pytest.mark.parametrize(
    ("kind", "schedule", "warmup"),
    [("pretrain", "cosine", 0.05), ("finetune", "linear", 0.1), ("translation", "inverse-sqrt", 0.1)],
)
def test_a_group_changes_only_what_it_was_given(kind, schedule, warmup, tmp_path):
    trained(kind, tmp_path / "usual", loop=LoopConfig(steps=1))
    usual = load(tmp_path / "usual").config.loop
    assert (usual.steps, usual.schedule, usual.warmup) == (1, schedule, warmup)
    trained(kind, tmp_path / "asked", loop=LoopConfig(steps=1, schedule="linear", warmup=0.1))
    asked = load(tmp_path / "asked").config.loop
    assert (asked.schedule, asked.warmup) == ("linear", 0.1)


@pytest.mark.parametrize("kind", ["pretrain", "finetune", "translation"])
def test_what_is_given_in_a_group_and_alone_is_refused(kind, tmp_path):
    with refused("conflict", "learning_rate"):
        trained(kind, tmp_path / "run", optimizer=OptimizerConfig(learning_rate=1e-4), learning_rate=1e-3)
    assert not (tmp_path / "run").exists()


def test_an_unknown_setting_is_refused_with_its_neighbour(tmp_path):
    with refused("unknown-name", "'epoch'", "'epochs'"):
        trained("finetune", tmp_path / "run", epoch=3)


@pytest.fixture
def files(tmp_path):
    for name in ("a", "b", "c"):
        (tmp_path / f"{name}.txt").write_text(f"le livre {name}\n")
    return {name: str(tmp_path / f"{name}.txt") for name in "abc"}


def out_of(files, *more, cls=FinetuneSettings, **given):
    return default_out("finetune", call_of(cls, given, None), [files["a"], *more])


@pytest.mark.parametrize(
    "given",
    [
        {"freeze": "base"}, {"pooling": "mean"}, {"length": 8}, {"batch": 4}, {"learning_rate": 1e-3}, {"seed": 1},
        {"dropout": 0.1}, {"labels": 5}, {"r_drop": 1.0}, {"average": "ema"}, {"precision": "fp32"}, {"vocab": 99},
        {"tokenizer": small.tokenizer()}, {"text_column": "review"}, {"start": "elsewhere"},
    ],
    ids=lambda given: next(iter(given)),
)  # fmt: skip
def test_another_setting_is_another_directory(files, given):
    assert out_of(files, **given) != out_of(files)


def test_data_counts_by_its_content(files, tmp_path):
    assert out_of(files, files["b"]) != out_of(files)
    assert out_of(files, files["b"]) != out_of(files, files["c"])
    (tmp_path / "moved.txt").write_bytes((tmp_path / "b.txt").read_bytes())
    assert out_of(files, files["b"]) == out_of(files, str(tmp_path / "moved.txt"))


@pytest.mark.parametrize(
    "given",
    [{"steps": 5}, {"epochs": 2.0}, {"time": "1m"}, {"keep": 5}, {"threads": 1}, {"device": "cpu"},
     {"save_every": 3}, {"fast": True}],
    ids=lambda given: next(iter(given)),
)  # fmt: skip
def test_a_run_can_be_extended_and_moved(files, given):
    assert out_of(files, **given) == out_of(files)


def test_a_run_without_a_directory_of_its_own_is_found_again(files, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rows = tiny_runs.files()["classification", "train"]
    given = {**SHAPE, "tokenizer": small.tokenizer()}
    headstart.finetune(rows, steps=2, **given)
    headstart.finetune(rows, steps=3, **given)
    headstart.finetune(rows, steps=3, batch=4, **given)
    runs = sorted((tmp_path / "runs").iterdir())
    assert len(runs) == 2
    assert {load(run).step for run in runs} == {3}


def test_the_signature_shows_every_setting():
    shown = inspect.signature(headstart.pretrain).parameters
    assert {*PretrainSettings.names(), "width", "device", "out", "machine"} <= set(shown)
    assert {*FinetuneSettings.names(), "width", "device"} <= set(inspect.signature(headstart.finetune).parameters)


# ---- the tokenizer --------------------------------------------------------------------------------------------


def chosen(tmp_path, given=None, start=None, in_memory=None, said=None):
    console = Console(said.append) if said is not None else Console()
    session = Session(RunDirectory(tmp_path), tiny_runs.MACHINE, console)
    return tokenizer_for(
        session,
        given or TokenizerConfig(vocab=300),
        start,
        lambda: iter(small.sentences(60)),
        "causal",
        in_memory,
    )


def test_one_is_trained_on_the_text_and_it_is_said(tmp_path):
    said = []
    assert chosen(tmp_path, said=said).size <= 300
    assert "300 tokens" in said[0]


def test_one_that_is_given_is_taken(tmp_path):
    small.tokenizer().save(tmp_path)
    assert chosen(tmp_path, in_memory=small.tokenizer()).fingerprint == small.tokenizer().fingerprint
    given = TokenizerConfig(tokenizer=str(tmp_path))
    assert chosen(tmp_path, given).fingerprint == small.tokenizer().fingerprint


def test_a_start_brings_its_own_and_nothing_is_added_to_it(tmp_path):
    start = tiny_runs.run_of("causal")
    assert chosen(tmp_path, start=start).fingerprint == start.tokenizer.fingerprint
    with refused("conflict", "--tokenizer", "--start"):
        chosen(tmp_path, start=start, in_memory=small.tokenizer())


def test_a_tokenizer_that_normalises_otherwise_is_refused(tmp_path):
    with refused("mismatch", "--normalise asks for lower-case"):
        chosen(tmp_path, TokenizerConfig(normalise=["lower-case"]), in_memory=small.tokenizer())
    assert chosen(tmp_path, TokenizerConfig(vocab=300, normalise=["lower-case"])).normalise == ("lower-case",)


# ---- the base from scratch ----------------------------------------------------------------------------------


def test_each_task_has_its_shape():
    def call(**given):
        return call_of(FinetuneSettings, given, tiny_runs.MACHINE)

    def base(**given):
        return finetune._base(call(**given), None, SimpleNamespace(texts_b=None))

    small = base()
    assert (small.width, small.depth, small.positions) == (128, 2, "rotary")
    assert base(dropout=0.1) == dataclasses.replace(small, dropout=0.1)
    assert base(width=40) == preset("tiny", width=40)
    assert translation.shape_of(call(), None, "") == preset("transformer-tiny")
    assert translation.shape_of(call(preset="lab", width=20, decoder_depth=1), None, "").width == 20


def test_rows_of_which_none_can_be_held_out_are_refused_by_name(tmp_path):
    (tmp_path / "two.csv").write_text("text,label\nbon,a\nmauvais,b\n")
    with refused("too-few", "no row can be held out for valid", "2 rows"):
        headstart.finetune(tmp_path / "two.csv", out=tmp_path / "run", steps=1, **SHAPE)
    assert not (tmp_path / "run").exists()
