"""Every setting, with whatever value: written and read back equal, and trained with, or refused by its name."""

import dataclasses
import math
import typing

import commands
import pytest
import small
from commands import Workspace
from expected_errors import refused
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import headstart
from headstart.config.generation import GenerationConfig
from headstart.config.model import HeadConfig, ModelConfig
from headstart.config.reading import Reading
from headstart.config.run import DataConfig
from headstart.config.schema import build, fields_of
from headstart.config.schema import settings as settings_of
from headstart.config.study import FinetunePart, PretrainPart, StudyPart, TokenizerPart
from headstart.config.toml import read_toml, to_toml
from headstart.config.training import FinetuneSettings, MachineConfig, PretrainSettings
from headstart.errors import HeadstartError
from headstart.machine import choose
from headstart.runs.load import load

SHAPE = {"width": 8, "depth": 1, "heads": 2, "ffn": 8}
CLASSES = [
    ModelConfig, HeadConfig, GenerationConfig, MachineConfig, Reading, DataConfig, PretrainSettings, FinetuneSettings,
    StudyPart, TokenizerPart, PretrainPart, FinetunePart,
]  # fmt: skip
NEEDED = {ModelConfig: SHAPE}

OF_NO_TYPE = st.sampled_from([None, True, "", "a", "1", [], [1], ["a"], {}, 3, 0.5, -1, 10**400, b"a", object])
NUMBERS = st.one_of(
    st.integers(), st.floats(), st.integers(-(2**70), 2**70), st.sampled_from([math.nan, math.inf, -math.inf])
)


def values_for(setting):
    """Values inside, at and outside the bounds, of the type and of others."""
    hints = [setting.type, *typing.get_args(setting.type)]
    near = []
    if setting.bound:
        for end in (setting.bound.low, setting.bound.high):
            near += [kind(end) for kind in (int, float) if kind is float or end == int(end)]
            near += [end - 1, end + 1, math.nextafter(end, -math.inf), math.nextafter(end, math.inf)]
    words = [word for hint in hints for word in typing.get_args(hint) if isinstance(word, str)]
    one = st.one_of(NUMBERS, st.text(), OF_NO_TYPE, *([st.sampled_from(near)] if near else []))
    if words:
        one = st.one_of(one, st.sampled_from(words))
    return (
        st.one_of(one, st.lists(one, max_size=3)) if any(hint in (list, tuple) for hint in map(_origin, hints)) else one
    )


def _origin(hint):
    return typing.get_origin(hint) or hint


@st.composite
def given_settings(draw, classes):
    cls = draw(st.sampled_from(classes))
    setting = draw(st.sampled_from(list(fields_of(cls).values())))
    return cls, setting.name, draw(values_for(setting))


def outcome(function, *arguments, **named):
    """What it gives, or the error with which it refuses."""
    try:
        return function(*arguments, **named), None
    except HeadstartError as error:
        return None, error


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    return tmp_path_factory.mktemp("settings") / "settings.toml"


@settings(max_examples=400, suppress_health_check=[HealthCheck.too_slow])
@given(case=given_settings(CLASSES))
def test_what_is_accepted_is_read_back_equal_and_the_rest_is_refused_by_name(file, case):
    cls, name, value = case
    made, error = outcome(settings_of, cls, {**NEEDED.get(cls, {}), name: value})
    if error is not None:
        # A value that is good by itself may not go with the others.
        names = (name, name.replace("_", "-"))
        assert any(one in str(error) for one in names) or error.code in ("conflict", "missing")
        return
    plain = {key: one for key, one in dataclasses.asdict(made).items() if one is not None}
    file.write_text(to_toml(plain), encoding="utf-8", newline="")
    assert build(cls, read_toml(file), str(file)) == made


@pytest.mark.parametrize("cls", CLASSES, ids=lambda cls: cls.__name__)
def test_every_number_has_bounds_that_a_file_can_hold(cls):
    for setting in fields_of(cls).values():
        hints = {setting.type, *typing.get_args(setting.type)}
        if hints & {int, float}:
            assert setting.bound is not None, setting.name
        if int in hints:
            assert -(2**63) <= setting.bound.low <= setting.bound.high < 2**63, setting.name


# ---- on the command line ------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def filled(tmp_path_factory):
    return Workspace(tmp_path_factory.mktemp("workspace")).fill()


@pytest.fixture
def workspace(filled, monkeypatch):
    monkeypatch.setenv("HEADSTART_CACHE", str(filled.cache))
    return filled


TRAINING = [
    *(("learning-rate", value) for value in ("nan", "inf", "-1", "0", "1e18")),
    *(("clip", value) for value in ("nan", "inf", "-1")),
    *(("weight-decay", value) for value in ("nan", "inf")),
    *(("layer-decay", value) for value in ("nan", "-3")),
    *(("warmup", value) for value in ("nan", "7")),
    *(("batch-tokens", value) for value in ("-1", "1000000000000")),
    *(("accumulate", value) for value in ("0", "1000000000000")),
    ("muon-lr", "nan"), ("spike-factor", "inf"), ("cooldown", "9"), ("keep", "-1"), ("norm-epsilon", "nan"),
    ("seed", str(2**64)), ("steps", "9" * 20), ("threads", "100000"), ("vocab", "10000000000"), ("out", ""),
    ("depth", "1000000000"),
]  # fmt: skip


@pytest.mark.parametrize(("flag", "value"), TRAINING)
def test_a_number_that_no_training_can_have_is_refused_before_anything_is_made(workspace, capsys, flag, value):
    out = workspace.path / "refused"
    answer = commands.invoke(capsys, workspace.command("--out", out, f"--{flag}", value))
    assert (answer.code, "Traceback" in answer.err) == (2, False)
    assert flag in answer.err or flag.replace("-", "_") in answer.err
    assert not out.exists()


