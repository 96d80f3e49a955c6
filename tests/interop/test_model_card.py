"""The model card: true, complete, accepted by the Hub, and untouched by what names and labels contain."""

import ast
import dataclasses
import inspect
import itertools
import re
import shutil
from pathlib import Path

import checksummed
import pytest
import random_runs
import small
import tiny_runs
import torch
import translators
from markdown_it import MarkdownIt

import headstart
from headstart.config.generation import GenerationConfig
from headstart.inference.generate import generate
from headstart.inference.predict import embed, predict
from headstart.inference.translate import translate
from headstart.interop.huggingface import export_huggingface
from headstart.interop.model_card import (
    _KINDS,
    base_name,
    call_of,
    card,
    code,
    code_block,
    is_exact,
    usage,
    write_card,
)
from headstart.machine import Machine
from headstart.planning.parameters import total
from headstart.runs.load import load
from headstart.serve.models import CAN
from headstart.tokenizers.templates import template_of

HOSTILE = [
    "a|b",
    "`tick` and ``two``",
    "line\nbreak\n# Heading\n---",
    "<script>alert(1)</script>",
    "[link](https://example.org) ![image](x.png) https://example.org www.example.org",
    "**bold** _it_ \\| $x$ {{ x }} <!-- c -->",
    "\x1b[31mred\u202etxet",
    "`",
    " ",
    "",
    "key: value\n- item",
    "x" * 5_000,
]


def parsed(text):
    """The tokens of a Markdown text, front matter aside, nested ones too."""
    body = re.sub(r"\A---\n.*?\n---\n", "", text, count=1, flags=re.S)
    tokens = MarkdownIt("commonmark").enable("table").parse(body)
    return [inner for token in tokens for inner in [token, *(token.children or [])]]


def blocks(text):
    return [token.content for token in parsed(text) if token.type == "fence"]


def hostile_run():
    run = tiny_runs.run_of("classification")
    data = dataclasses.replace(
        run.config.data, train="/home/someone/secret place/tr|ain`.jsonl", valid="C:\\Users\\someone\\va<b>lid.csv",
        test="../../private/te\nst.tsv", text_column='"]); import os; ("', fingerprint="ab|cd`ef",
    )  # fmt: skip
    config = dataclasses.replace(run.config, label_names=HOSTILE, data=data)
    return dataclasses.replace(run, config=config)


# ---- text of others -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", HOSTILE)
@pytest.mark.parametrize("in_table", [False, True])
def test_any_text_is_shown_as_code_and_nothing_else(text, in_table):
    span = code(text, in_table=in_table)
    whole = f"| a | b |\n| --- | --- |\n| {span} | end |" if in_table else f"before {span} after"
    tokens = parsed(whole)
    kinds = {token.type for token in tokens} - {
        "text",
        "code_inline",
        "inline",
        "paragraph_open",
        "paragraph_close",
    }
    if in_table:
        assert {kind.split("_")[0] for kind in kinds} <= {"table", "thead", "tbody", "tr", "th", "td"}
        assert len([token for token in tokens if token.type == "td_open"]) == 2
    else:
        assert not kinds
    shown = [token.content for token in tokens if token.type == "code_inline"]
    expected = text.replace("\n", "\\n").replace("\x1b", "\\x1b").replace("\u202e", "\\u202e")
    expected = expected if len(expected) <= 200 else expected[:199] + "…"
    assert shown == ([expected] if text.strip() else [])


def test_code_cannot_leave_its_block():
    (found,) = blocks(code_block("print('''\n```\n# out\n````\n''')"))
    assert found.rstrip() == "print('''\n```\n# out\n````\n''')"


