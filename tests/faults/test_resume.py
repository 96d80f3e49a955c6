"""Starting a run again: what goes on, what is mended, and what is refused and why."""

import dataclasses
import json
import re
import shutil
import signal

import checksummed
import commands
import pytest
import small
import torch
from commands import STEPS, Workspace, run_files

from headstart.runs import checkpoint
from headstart.tokenizers.training import train as train_tokenizer
from headstart.training.loop import train

OVERRIDE = ("--override-resume", None)


@pytest.fixture(scope="module")
def ended_runs(tmp_path_factory):
    """A workspace with a run that ended, and one that was killed after five of its six steps."""
    workspace = Workspace(tmp_path_factory.mktemp("known")).fill()
    for fault, code, name in (("", 0, "finished"), ("step@5", -signal.SIGKILL, "killed")):
        assert workspace.run_to_the_end(fault=fault) == code, workspace.log.read_text()
        workspace.run.rename(workspace.path / name)
    return workspace


@pytest.fixture
def finished(ended_runs, monkeypatch):
    return brought(ended_runs, "finished", monkeypatch)


@pytest.fixture
def killed(ended_runs, monkeypatch):
    return brought(ended_runs, "killed", monkeypatch)


def brought(ended_runs, name, monkeypatch):
    """The known workspace as it was, with a copy of the named run."""
    monkeypatch.setenv("HEADSTART_CACHE", str(ended_runs.cache))
    ended_runs.fill()
    shutil.rmtree(ended_runs.run, ignore_errors=True)
    shutil.copytree(ended_runs.path / name, ended_runs.run)
    return ended_runs


@pytest.fixture
def invoke(capsys):
    return lambda command: commands.invoke(capsys, command)


def weights(run):
    return (run / "weights.safetensors").read_bytes()


def same_as_finished(workspace):
    return run_files(workspace.run) == run_files(workspace.path / "finished")


# ---- going on ---------------------------------------------------------------------------------------------


def test_the_same_command_goes_on_and_says_from_where(killed, invoke):
    answer = invoke(killed.command())
    assert answer.code == 0
    assert "resuming from step 4 of 6" in answer.err
    assert same_as_finished(killed)


def test_a_finished_run_says_so_and_is_left_alone(finished, invoke):
    before = {path: path.stat().st_mtime_ns for path in finished.run.rglob("*") if path.name != "lock"}
    answer = invoke([*finished.command(), "--json"])
    assert answer.code == 0
    assert "finished at step 6; nothing to do" in answer.err
    assert json.loads(answer.out)["step"] == STEPS
    assert all(path.stat().st_mtime_ns == time for path, time in before.items() if path.is_file())


def test_more_steps_extend_a_finished_run(finished, invoke):
    answer = invoke([*finished.command("--steps", 9), "--json"])
    assert (answer.code, json.loads(answer.out)["step"]) == (0, 9)
    lines = [json.loads(line) for line in (finished.run / "metrics.jsonl").read_text().splitlines()]
    assert [line["step"] for line in lines if "event" not in line] == list(range(1, 10))
    assert invoke(finished.command("--steps", 9)).err.count("nothing to do") == 1


def test_fewer_steps_need_an_override_and_then_it_ends_there(killed, invoke):
    fewer = ("--steps", 5)
    assert invoke(killed.command(*fewer)).code == 2
    answer = invoke([*killed.command(*fewer, *OVERRIDE), "--json"])
    assert (answer.code, json.loads(answer.out)["step"]) == (0, 5)


