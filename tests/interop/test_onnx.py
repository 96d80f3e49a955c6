"""Out to ONNX: what onnxruntime computes from the files alone is what the model computes."""

import base64
import contextlib
import dataclasses
import errno
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile

import numpy as np
import pytest
import small
import tiny_runs
import torch
import translators
from commands import invoke
from expected_errors import refused
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headstart.config.generation import GenerationConfig
from headstart.config.model import HeadConfig
from headstart.config.presets import preset
from headstart.errors import RunFailed, TryAgain
from headstart.inference.generate import generate
from headstart.inference.predict import predict
from headstart.inference.translate import texts_of, translate
from headstart.interop import onnx, onnx_graphs
from headstart.interop.model_card import usage
from headstart.interop.onnx import TOLERANCE, export_onnx
from headstart.interop.onnx_graphs import Agreement, check, graphs_of, session
from headstart.model.model import build

TEXTS = [
    "le livre est très belle.",
    "un",
    "",
    "<s> [CLS] [PAD] fin",
    "la fin était vraiment triste et long " * 4,
]


@contextlib.contextmanager
def everything_printed():
    """What the process writes to its standard output and error, libraries in C included."""
    kept = [os.dup(1), os.dup(2)]
    with tempfile.TemporaryFile() as file:
        for number in (1, 2):
            os.dup2(file.fileno(), number)
        told = []
        try:
            yield told
        finally:
            for number, before in zip((1, 2), kept, strict=True):
                os.dup2(before, number)
                os.close(before)
            file.seek(0)
            told.append(file.read().decode())


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    """A classification run, from a causal base with sinusoidal positions and pooled at the last token."""
    directory = tmp_path_factory.mktemp("onnx") / "out"
    with everything_printed() as told:
        done = export_onnx(tiny_runs.path_of("classification"), directory)
    return done, told[0]


def python_of(directory):
    """The code under "Use" in the card."""
    return re.search(r"```python\n(.*?)\n```", (directory / "README.md").read_text(), re.S)[1]


def run_alone(directory, code):
    """Run Python in the directory where nothing of Headstart can be imported; returns what the last line printed."""
    guard = "import sys\nsys.modules['headstart'] = None\nsys.modules['torch'] = None\n"
    done = subprocess.run(
        [sys.executable, "-c", guard + code], cwd=directory, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()[-1]


# ---- one run, in full ---------------------------------------------------------------------------------------


def test_an_export_is_checked_complete_and_quiet(exported):
    done, told = exported
    assert told == ""
    assert done.files == ("README.md", "frame.json", "model.onnx", "tokenizer.json")
    assert sorted(done.files) == sorted(path.name for path in done.directory.iterdir())
    assert done.difference <= TOLERANCE
    assert done.batches == onnx_graphs.CASES
    assert not list(done.directory.parent.glob(".tmp-*"))
    ours = (tiny_runs.path_of("classification") / "tokenizer.json").read_bytes()
    assert (done.directory / "tokenizer.json").read_bytes() == ours


def test_the_frame_is_told_as_the_run_has_it(exported):
    run = tiny_runs.run_of("classification")
    told = json.loads((exported[0].directory / "frame.json").read_text())
    assert told["text"] == {
        "tokenizer": "tokenizer.json", "library": "tokenizers", "first": run.tokenizer.id_of("begin"),
        "last": run.tokenizer.id_of("end"), "between": 1, "pad": run.tokenizer.id_of("pad"),
        "mask": run.tokenizer.roles["mask"], "unknown": run.tokenizer.roles["unknown"], "length": tiny_runs.LENGTH,
    }  # fmt: skip
    assert told["labels"] == ["non", "oui"]
    assert told["pooling"] == "last"
    assert told["weights_sha256"] == run.digest
    assert told["graphs"] == [{"file": "model.onnx", "inputs": ["input_ids", "attention_mask"], "outputs": ["logits"]}]


@given(data=st.data())
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_any_batch_and_length_give_the_models_outputs(exported, data):
    """Padding anywhere, rows of padding alone, and lengths beyond the trained one (sinusoids have no end)."""
    batch, length = data.draw(st.integers(1, 6)), data.draw(st.integers(1, 3 * tiny_runs.LENGTH))
    draws = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1)))
    run = tiny_runs.run_of("classification")
    tokens = draws.integers(0, run.config.model.vocab, (batch, length))
    present = draws.random((batch, length)) < data.draw(st.floats(0, 1))
    with torch.inference_mode():
        own = run.model(torch.from_numpy(tokens), present=torch.from_numpy(present)).numpy()
    graph = session(exported[0].directory / "model.onnx")
    (theirs,) = graph.run(None, {"input_ids": tokens, "attention_mask": present.astype(np.int64)})
    assert np.abs(own - theirs).max() <= 1e-4