@pytest.mark.parametrize("batch", ["0", "-1"])
def test_a_batch_of_no_rows_is_refused(workspace, capsys, batch):
    answer = commands.invoke(
        capsys, workspace.command("--out", workspace.path / "no", f"--batch={batch}", None, verb="finetune")
    )
    assert (answer.code, "--batch" in answer.err) == (2, True)


@pytest.mark.parametrize("weight", ["1e300", "nan", "0", "-1"])
def test_a_weight_of_a_file_beyond_reason_is_refused(workspace, capsys, weight):
    corpus = workspace.path / "corpus.txt"
    answer = commands.invoke(
        capsys, ["pretrain", "--corpus", f"{corpus}={weight}", "--out", str(workspace.path / "no")]
    )
    assert (answer.code, "corpus.txt" in answer.err) == (2, True)
    with refused("bad-value", "weight"):
        headstart.pretrain([(corpus, float(weight))], out=workspace.path / "no")


@pytest.mark.parametrize(
    "words",
    [
        "plan --steps -1", "plan --memory nan", "plan --memory 0", "plan --depth 1000000000 --vocab 9",
        "plan --decoder-depth 1000000000 --vocab 9", "plan --batch 99999999999999999999 --vocab 9",
        "plan --tokens 99999999999999999999", "plan --device cpu:99999999999 --vocab 9",
        "study --epochs -1", "study --pretrain-epochs nan", "study --seeds 1000000000",
        "study --demo plain --jobs 99999",
        "explain positions --length 100000", "explain mask --length 100000", "explain cost --lengths 16,1000000000",
        "tokenizer corpus.txt --vocab 10000000000", "generate run text --beam 1000000",
        "generate run text --temperature 1e-40", "generate run text --count 1000000000",
    ],
)  # fmt: skip
def test_a_number_beyond_what_a_verb_can_do_is_refused_at_once(tmp_path, monkeypatch, capsys, words):
    monkeypatch.chdir(tmp_path)
    answer = commands.invoke(capsys, words.split())
    assert (answer.code, "Traceback" in answer.err) == (2, False), answer.err
    assert "fix:" in answer.err


def test_a_word_where_a_study_file_wants_a_number_is_refused_with_the_file(tmp_path, capsys):
    path = tmp_path / "STUDY.toml"
    for text, name in (('[model]\nwidth = "a"', "width"), ("[model]\nwidht = 3", "width"), ("model = 3", "model")):
        path.write_text(f'{text}\n[study]\ndemo = "plain"\n' if "[" in text else text)
        answer = commands.invoke(capsys, ["study", str(path), "--out", str(tmp_path / "out")])
        assert (answer.code, "STUDY.toml" in answer.err, name in answer.err) == (2, True, True), answer.err


# ---- from Python --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "field", ["positions", "norm", "norm_place", "direction", "init", "pooler_activation", "activation"]
)
def test_a_word_that_no_field_of_a_model_has_is_refused_in_python_too(tmp_path, field):
    corpus = tmp_path / "corpus.txt"
    corpus.write_text("\n".join(small.sentences(30)))
    with refused("bad-value", field, "sine"):
        headstart.preset("tiny", vocab=30, **{field: "sine"})
    with refused("bad-value", field, "sine"):
        ModelConfig(**{**SHAPE, field: "sine"})
    for model in ({field: "sine"}, {"model": {field: "sine"}}):
        with refused("bad-value", field, "sine"):
            headstart.pretrain(corpus, out=tmp_path / "run", steps=1, **model)
    with pytest.raises(ValueError, match=field):
        headstart.TextClassifier(model={field: "sine"}, steps=1).fit(["a b", "b c"] * 9, [0, 1] * 9)
    with refused("bad-value", field, "sine"):
        headstart.study(corpus=corpus, train=corpus, out=tmp_path / "study", model={field: "sine"})
    assert not (tmp_path / "run").exists()
    assert not (tmp_path / "study").exists()


# ---- and it trains ------------------------------------------------------------------------------------------

# What would only make the training long, or the model large; their bounds are tested above.
LONG = {
    "steps", "epochs", "time", "vocab", "target_vocab", "width", "depth", "decoder_depth", "ffn", "context", "length",
    "batch_tokens", "batch", "segments", "accumulate", "threads", "device",
}  # fmt: skip
# What names a file, a run or a directory.
FILES = {"tokenizer", "start", "target_tokenizer", "preset"}


@st.composite
def trainable(draw):
    fields = {**fields_of(PretrainSettings), **fields_of(ModelConfig)}
    chosen = draw(
        st.lists(st.sampled_from([n for n in fields if n not in LONG | FILES]), min_size=1, max_size=3, unique=True)
    )
    return {name: draw(values_for(fields[name])) for name in chosen}


@pytest.mark.slow
@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(values=trainable())
def test_what_is_accepted_trains_to_finite_weights_or_fails_by_name(tmp_path_factory, workspace, values):
    out = tmp_path_factory.mktemp("trained") / "run"
    words = {
        **SHAPE,
        "length": 16,
        "batch_tokens": 64,
        "tokenizer": small.tokenizer(),
        "steps": 3,
        "out": out,
        **values,
    }
    machine = choose("cpu", "fp32", 1)
    _, error = outcome(headstart.pretrain, workspace.path / "corpus.txt", machine=machine, **words)
    if error is not None:
        assert error.exit_code == 2 or error.code in ("not-finite", "disk-full"), error
        assert not (out / "result.json").exists()
        return
    assert all(tensor.isfinite().all() for tensor in load(out).model.parameters())