def test_hostile_names_and_labels_are_shown_and_not_obeyed():
    text = card(hostile_run(), kind="onnx")
    tokens = parsed(text)
    assert not {token.type for token in tokens} & {
        "html_inline",
        "html_block",
        "link_open",
        "image",
        "strong_open",
    }
    headings = [tokens[i + 1].content for i, token in enumerate(tokens) if token.type == "heading_open"]
    assert headings == [
        "`classification`", "Use", "Model", "Data", "Scores", "Training", "Make it again",
    ]  # fmt: skip
    assert "\x1b" not in text
    assert "\u202e" not in text
    compile(blocks(text)[1], "again", "exec")


def test_nothing_of_the_machine_is_told(tmp_path):
    text = card(hostile_run(), kind="huggingface")
    for word in ("someone", "secret", "private", "Users", "/home", str(tiny_runs.directory())):
        assert word not in text
    for kind in ("classification", "causal"):
        assert str(tiny_runs.directory()) not in card(tiny_runs.run_of(kind), kind="onnx")


@pytest.mark.parametrize(
    ("path", "name"),
    [
        ("/a/b/c.txt", "c.txt"),
        ("c.txt", "c.txt"),
        (r"C:\a\b.csv", "b.csv"),
        ("a/b/", "b"),
        ("/dev/stdin", "stdin"),
    ],
)
def test_of_a_path_its_own_name_is_told(path, name):
    assert base_name(path) == name


# ---- what it says -------------------------------------------------------------------------------------------


def test_the_hub_reads_the_front_matter():
    hub = pytest.importorskip("huggingface_hub")
    tags = {"classification": "text-classification", "causal": "text-generation", "masked-nsp": "fill-mask"}
    for kind, tag in tags.items():
        data = hub.ModelCard(card(tiny_runs.run_of(kind), kind="onnx")).data
        assert (data.pipeline_tag, data.library_name) == (tag, "onnx")
        assert {"headstart", "onnx", kind} == set(data.tags)
        assert data.license is None
        assert data.language is None
    assert hub.ModelCard(card(hostile_run(), kind="huggingface")).data.library_name == "transformers"


def test_counts_scores_and_fingerprints_are_the_runs_own(tmp_path):
    path = shutil.copytree(tiny_runs.path_of("classification"), tmp_path / "run")
    result = checksummed.read(path / "result.json")
    assert set(result["counts"]) == {"train", "valid"}
    assert sum(part["rows"] for part in result["counts"].values()) == 50
    result |= {
        "test": {"accuracy": 0.8, "macro_f1": 0.7},
        "counts": {**result["counts"], "test": {"rows": 10}},
    }
    checksummed.write(path / "result.json", result)
    run = load(path)
    write_card(run, tmp_path, kind="onnx", agreement=3e-7)
    text = (tmp_path / "README.md").read_text()
    assert f"| train | `classification-train.jsonl` | {result['counts']['train']['rows']} rows |" in text
    assert "| valid | held out of train |" in text
    # Wilson's interval for 8 of 10, computed by hand: (8 + z²/2 ± z·√(8·2/10 + z²/4)) / (10 + z²), z = 1.959964.
    assert "| test | `accuracy` | 0.8000 | 0.4902 to 0.9433 |" in text
    assert "| test | `macro_f1` | 0.7000 |  |" in text
    for fact in (
        run.digest,
        run.config.start,
        run.config.data.fingerprint,
        run.config.model.tokenizer,
        "3.0e-07",
    ):
        assert fact in text
    assert f"| all |  | {total(run.config.model, run.config.head):,} |" in text
    assert "precision fp32" in text


def test_a_run_of_a_study_tells_the_arms_interval(tmp_path):
    trial = tmp_path / "trials" / "finetuned-causal-b50-s0"
    path = shutil.copytree(tiny_runs.path_of("classification"), trial / "lr-0.001")
    checksummed.write(trial / "trial.json", {"arm": "finetuned", "budget": 50, "seed": 0})
    interval = {"value": 0.83, "low": 0.8, "high": 0.86}
    scores = [
        {"arm": "scratch", "budget": 50, "seeds": 3, "accuracy": {**interval, "value": 0.5}},
        {"arm": "finetuned", "budget": 50, "seeds": 3, "accuracy": interval},
    ]
    checksummed.write(tmp_path / "study.json", {"scores": scores})
    text = card(load(path), kind="onnx")
    assert "Over 3 seeds the arm's accuracy on test is 0.8300, with 95 % confidence 0.8000 to 0.8600" in text
    for broken in (b"{", b"[]", *map(checksummed.signed, ({"scores": 3}, {"scores": [{"arm": 1}]}, {"scores": []}))):
        (tmp_path / "study.json").write_bytes(broken)
        assert "study" not in card(load(path), kind="onnx")