def test_onnxruntime_and_tokenizers_alone_predict_what_headstart_predicts(exported):
    run = tiny_runs.run_of("classification")
    code = python_of(exported[0].directory) + f"\nprint(json.dumps(predict({TEXTS!r})))"
    answers = json.loads(run_alone(exported[0].directory, code))
    expected = [one.answer["probabilities"] for one in predict(run, TEXTS, tiny_runs.MACHINE)]
    assert [list(answer) for answer in answers] == [list(one) for one in expected]
    for answer, one in zip(answers, expected, strict=True):
        assert answer == pytest.approx(one, abs=1e-5)


def test_the_check_finds_weights_that_are_not_those_of_the_graph(exported):
    run = tiny_runs.run_of("classification")
    assert check(run.model, exported[0].directory, run.config.length).difference <= 1e-5
    with torch.no_grad():
        run.model.head.classifier.bias[0] += 0.01
    assert check(run.model, exported[0].directory, run.config.length).difference > 1e-3
    with torch.no_grad():
        run.model.head.classifier.bias[0] = float("nan")
    assert check(run.model, exported[0].directory, run.config.length).difference == float("inf")


# ---- what goes wrong ----------------------------------------------------------------------------------------


@pytest.fixture
def copied_graphs(exported, monkeypatch):
    """Graphs are copied instead of being made, which takes seconds."""

    def copy(part, model, path, is_large):
        shutil.copy(exported[0].directory / part.file, path)

    monkeypatch.setattr(onnx, "_write_graph", copy)


def test_a_check_that_fails_leaves_nothing(copied_graphs, tmp_path, monkeypatch):
    for difference in (2 * TOLERANCE, float("inf"), float("nan")):
        monkeypatch.setattr(onnx, "check", lambda *_, difference=difference: Agreement(difference, 1))
        with refused("mismatch", "0.0001", by=RunFailed) as caught:
            export_onnx(tiny_runs.path_of("classification"), tmp_path / "out")
        assert caught.value.exit_code == 1
        assert list(tmp_path.iterdir()) == []


def test_a_graph_that_onnxruntime_cannot_read_leaves_nothing(tmp_path, monkeypatch):
    monkeypatch.setattr(onnx, "_write_graph", lambda part, model, path, is_large: path.write_bytes(b"no graph"))
    with refused("failed", "onnxruntime", by=RunFailed):
        export_onnx(tiny_runs.path_of("classification"), tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


def test_a_full_disk_leaves_nothing_and_is_told(tmp_path, monkeypatch):
    def full(*_, **__):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(onnx, "_write_graph", full)
    with refused("disk-full", by=TryAgain):
        export_onnx(tiny_runs.path_of("classification"), tmp_path / "out")
    assert list(tmp_path.iterdir()) == []


def test_a_directory_that_holds_something_is_left_alone(copied_graphs, tmp_path):
    (tmp_path / "mine.txt").write_text("mine")
    with refused("exists", str(tmp_path)):
        export_onnx(tiny_runs.path_of("classification"), tmp_path)
    with refused("exists", str(tmp_path / "mine.txt")):
        export_onnx(tiny_runs.path_of("classification"), tmp_path / "mine.txt")
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]
    (tmp_path / "empty").mkdir()
    assert export_onnx(tiny_runs.path_of("classification"), tmp_path / "empty").files
    assert (tmp_path / "empty" / "model.onnx").exists()