@pytest.mark.parametrize("change", ["missing", "a bit", "half"])
def test_final_weights_that_were_lost_are_made_again(finished, invoke, change):
    file, whole = finished.run / "weights.safetensors", weights(finished.run)
    broken = {"missing": b"", "a bit": whole[:-1] + bytes([whole[-1] ^ 1]), "half": whole[: len(whole) // 2]}
    file.write_bytes(broken[change])
    if change == "missing":
        file.unlink()
    answer = invoke(finished.command())
    assert answer.code == 0
    assert "made again" in answer.err
    assert same_as_finished(finished)


def test_final_weights_whose_result_was_lost_are_not_passed_over(finished, invoke):
    """With --patience, or an average, the last checkpoint has others."""
    (finished.run / "result.json").unlink()
    answer = invoke(["generate", str(finished.run), "le"])
    assert answer.code == 3
    assert f"{finished.run}: has its final weights and no result.json" in " ".join(answer.err.split())
    assert invoke(finished.command()).code == 0  # as the message says
    assert same_as_finished(finished)


def test_a_run_that_is_extended_is_read_from_its_checkpoint_meanwhile(finished, invoke):
    more = ("--steps", 9, "--save-every", 1)
    assert finished.run_to_the_end(*more, fault="step@2") == -signal.SIGKILL
    assert invoke(["generate", str(finished.run), "le"]).code == 0
    assert invoke(finished.command(*more)).code == 0


def test_what_dead_writers_left_is_cleared_away(killed, invoke):
    left = ["checkpoints/.tmp-step-00000006-1/model.safetensors", "best/.tmp-step-00000004-1/x", ".tmp-weights-1",
            ".tmp-config.toml-1", ".tmp-result.json-1", ".tmp-tokenizer.json-1"]  # fmt: skip
    for name in left:
        (killed.run / name).parent.mkdir(parents=True, exist_ok=True)
        (killed.run / name).write_bytes(b"half")
    assert invoke(killed.command()).code == 0
    assert list(killed.run.rglob(".*")) == []
    assert same_as_finished(killed)


def test_the_cache_may_be_lost_or_damaged(killed, invoke):
    stores = list((killed.cache / "stores").glob("*.tokens"))
    for store in stores:
        raw = bytearray(store.read_bytes())
        raw[-1] ^= 1
        store.write_bytes(raw)
    assert stores
    assert invoke(killed.command()).code == 0
    assert same_as_finished(killed)
    shutil.rmtree(killed.cache)
    shutil.rmtree(killed.run)
    shutil.copytree(killed.path / "killed", killed.run)
    assert invoke(killed.command()).code == 0
    assert same_as_finished(killed)


def test_a_skipped_update_is_skipped_again(tmp_path):
    """A bad loss at a step that a kill takes back: it is met again, and skipped again."""

    class Bad:
        def __init__(self, inner):
            self.inner, self.step = inner, None

        def __getattr__(self, name):
            return getattr(self.inner, name)

        def batch_at(self, seed, step):
            self.step = step
            return self.inner.batch_at(seed, step)

        def loss(self, model, batch):
            loss = self.inner.loss(model, batch)
            return dataclasses.replace(loss, sum=loss.sum * float("nan")) if self.step == 9 else loss

    def one(directory, stop_at=0):
        found = small.training(directory)
        found.objective = Bad(found.objective)

        def stop(progress):
            if progress.step == stop_at:
                raise KeyboardInterrupt

        found.on_step = stop
        return found

    whole, cut, again = one(tmp_path / "whole"), one(tmp_path / "cut", stop_at=11), one(tmp_path / "cut")
    state, _ = train(whole)
    with pytest.raises(KeyboardInterrupt):
        train(cut)
    assert train(again)[0] == state
    assert state.skipped == 1
    assert small.digest(again) == small.digest(whole)
    assert (tmp_path / "cut/metrics.jsonl").read_bytes() == (tmp_path / "whole/metrics.jsonl").read_bytes()


def test_without_an_average_the_old_one_is_forgotten(tmp_path):
    """Going on without the average that the run had (which needs an override) ends in the last weights."""
    train(small.training(tmp_path, steps=6, average="ema"))
    again = small.training(tmp_path, steps=9)
    train(again)
    last, _ = checkpoint.latest(tmp_path / "checkpoints")
    assert small.digest(again) == checkpoint.weights_digest(last.model)


# ---- broken checkpoints -----------------------------------------------------------------------------------


def test_a_broken_checkpoint_is_named_and_the_one_before_is_used(killed, invoke):
    file = killed.run / "checkpoints/step-00000004/optimizer.safetensors"
    file.write_bytes(file.read_bytes()[:-1])
    answer = invoke(killed.command())
    assert answer.code == 0
    assert "checkpoint of step 4 cannot be used" in answer.err.replace("\n", " ")
    assert str(file) in answer.err.replace("\n", "")
    assert "resuming from step 2 of 6" in answer.err
    assert same_as_finished(killed)


def test_none_good_exits_3(killed, invoke):
    for path in (killed.run / "checkpoints").iterdir():
        (path / "state.json").write_text("{}")
    answer = invoke(killed.command())
    assert answer.code == 3
    assert "no checkpoint can be used" in answer.err


def test_a_broken_one_does_not_push_out_the_good_ones(tmp_path):
    """Step 10 cannot be used, the run goes on from 5 and saves 6: that one must stay, whatever is kept."""

    def save(step, keep):
        checkpoint.save(tmp_path, step, {"a": torch.full((9,), float(step))}, {}, {"step": step}, {}, keep)

    for keep in (1, 2):
        for step in (5, 10):
            save(step, keep=2)
        (tmp_path / "step-00000010/state.json").write_text("{}")
        save(6, keep)
        found, passed_over = checkpoint.latest(tmp_path)
        assert (found.step, passed_over) == (6, [])
        assert len(list(tmp_path.iterdir())) == keep


# ---- another command, other data, another tokenizer, another machine ---------------------------------------


@pytest.mark.parametrize(
    ("change", "difference"),
    [
        (("--dropout", 0.2), "model.dropout was 0.1, is 0.2"),
        (("--seed", 1), "loop.seed was 0, is 1"),
        (("--accumulate", 1), "loop.accumulate was 2, is 1"),
        (("--steps", 5), "loop.steps was 6, is 5"),
    ],
)
def test_another_setting_is_refused_with_the_difference(killed, invoke, change, difference):
    before = sorted(path for path in killed.run.rglob("*"))
    answer = invoke(killed.command(*change))
    assert answer.code == 2
    assert difference in answer.err
    assert "--override-resume" in answer.err
    assert sorted(path for path in killed.run.rglob("*")) == before
    assert invoke(killed.command()).code == 0
    assert same_as_finished(killed)


def test_an_override_goes_on_and_is_remembered(killed, invoke):
    other = ("--dropout", 0.2)
    answer = invoke(killed.command(*other, *OVERRIDE))
    assert answer.code == 0
    assert "resuming from step 4" in answer.err
    assert invoke(killed.command(*other)).code == 0
    assert invoke(killed.command()).code == 2


def test_killed_before_its_first_save_an_override_has_to_be_given_again_and_the_message_says_so(killed, invoke):
    other = ("--dropout", 0.2)
    assert killed.run_to_the_end(*other, *OVERRIDE, fault="step@1") == -signal.SIGKILL
    answer = invoke(killed.command(*other))
    assert answer.code == 3
    assert "of another run, with other model.dropout" in " ".join(answer.err.split())
    assert "--override-resume" in answer.err.partition("fix:")[2]
    answer = invoke(killed.command(*other, *OVERRIDE))  # as the message says
    assert answer.code == 0
    assert "resuming from step 4" in answer.err
    assert invoke(killed.command(*other)).code == 0


def test_how_often_and_how_many_are_saved_may_change(killed, invoke):
    assert invoke(killed.command("--save-every", 3, "--keep", 1)).code == 0
    assert weights(killed.run) == weights(killed.path / "finished")
    assert [path.name for path in (killed.run / "checkpoints").iterdir()] == ["step-00000006"]


def change_a_byte(path):
    raw = bytearray(path.read_bytes())
    raw[200] = ord("x") if raw[200] != ord("x") else ord("y")
    path.write_bytes(raw)


def append_a_line(path):
    with path.open("a") as file:
        file.write("\nune belle histoire")


def test_the_same_text_by_another_path_is_the_same_run(killed, invoke):
    moved = killed.path / "moved.txt"
    (killed.path / "corpus.txt").rename(moved)
    command = [str(moved) if word == str(killed.path / "corpus.txt") else word for word in killed.command()]
    answer = invoke(command)
    assert answer.code == 0, answer.err
    assert weights(killed.run) == weights(killed.path / "finished")
    append_a_line(moved)
    answer = invoke(command)
    assert answer.code == 2
    assert "data.fingerprint was" in answer.err


@pytest.mark.parametrize("change", [change_a_byte, append_a_line])
def test_a_corpus_that_changed_is_noticed(killed, invoke, change):
    change(killed.path / "corpus.txt")
    answer = invoke(killed.command())
    assert answer.code == 2
    assert "data.fingerprint was" in answer.err
    assert invoke(killed.command(*OVERRIDE)).code == 0
    config = (killed.run / "config.toml").read_text()
    assert config != (killed.path / "finished/config.toml").read_text()


def test_a_label_that_changed_is_noticed(ended_runs, tmp_path, invoke):
    workspace = Workspace(tmp_path).fill()
    assert invoke(workspace.command("--steps", 2, verb="finetune")).code == 0
    rows = (workspace.path / "rows.tsv").read_text()
    (workspace.path / "rows.tsv").write_text(rows.replace("\tnon", "\toui", 1))
    answer = invoke(workspace.command("--steps", 4, verb="finetune"))
    assert answer.code == 2
    assert "data.fingerprint was" in answer.err


def test_another_tokenizer_on_the_command_line_is_refused_with_the_difference(killed, invoke):
    other = train_tokenizer(lambda: iter(small.sentences(300, seed=9)), vocab=300).tokenizer
    other.save(killed.path / "other")
    answer = invoke(killed.command("--tokenizer", killed.path / "other"))
    assert answer.code == 2
    assert "model.tokenizer was" in answer.err
    assert "model.vocab was" in answer.err


def swap_two_ids(file):
    spec = json.loads(file.read_text())
    vocabulary = spec["model"]["vocab"]
    first, second = [piece for piece in vocabulary if len(piece) > 2][:2]
    vocabulary[first], vocabulary[second] = vocabulary[second], vocabulary[first]
    file.write_text(json.dumps(spec))


def train_another(file):
    train_tokenizer(lambda: iter(small.sentences(300)), vocab=300).tokenizer.save(file.parent)


@pytest.mark.parametrize("change", [swap_two_ids, train_another])
def test_a_run_whose_tokenizer_was_exchanged_is_not_used(killed, invoke, change):
    shutil.copytree(killed.path / "finished", killed.path / "start", dirs_exist_ok=True)
    change(killed.path / "start/tokenizer.json")
    change(killed.run / "tokenizer.json")
    commands = [
        killed.command("--tokenizer", killed.run),
        killed.command("--start", killed.path / "start", "--tokenizer", None, "--out", killed.path / "next"),
    ]
    commands[1].remove("--tokenizer")
    for command in commands:
        answer = invoke(command)
        assert answer.code == 3, answer.err
        assert re.search(r"tokenizer\.json \([\d,]+ tokens, [0-9a-f]{12}…\) is not the one", answer.err)
    assert invoke(killed.command()).code == 0  # with the right one given
    assert same_as_finished(killed)


def test_another_machine_goes_on_and_both_are_recorded(killed):
    assert killed.run_to_the_end("--threads", 2) == 0
    assert "not bit-exact from here on: threads was 1, is 2" in killed.log.read_text()
    losses = []
    for run in (killed.run, killed.path / "finished"):
        losses.append(json.loads((run / "result.json").read_text())["valid"]["loss"])
    assert losses[0] == pytest.approx(losses[1], abs=1e-4)
    threads = {}
    for path in (killed.run / "checkpoints").iterdir():
        threads[path.name] = json.loads((path / "manifest.json").read_text())["machine"]["threads"]
    assert threads == {"step-00000004": "1", "step-00000006": "2"}


@pytest.mark.parametrize(
    ("fact", "before"), [("precision", "bf16"), ("torch", "2.0.0"), ("numpy", "1.0.0"), ("device", "a GPU")]
)
def test_what_another_version_or_precision_began_goes_on_and_says_so(killed, invoke, fact, before):
    """As a checkpoint that was written elsewhere: its manifest tells of another machine."""
    for path in (killed.run / "checkpoints").iterdir():
        manifest = checksummed.read(path / "manifest.json")
        now, manifest["machine"][fact] = manifest["machine"][fact], before
        checksummed.write(path / "manifest.json", manifest)
    answer = invoke(killed.command())
    assert answer.code == 0
    assert f"not bit-exact from here on: {fact} was {before}, is {now}" in answer.err
    assert answer.err.count("not bit-exact") == 1
    facts = [
        json.loads((path / "manifest.json").read_bytes())["machine"][fact]
        for path in sorted((killed.run / "checkpoints").iterdir())
    ]
    assert facts == [before, now]
    assert weights(killed.run) == weights(killed.path / "finished")  # only the manifest was of elsewhere