def test_what_is_not_known_is_not_told(tmp_path):
    path = shutil.copytree(tiny_runs.path_of("causal"), tmp_path / "run")
    shutil.copytree(path, tmp_path / "unfinished")
    for name in ("result.json", "weights.safetensors"):
        (tmp_path / "unfinished" / name).unlink()
    assert "The run was not finished: these are its weights at step 4." in card(
        load(tmp_path / "unfinished"), kind="onnx"
    )
    shutil.rmtree(path / "checkpoints")
    run = load(path)
    assert "- Computed on: not recorded." in card(run, kind="onnx")
    data = dataclasses.replace(run.config.data, corpus=[], valid="")
    imported = dataclasses.replace(run, config=dataclasses.replace(run.config, data=data, start="imported"))
    result = {"step": 0, "steps": 0, "weights_sha256": run.digest, "valid": None}
    result["imported"] = {"model_type": "gpt2", "sha256": "abc"}
    checksummed.write(path / "result.json", result)
    text = card(imported, kind="onnx")
    assert "The run was imported, and not trained here." in text
    assert "a checkpoint of the kind `gpt2`; sha256 over its files: `abc`" in text
    assert "None are recorded." in text


def test_the_card_of_a_run_that_gave_exactness_up_promises_no_weights(tmp_path):
    path = shutil.copytree(tiny_runs.path_of("causal"), tmp_path / "run")
    assert "fast=True" not in card(load(path), kind="onnx")
    for manifest in path.glob("checkpoints/step-*/manifest.json"):
        fast = Machine(torch.device("cpu"), "fp32", 1, is_fast=True)
        checksummed.change(manifest, machine=fast.facts())
    text = card(load(path), kind="onnx")
    assert "fast=True," in blocks(text)[1]
    assert "the weights are the same" not in text
    assert "the weights need not be the same" in text


# ---- used ---------------------------------------------------------------------------------------------------


def used(run, tmp_path, monkeypatch, capsys):
    """The names that the code under "Use" of an export defines, once it has run, and what it printed."""
    pytest.importorskip("transformers", reason="needs the extra hf")
    export_huggingface(run, tmp_path / "out")
    monkeypatch.chdir(tmp_path / "out")
    names = {}
    exec(compile(blocks(Path("README.md").read_text())[0], "use", "exec"), names)
    assert capsys.readouterr().out.strip()
    return names


TEXTS = [*small.sentences(3, seed=4), "la fin " * 40]


@pytest.mark.parametrize("objective", ["classification", "multilabel", "regression"])
def test_the_code_on_the_card_predicts_what_headstart_predicts(tmp_path, monkeypatch, capsys, objective):
    run = random_runs.write(tmp_path / "run", "bert-base", objective)
    names = used(run, tmp_path, monkeypatch, capsys)
    for answer, one in zip(names["predict"](TEXTS), predict(run, TEXTS, tiny_runs.MACHINE), strict=True):
        expected = one.answer["value"] if objective == "regression" else one.answer["probabilities"]
        assert answer == pytest.approx(expected, abs=1e-5)


def test_the_code_on_the_card_takes_pairs_where_the_run_does(tmp_path, monkeypatch, capsys):
    run = random_runs.write(tmp_path / "run", "bert-base", "classification")
    run = dataclasses.replace(run, config=dataclasses.replace(run.config, pairs=True))
    pairs = list(itertools.pairwise(TEXTS[:3]))
    answers = used(run, tmp_path, monkeypatch, capsys)["predict"](pairs)
    for answer, one in zip(answers, predict(run, pairs, tiny_runs.MACHINE), strict=True):
        assert answer == pytest.approx(one.answer["probabilities"], abs=1e-5)