def test_the_verb_tells_what_was_reached(copied_graphs, tmp_path, capsys):
    command = ["export", str(tiny_runs.path_of("classification")), "--to", "onnx"]
    answer = invoke(capsys, [*command, str(tmp_path / "out"), "--json"])
    assert answer.code == 0
    told = json.loads(answer.out)
    assert told["difference"] <= TOLERANCE
    assert "model.onnx" in told["files"]
    again = invoke(capsys, [*command, str(tmp_path / "out")])
    assert again.code == 2
    assert "not empty" in again.err


def test_without_the_extra_the_way_to_get_it_is_told(tmp_path, monkeypatch):
    real = onnx.importlib.util.find_spec
    monkeypatch.setattr(onnx.importlib.util, "find_spec", lambda name: None if name == "onnxscript" else real(name))
    with refused("no-package", "onnxscript", "pip install 'headstart[onnx]'"):
        export_onnx("no run either", tmp_path / "out")


# ---- every option -------------------------------------------------------------------------------------------

SMALL = {"width": 16, "depth": 1, "heads": 2, "ffn": 24, "vocab": 40, "context": 32, "dropout": 0.1}
SHAPES = {
    "lm, as in the lab": ("lm", {
        "positions": "sinusoidal", "norm_place": "post", "activation": "relu", "scale_embedding": True,
        "tied": False, "output_bias": True,
    }),
    "lm, modern": ("lm", {
        "positions": "rotary", "norm": "rms", "activation": "swiglu", "bias": False, "heads": 4, "kv_heads": 2,
    }),
    "masked, learned": ("masked", {
        "positions": "learned", "direction": "bidirectional", "activation": "gelu-tanh", "output_bias": True,
    }),
    "masked-nsp, as BERT": ("masked-nsp", {
        "positions": "learned", "direction": "bidirectional", "segments": 2, "norm_place": "post",
        "embedding_norm": True, "pooler": True,
    }),
    "classification, first, with segments": ("classification", {
        "positions": "rotary", "direction": "bidirectional", "segments": 2, "pooler": True,
    }),
    "multilabel, mean": ("multilabel", {
        "positions": "sinusoidal", "direction": "bidirectional", "norm": "rms", "norm_place": "post",
    }),
    "regression, last": ("regression", {"positions": "learned", "activation": "swiglu", "norm_place": "post"}),
    "translation, of 2017": ("translation", {
        "decoder_depth": 1, "direction": "bidirectional", "norm_place": "post", "activation": "relu",
    }),
    "translation, two vocabularies": ("translation", {
        "decoder_depth": 1, "direction": "bidirectional", "target_vocab": 30, "positions": "rotary", "norm": "rms",
        "activation": "swiglu", "bias": False,
    }),
}  # fmt: skip
POOLING = {"multilabel": "mean", "regression": "last", "classification": "first"}


