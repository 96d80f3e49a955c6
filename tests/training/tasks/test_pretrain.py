"""`--corpus F=WEIGHT`: recorded in the run, refused when it changes, the same bytes after a kill."""

import signal

import commands
import numpy as np
import pytest
import tiny_runs
from commands import Workspace, run_files
from expected_errors import refused

import headstart
from headstart.data import cooccurrence
from headstart.runs.directory import RunDirectory
from headstart.runs.load import load
from headstart.training.tasks import pretrain


@pytest.fixture
def workspace(tmp_path, monkeypatch):
    workspace = Workspace(tmp_path).fill()
    monkeypatch.setenv("HEADSTART_CACHE", str(workspace.cache))
    lines = (workspace.path / "corpus.txt").read_text().splitlines()
    (workspace.path / "a.txt").write_text("\n".join(lines[:30]))
    (workspace.path / "b=2.txt").write_text("\n".join(lines[30:]))
    return workspace


@pytest.fixture
def invoke(capsys):
    return lambda command: commands.invoke(capsys, command)


def command(workspace, *corpus, more=()):
    base = workspace.command(*more)
    return [*base[:2], *(str(workspace.path / file) for file in corpus), *base[3:]]


@pytest.mark.parametrize("objective", ["causal", "masked", "masked-nsp"])
def test_weights_are_recorded_and_refused_when_they_change(workspace, invoke, objective):
    more = ("--objective", objective, "--length", 48)
    answer = invoke(command(workspace, "a.txt=2", "b=2.txt", more=more))
    assert answer.code == 0, answer.err
    data = RunDirectory(workspace.run).read_config().data
    assert data.corpus == [str(workspace.path / "a.txt"), str(workspace.path / "b=2.txt")]
    assert data.weights == [2.0, 1.0]
    assert "nothing to do" in invoke(command(workspace, "a.txt=2.0", "b=2.txt", more=more)).err
    answer = invoke(command(workspace, "a.txt=3", "b=2.txt", more=more))
    assert answer.code == 2
    assert "headstart [changed]: " in answer.err
    assert "data.weights was [2.0, 1.0], is [3.0, 1.0]" in answer.err


def test_equal_weights_of_one_are_no_weights(workspace, invoke):
    assert invoke(command(workspace, "a.txt=1", "b=2.txt")).code == 0
    assert RunDirectory(workspace.run).read_config().data.weights == []
    assert "nothing to do" in invoke(command(workspace, "a.txt", "b=2.txt")).err


def test_an_epoch_is_longer_by_what_weighs_more(workspace, invoke):
    steps = {}
    for weight in (1, 3):
        out = workspace.path / f"run-{weight}"
        epoch = [*command(workspace, f"a.txt={weight}", "b=2.txt", more=("--out", out)), "--epochs", "1"]
        at = epoch.index("--steps")
        assert invoke(epoch[:at] + epoch[at + 2 :]).code == 0
        steps[weight] = RunDirectory(out).read_config().loop.steps
    assert 1.7 < steps[3] / steps[1] < 2.3  # the two files are of about one size: 3 + 1 against 1 + 1


def test_a_killed_run_on_weighted_corpora_comes_to_the_same_bytes(workspace, invoke):
    line = command(workspace, "a.txt=2", "b=2.txt=0.5")
    assert invoke(line).code == 0
    workspace.run.rename(workspace.path / "peaceful")
    environment = {"HEADSTART_CACHE": str(workspace.cache), "HEADSTART_FAULT": "step@5"}
    child = commands.forked.start(commands.COMMAND, *line, output=workspace.log, environment=environment)
    assert commands.exit_code_of(child) == -signal.SIGKILL
    assert invoke(line).code == 0
    assert run_files(workspace.run) == run_files(workspace.path / "peaceful")


def test_few_documents_of_different_weight_need_valid(workspace, invoke):
    (workspace.path / "a.txt").write_text("un livre très long\n" * 3)
    (workspace.path / "b=2.txt").write_text("la fin était belle\n" * 3)
    answer = invoke(command(workspace, "a.txt=2", "b=2.txt"))
    assert answer.code == 2
    assert "give --valid" in answer.err


# ---- the first token vectors --------------------------------------------------------------------------------


def test_counted_token_vectors_are_where_a_run_begins(workspace, monkeypatch):
    counted = []

    def token_vectors(stores, vocab, width, threads):
        counted.append(cooccurrence.token_vectors(stores, vocab, width, threads))
        return counted[-1]

    monkeypatch.setattr(pretrain, "token_vectors", token_vectors)
    line = {"steps": 1, "learning_rate": 1e-30, "schedule": "constant", "device": "cpu", "threads": 1, "length": 32}
    first = {}
    for kind in ("random", "cooccurrence"):
        run = workspace.path / kind
        headstart.pretrain(workspace.path / "corpus.txt", out=run, embedding_init=kind, **line, **tiny_runs.SHAPE)
        first[kind] = load(run).model.base.embedding.tokens.weight.detach().numpy()
    (vectors,) = counted
    known = vectors.any(axis=1)
    assert 50 < known.sum() < len(known)
    assert np.allclose(first["cooccurrence"][known], 0.1 * vectors[known], atol=1e-6)
    assert np.array_equal(first["cooccurrence"][~known], first["random"][~known])


def test_a_finished_run_without_checkpoints_is_made_again_with_counted_vectors(workspace, invoke):
    line = command(workspace, "a.txt", more=("--embedding-init", "cooccurrence", "--keep", 0))
    assert invoke(line).code == 0
    weights = workspace.run / "weights.safetensors"
    before = weights.read_bytes()
    weights.write_bytes(before[:-1] + bytes([before[-1] ^ 1]))
    assert invoke(line).code == 0
    assert weights.read_bytes() == before


def test_a_killed_run_with_counted_token_vectors_comes_to_the_same_bytes(workspace, invoke):
    line = command(workspace, "a.txt", more=("--embedding-init", "cooccurrence"))
    assert invoke(line).code == 0
    assert RunDirectory(workspace.run).read_config().embedding_init == "cooccurrence"
    workspace.run.rename(workspace.path / "peaceful")
    environment = {"HEADSTART_CACHE": str(workspace.cache), "HEADSTART_FAULT": "step@5"}
    child = commands.forked.start(commands.COMMAND, *line, output=workspace.log, environment=environment)
    assert commands.exit_code_of(child) == -signal.SIGKILL
    assert invoke(line).code == 0
    assert run_files(workspace.run) == run_files(workspace.path / "peaceful")


def test_a_start_brings_its_token_vectors(workspace):
    with refused("conflict", "--embedding-init", "--start"):
        start = tiny_runs.path_of("causal")
        headstart.pretrain(workspace.path / "corpus.txt", start=start, embedding_init="cooccurrence")