def test_the_code_on_the_card_writes_what_headstart_writes(tmp_path, monkeypatch, capsys):
    run = tiny_runs.run_of("rotary")
    names = used(run, tmp_path, monkeypatch, capsys)
    (ours,) = generate(run, "le livre", tiny_runs.MACHINE, GenerationConfig(max_tokens=10))
    assert ours.text
    assert names["generate"]("le livre", 10) == "le livre" + ours.text


@pytest.mark.parametrize("objective", ["masked", "masked-nsp"])
def test_the_code_on_the_card_fills_a_mask(tmp_path, monkeypatch, capsys, objective):
    run = random_runs.write(tmp_path / "run", "bert-base", objective)
    names = used(run, tmp_path, monkeypatch, capsys)
    found = names["fill"]("le " + names["tokenizer"].mask_token)
    ids = template_of(run.tokenizer, "masked").one([*run.tokenizer.encode("le "), run.tokenizer.id_of("mask")], 32)
    with torch.no_grad():
        logits = run.model(torch.tensor(ids.tokens)[None], segments=torch.zeros(1, len(ids.tokens), dtype=torch.long))
    logits = logits.masked if objective == "masked-nsp" else logits
    assert found == [run.tokenizer.decode([int(logits[0, -2].argmax())], keep_specials=True)]


def test_the_code_on_the_card_gives_vectors(tmp_path, monkeypatch, capsys):
    run = random_runs.write(tmp_path / "run", "bert-base", "base", pooling="first")
    vectors, present = used(run, tmp_path, monkeypatch, capsys)["vectors"](TEXTS)
    for row, mask, one in zip(vectors, present, embed(run, TEXTS, tiny_runs.MACHINE, "mean"), strict=True):
        torch.testing.assert_close(row[mask > 0].mean(0), torch.from_numpy(one.vectors), rtol=0, atol=1e-5)


@pytest.mark.parametrize("kind", ["joint", "separate"])
def test_the_code_on_the_card_translates_as_headstart_does(tmp_path, monkeypatch, capsys, kind):
    run = translators.run_of(kind)
    settings = dataclasses.replace(run.config.translation, beam=1)
    run = dataclasses.replace(run, config=dataclasses.replace(run.config, translation=settings))
    names = used(run, tmp_path, monkeypatch, capsys)
    texts = [text[:25] for text in TEXTS[:3]]
    found = translate(run, texts, tiny_runs.MACHINE, GenerationConfig(beam=1, max_tokens=12))
    for text, ours in zip(texts, found, strict=True):
        theirs = names["translate"](text)  # it goes on to the longest text
        assert ours.candidates[0].text
        assert theirs.startswith(ours.candidates[0].text.rstrip("\ufffd"))


# ---- made again ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["char", "classification", "masked-nsp", "separate"])
def test_the_call_on_the_card_makes_the_same_weights(kind, tmp_path, monkeypatch):
    """From scratch, from a start, on a corpus, and with two tokenizers."""
    run = translators.run_of(kind) if kind == "separate" else tiny_runs.run_of(kind)
    source = (blocks(card(run, kind="onnx")))[1]
    for file in tiny_runs.directory().glob("*.*"):
        shutil.copy(file, tmp_path)
    for file in run.path.glob("tokenizer*.json"):
        shutil.copy(file, tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HEADSTART_CACHE", str(tmp_path / "cache"))
    if kind == "classification":
        assert "start='START'" in source
        source = source.replace("'START'", repr(str(tiny_runs.path_of("causal"))))
    exec(compile(source, "again", "exec"), {})
    again = load(tmp_path / f"{run.path.name}-again")
    assert again.digest == run.digest
    differing = {"data", "loop"}
    ours, theirs = (
        {k: v for k, v in dataclasses.asdict(one.config).items() if k not in differing} for one in (run, again)
    )
    assert ours == theirs
    assert again.config.loop == run.config.loop
    assert again.config.data.fingerprint == run.config.data.fingerprint


# ---- spans and blocks ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("plain", "`plain`"),
        ("<b> [x](y) *z*", "`<b> [x](y) *z*`"),
        ("a`b", "``a`b``"),
        ("`edge", "`` `edge ``"),
        (" blank edge ", "`  blank edge  `"),
        ("two\nlines", "`two\\nlines`"),
        ("\x1b[2J", "`\\x1b[2J`"),
        ("", "(empty)"),
        ("  ", "(blank)"),
    ],
)
def test_a_text_is_a_code_span_that_it_cannot_leave(text, shown):
    assert code(text) == shown