@pytest.mark.slow
@pytest.mark.parametrize("name", SHAPES)
def test_every_option_of_a_model_is_exported(name, tmp_path):
    kind, shape = SHAPES[name]
    head = HeadConfig(kind=kind, classes=3, pooling=POOLING.get(kind))
    model = build(preset("tiny", **{**SMALL, **shape}), head, seed=1).eval()
    with torch.no_grad():  # norms and biases begin as ones and zeros, which would hide mistakes
        for number, parameter in enumerate(model.parameters()):
            generator = torch.Generator().manual_seed(number)
            parameter += 0.3 * torch.randn(parameter.shape, generator=generator)
    for part in graphs_of(model):
        onnx._write_graph(part, model, tmp_path / part.file, is_large=False)
    assert check(model, tmp_path, length=32, cases=40).difference <= 1e-5


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["separate"])
def test_onnxruntime_alone_translates_as_headstart_does(kind, tmp_path):
    run = translators.run_of(kind)
    done = export_onnx(run, tmp_path / "out")
    assert {"encoder.onnx", "decoder.onnx"} <= set(done.files)
    assert ("tokenizer.target.json" in done.files) == (kind == "separate")
    texts = small.sentences(6, seed=31)
    code = python_of(done.directory) + f"\nprint(json.dumps([translate(text) for text in {texts!r}]))"
    answers = json.loads(run_alone(done.directory, code))
    search = GenerationConfig(beam=1)
    found = [one.candidates[0].ids for one in translate(run, texts, tiny_runs.MACHINE, search)]
    special = run.vocabularies.target.special_ids
    for ours, theirs in zip(found, answers, strict=True):
        # Ours never writes a special token, and stops by the source's length.
        until = next((i for i, token in enumerate(theirs) if token in special), len(theirs))
        shared = min(len(ours), until)
        assert ours[:shared] == theirs[:shared]
    assert any(ours == theirs for ours, theirs in zip(found, answers, strict=True))
    assert len(texts_of(translate(run, texts, tiny_runs.MACHINE, search))) == len(texts)


@pytest.mark.slow
def test_onnxruntime_alone_goes_on_with_a_text_as_headstart_does(tmp_path):
    run = tiny_runs.run_of("rotary")
    done = export_onnx(run, tmp_path / "out")
    code = python_of(done.directory) + '\nprint(json.dumps(generate("le livre", 6)))'
    (ours,) = generate(run, "le livre", tiny_runs.MACHINE, GenerationConfig(max_tokens=6))
    assert ours.text
    assert json.loads(run_alone(done.directory, code)) == "le livre" + ours.text


@pytest.mark.slow
def test_pairs_of_texts_are_framed_and_cut_as_ours(tmp_path):
    run = tiny_runs.run_of("pairs")
    done = export_onnx(run, tmp_path / "out")
    texts = [("le livre", "une fin belle"), ("un " * 60, "peu"), ("très long " * 30, "est drôle " * 30)]
    code = python_of(done.directory) + f"\nprint(json.dumps(predict({texts!r})))"
    answers = json.loads(run_alone(done.directory, code))
    for answer, one in zip(answers, predict(run, texts, tiny_runs.MACHINE), strict=True):
        assert answer == pytest.approx(one.answer["probabilities"], abs=1e-5)


@pytest.mark.slow
def test_large_weights_lie_in_a_file_beside_the_graph(tmp_path, monkeypatch):
    monkeypatch.setattr(onnx, "MOST_BYTES_INSIDE", 0)
    run = tiny_runs.run_of("regression")
    done = export_onnx(run, tmp_path / "out")
    assert "model.onnx.data" in done.files
    moved = done.directory.rename(tmp_path / "elsewhere")  # the graph names the file beside it, not a place
    assert check(run.model, moved, run.config.length).difference <= 1e-5


def test_the_cards_way_with_sentencepiece_gives_our_ids(tmp_path):
    sentencepiece = pytest.importorskip("sentencepiece")
    from io import BytesIO

    from headstart.tokenizers.tokenizer import Tokenizer

    written = BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(small.sentences(200)), model_writer=written, vocab_size=40, minloglevel=2
    )
    (tmp_path / "one.model").write_bytes(written.getvalue())
    tokenizer = Tokenizer.load(tmp_path / "one.model")
    tokenizer.save(tmp_path)
    reading = {"tokenizer": str(tmp_path / "tokenizer.json"), "unknown": tokenizer.roles["unknown"]}
    names = {"json": json, "base64": base64, "sentencepiece": sentencepiece, "reading": reading}
    run = dataclasses.replace(tiny_runs.run_of("classification"), tokenizer=tokenizer)
    code = usage(run, "onnx")
    exec(code[code.index("def opened") : code.index("def framed")], names)
    for text in [*small.sentences(5, seed=2), "日本 livre"]:
        assert names["encode"](text) == tokenizer.encode(text).tolist()