def test_a_bar_does_not_end_a_cell_and_a_long_text_is_cut():
    assert code("a|b", in_table=True) == "`a\\|b`"
    assert code("a|b") == "`a|b`"
    assert code("x" * 999) == f"`{'x' * 199}…`"


def test_a_block_is_fenced_by_more_than_it_holds():
    assert code_block("x = 1\n\n") == "```python\nx = 1\n```"
    assert code_block("````") == "`````python\n````\n`````"


# ---- the code of the card -----------------------------------------------------------------------------------

USED = [*tiny_runs.LANGUAGE, *tiny_runs.LABELLED, "joint", "separate"]


def imported(source):
    """The packages that a program imports."""
    nodes = list(ast.walk(ast.parse(source)))
    names = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    return {name.partition(".")[0] for name in names | {
        node.module for node in nodes if isinstance(node, ast.ImportFrom)
    }}  # fmt: skip


@pytest.mark.parametrize("kind", USED)
def test_it_imports_what_it_says_and_no_more(kind):
    run = translators.run_of(kind) if kind in ("joint", "separate") else tiny_runs.run_of(kind)
    assert imported(usage(run, "huggingface")) == {"torch", "transformers"}
    assert imported(usage(run, "onnx")) == {"json", "numpy", "onnxruntime", "tokenizers"}


def test_every_objective_has_a_class_of_transformers():
    transformers = pytest.importorskip("transformers")
    assert _KINDS.keys() == CAN.keys()
    assert all(hasattr(transformers, name) for _, name in _KINDS.values())


# ---- the Python call is one that the package takes ----------------------------------------------------------

FACTS = {"device": "cpu", "precision": "fp32", "threads": "1"}
FUNCTIONS = {
    "causal": "pretrain",
    "masked": "pretrain",
    "classification": "finetune",
    "joint": "finetune",
}


@pytest.mark.parametrize("kind", FUNCTIONS)
def test_the_function_takes_every_argument(kind):
    run = translators.run_of(kind) if kind == "joint" else tiny_runs.run_of(kind)
    imported, call = ast.parse(call_of(run, FACTS)).body
    assert ast.unparse(imported) == "import headstart"
    assert ast.unparse(call.value.func) == f"headstart.{FUNCTIONS[kind]}"
    parameters = inspect.signature(getattr(headstart, FUNCTIONS[kind])).parameters
    assert {keyword.arg for keyword in call.value.keywords} <= set(parameters)


def test_nothing_is_told_of_where_files_were():
    run = tiny_runs.run_of("classification")
    assert str(tiny_runs.directory()) not in call_of(run, FACTS)
    assert [base_name(path) for path in ("/a/b.txt", "b.txt", "C:\\a\\b.txt", "a/b/")] == ["b.txt"] * 3 + ["b"]


def test_a_run_that_gave_exactness_up_says_so():
    assert is_exact(FACTS)
    assert not is_exact({**FACTS, "exact": "no: --fast"})
    assert "fast=True" in call_of(tiny_runs.run_of("causal"), {**FACTS, "exact": "no: --fast"})
