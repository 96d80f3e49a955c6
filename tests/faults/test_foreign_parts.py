"""Parts of a run that are missing, or that belong to another: refused or passed over, with a remedy that works."""

import json
import os
import re
import shutil
import signal

import checksummed
import commands
import forked
import pytest
import small
from commands import Workspace, run_files
from expected_errors import refused

from headstart.data import token_store
from headstart.errors import IntegrityError, UserError
from headstart.storage.locks import run_lock
from headstart.tokenizers.training import train as train_tokenizer
from headstart.training.loop import train


@pytest.fixture(scope="module")
def known(tmp_path_factory):
    """A workspace with runs of a corpus that ended, and that were killed; and the same of another one."""
    workspace = Workspace(tmp_path_factory.mktemp("known")).fill()
    others = [" ".join(small.sentences(3, seed)) for seed in range(100, 150)]
    (workspace.path / "other.txt").write_text("\n".join(others))
    train_tokenizer(lambda: iter(others), vocab=small.tokenizer().size).tokenizer.save(workspace.path / "other")
    foreign = ("--corpus", workspace.path / "other.txt", "--tokenizer", workspace.path / "other")
    runs = {
        "whole": ("", "pretrain", ()), "killed": ("step@5", "pretrain", ()), "foreign": ("step@5", "pretrain", foreign),
        "tuned": ("", "finetune", ()), "half": ("step@5", "finetune", ()),
    }  # fmt: skip
    for name, (fault, verb, more) in runs.items():
        code = -signal.SIGKILL if fault else 0
        assert workspace.run_to_the_end(*more, verb=verb, fault=fault) == code, workspace.log.read_text()
        workspace.run.rename(workspace.path / name)
    return workspace


@pytest.fixture
def brought(known, monkeypatch):
    """Makes a copy of a run the run of the command."""
    monkeypatch.setenv("HEADSTART_CACHE", str(known.cache))

    def bring(name):
        shutil.rmtree(known.run, ignore_errors=True)
        return shutil.copytree(known.path / name, known.run)

    return bring


@pytest.fixture
def invoke(capsys):
    return lambda command: commands.invoke(capsys, command)


# ---- checkpoints of another run -----------------------------------------------------------------------------------


def test_a_checkpoint_of_another_run_is_passed_over(known, brought, invoke):
    brought("killed")
    source = known.path / "foreign" / "checkpoints" / "step-00000004"
    shutil.copytree(source, known.run / "checkpoints" / "step-00000004", dirs_exist_ok=True)
    answer = invoke(known.command())
    said = " ".join(answer.err.split())
    assert answer.code == 0
    assert re.search(r"step 4 cannot be used.*of another run, with other data.fingerprint, model.tokenizer", said)
    assert "resuming from step 2" in said
    assert run_files(known.run) == run_files(known.path / "whole")


def test_where_all_checkpoints_are_of_another_run_it_is_refused_and_begins_anew_without_them(known, brought, invoke):
    brought("killed")
    shutil.rmtree(known.run / "checkpoints")
    shutil.copytree(known.path / "foreign" / "checkpoints", known.run / "checkpoints")
    for command in (known.command(), ["embed", str(known.run), str(known.path / "rows.tsv")]):
        answer = invoke(command)
        assert answer.code == 3
        assert f"delete {known.run / 'checkpoints'}" in answer.err or "delete this directory" in answer.err
    shutil.rmtree(known.run / "checkpoints")
    assert invoke(known.command()).code == 0
    assert run_files(known.run) == run_files(known.path / "whole")


def test_another_seed_makes_another_run(known, brought, invoke):
    """Even where text and tokenizer are the same."""
    brought("killed")
    assert known.run_to_the_end("--seed", 1, "--out", known.path / "seed", "--steps", 4) == 0
    shutil.rmtree(known.run / "checkpoints")
    shutil.move(known.path / "seed" / "checkpoints", known.run / "checkpoints")
    assert invoke(known.command()).code == 3


# ---- the labels of a run ------------------------------------------------------------------------------------------


def with_labels_swapped(run):
    """And with a checksum that belongs to them."""
    file = run / "config.toml"
    text = file.read_text().partition("\n\n")[2]
    swapped = re.sub(r'label_names = \["(\w+)", "(\w+)"\]', r'label_names = ["\2", "\1"]', text)
    assert swapped != text
    file.write_text(checksummed.sealed(swapped))


@pytest.mark.parametrize("name", ["tuned", "half"])
def test_labels_that_were_swapped_do_not_swap_predictions(known, brought, invoke, name):
    run = brought(name)
    before = (run / "config.toml").read_bytes()
    (known.path / "texts.txt").write_text("une belle histoire\n")
    predict = ["predict", str(run), str(known.path / "texts.txt")]
    answered = invoke(predict)
    assert answered.code == 0
    with_labels_swapped(run)
    answer = invoke(predict)
    assert (answer.code, answer.out) == (3, "")
    assert ("config.toml" if name == "tuned" else "label_names") in answer.err
    again = known.command(verb="finetune")
    answer = invoke(again)
    assert answer.code == 3
    assert f"delete {run / 'config.toml'}" in answer.err
    (run / "config.toml").unlink()  # as the message says
    assert invoke(again).code == 0
    assert (run / "config.toml").read_bytes() == before
    label = json.loads(answered.out)["label"]
    assert name == "half" or json.loads(invoke(predict).out)["label"] == label


def test_a_finished_run_does_not_say_that_all_is_well_where_its_labels_were_swapped(known, brought, invoke):
    with_labels_swapped(brought("tuned"))
    for more in ((), ("--override-resume", None)):
        answer = invoke(known.command(*more, verb="finetune"))
        assert answer.code == 3
        assert "config.toml" in answer.err


# ---- config.toml and tokenizer.json -------------------------------------------------------------------------------


def swap_two_ids(file):
    spec = json.loads(file.read_text())
    vocabulary = spec["model"]["vocab"]
    first, second = [piece for piece in vocabulary if len(piece) > 2][:2]
    vocabulary[first], vocabulary[second] = vocabulary[second], vocabulary[first]
    file.write_text(json.dumps(spec))


DAMAGES = {
    "deleted": lambda file: file.unlink(),
    "emptied": lambda file: file.write_bytes(b""),
    "cut": lambda file: file.write_bytes(file.read_bytes()[: file.stat().st_size // 2]),
    "steps": lambda file: file.write_text(re.sub(r"(?m)^steps = 6$", "steps = 7", file.read_text())),
    "a token": swap_two_ids,
}


@pytest.mark.parametrize("name", ["whole", "killed"])
@pytest.mark.parametrize(
    ("file", "damage"),
    [(file, damage) for file in ("config.toml", "tokenizer.json") for damage in ("deleted", "emptied", "cut")]
    + [("config.toml", "steps"), ("tokenizer.json", "a token")],
)
def test_a_lost_part_of_a_run_is_made_again(known, brought, invoke, name, file, damage):
    """Either by the run's own command at once, or once what is named was deleted."""
    path = brought(name) / file
    before = path.read_bytes()
    DAMAGES[damage](path)
    assert not path.exists() or path.read_bytes() != before
    answer = invoke(["embed", str(known.run), str(known.path / "rows.tsv")])
    assert answer.code == 3
    assert str(path) in answer.err or "no config.toml" in answer.err
    answer = invoke(known.command())
    if answer.code:
        assert answer.code == 3
        assert f"delete {path}" in answer.err
        path.unlink()
        answer = invoke(known.command())
    assert answer.code == 0, answer.err
    assert path.read_bytes() == before
    assert run_files(known.run) == run_files(known.path / "whole")


@pytest.mark.parametrize("damage", ["emptied", "a token"])
def test_a_tokenizer_that_the_run_has_trained_is_trained_again(known, tmp_path, invoke, damage):
    """It was not given: what lies in the run is the only one."""
    command = known.command("--steps", 2, "--out", tmp_path / "run", "--vocab", 300)
    place = command.index("--tokenizer")
    del command[place : place + 2]
    assert invoke(command).code == 0
    file = tmp_path / "run" / "tokenizer.json"
    before = file.read_bytes()
    DAMAGES[damage](file)
    answer = invoke(command)
    assert answer.code == 3
    assert f"delete {file}" in answer.err
    file.unlink()
    assert invoke(command).code == 0
    assert file.read_bytes() == before


def test_a_config_of_another_run_is_told_from_another_command(known, brought, invoke):
    brought("killed")
    shutil.copy(known.path / "foreign" / "config.toml", known.run)
    answer = invoke(known.command())
    assert answer.code == 3
    assert f"delete {known.run / 'config.toml'}" in answer.err
    (known.run / "config.toml").unlink()
    assert invoke(known.command()).code == 0
    assert run_files(known.run) == run_files(known.path / "whole")


def test_without_config_and_checkpoints_another_command_does_not_overwrite_a_finished_run(known, brought, invoke):
    brought("whole")
    shutil.rmtree(known.run / "checkpoints")
    (known.run / "config.toml").unlink()
    answer = invoke(known.command("--seed", 9))
    assert answer.code == 3
    assert f"delete {known.run}:" in answer.err
    assert invoke(known.command()).code == 0
    assert run_files(known.run) == run_files(known.path / "whole")


# ---- the best weights of a run ------------------------------------------------------------------------------------


PATIENT = {"patience": 9, "evaluate_every": 2, "save_every": 4, "schedule": "constant"}


def patient(path, steps):
    training = small.training(path, steps=steps, **PATIENT, optimizer={"learning_rate": 5.0})
    state, _ = train(training)
    return state, small.digest(training)


@pytest.fixture(scope="module")
def whole_patient(tmp_path_factory):
    return patient(tmp_path_factory.mktemp("patient"), 12)


@pytest.mark.parametrize("loss", ["deleted", "a bit", "another model's", "its directory"])
def test_best_weights_that_are_lost_are_refused_and_the_remedy_helps(tmp_path, whole_patient, loss):
    state, _ = patient(tmp_path, 8)
    assert 0 < state.best_step < 8  # else the test tests nothing
    best = tmp_path / "best" / f"step-{state.best_step:08d}"
    if loss == "its directory":
        shutil.rmtree(tmp_path / "best")
    elif loss == "deleted":
        shutil.rmtree(best)
    elif loss == "a bit":
        raw = bytearray((best / "model.safetensors").read_bytes())
        raw[-1] ^= 1
        (best / "model.safetensors").write_bytes(raw)
    else:
        train(small.training(tmp_path / "other", steps=state.best_step, **{**PATIENT, "patience": 0}, seed=3))
        shutil.rmtree(best)
        shutil.copytree(tmp_path / "other" / "checkpoints" / best.name, best)
    with refused("corrupt", str(best), str(tmp_path / "checkpoints"), by=IntegrityError):
        patient(tmp_path, 12)
    shutil.rmtree(tmp_path / "best", ignore_errors=True)  # as the message says
    shutil.rmtree(tmp_path / "checkpoints")
    again, digest = patient(tmp_path, 12)
    assert (digest, again.best_step) == (whole_patient[1], whole_patient[0].best_step)


def test_an_older_checkpoint_that_is_fallen_back_on_has_its_best_weights(tmp_path):
    def trained(path, steps):
        training = small.training(path, steps=steps, **PATIENT)
        return train(training)[0].best_step, small.digest(training)

    whole = trained(tmp_path / "whole", 12)
    assert trained(tmp_path / "run", 8)[0] == 8  # it gets better and better
    assert {path.name for path in (tmp_path / "run/best").iterdir()} == {"step-00000002", "step-00000008"}
    shutil.rmtree(tmp_path / "run/checkpoints/step-00000008")
    assert trained(tmp_path / "run", 12) == whole


def test_a_patience_that_is_new_does_not_promise_a_best_that_nobody_saved(tmp_path):
    train(small.training(tmp_path, steps=8, **{**PATIENT, "patience": 0}, optimizer={"learning_rate": 5.0}))
    state, _ = patient(tmp_path, 12)
    assert state.best_step > 8  # others that were better are forgotten
    assert (tmp_path / "best" / f"step-{state.best_step:08d}").is_dir()


# ---- links --------------------------------------------------------------------------------------------------------


def test_a_lock_that_is_a_link_is_refused_and_what_it_points_to_is_not_touched(known, tmp_path, invoke):
    target = tmp_path / "mine.txt"
    target.write_text("not a lock")
    (tmp_path / "run").mkdir()
    (tmp_path / "run/lock").symlink_to(target)
    with refused("no-file", str(tmp_path / "run/lock"), "delete the link"), run_lock(tmp_path / "run"):
        pass
    assert invoke(known.command("--out", tmp_path / "run")).code == 2
    assert target.read_text() == "not a lock"


# ---- the token store ----------------------------------------------------------------------------------------------


def overwritten(path):
    """The same file with other ids, of the same size, as by `cp` of another one."""
    raw = bytearray(path.read_bytes())
    start = int.from_bytes(raw[8:16], "little")
    raw[start:] = raw[start:][::-1]
    with path.open("r+b") as file:
        file.write(raw)
    os.utime(path)


def test_a_token_store_that_is_overwritten_during_a_run_spoils_nothing(known, monkeypatch, invoke):
    monkeypatch.setattr(token_store, "MOST_IN_MEMORY", 0)
    cache = known.path / "cache of its own"
    monkeypatch.setenv("HEADSTART_CACHE", str(cache))
    shutil.rmtree(known.run, ignore_errors=True)
    check, done = token_store.TokenStore.check, []

    def overwrite_first(self):
        if not done and (known.run / "checkpoints" / "step-00000002").exists():
            for store in (cache / "stores").glob("*.tokens"):
                done.append(store)
                overwritten(store)
        check(self)

    monkeypatch.setattr(token_store.TokenStore, "check", overwrite_first)
    answer = invoke(known.command())
    assert done
    assert answer.code == 3
    assert "overwritten while it was read" in answer.err
    assert [path.name for path in (known.run / "checkpoints").iterdir()] == ["step-00000002"]
    again = invoke(known.command())  # as the message says
    assert again.code == 0
    assert "building it again" in again.err
    assert run_files(known.run) == run_files(known.path / "whole")


def test_a_token_store_that_is_touched_or_replaced_by_its_like_disturbs_nobody(known, brought, monkeypatch, invoke):
    monkeypatch.setattr(token_store, "MOST_IN_MEMORY", 0)
    brought("killed")
    check = token_store.TokenStore.check

    def touch_first(self):
        os.utime(self.path)
        check(self)

    monkeypatch.setattr(token_store.TokenStore, "check", touch_first)
    assert invoke(known.command()).code == 0
    assert run_files(known.run) == run_files(known.path / "whole")


# Where there is a checkpoint, the stores are cut after each look at them.
CUT_IN_PLACE = """
import os, pathlib, sys
from headstart.cli.main import run
from headstart.data import token_store
token_store.MOST_IN_MEMORY, check = int(os.environ["MOST_IN_MEMORY"]), token_store.TokenStore.check
def check_then_cut(self):
    check(self)
    if pathlib.Path(os.environ["RUN"], "checkpoints").exists():
        os.truncate(self.path, 0)
token_store.TokenStore.check = check_then_cut
sys.exit(run(sys.argv[1:]))
"""


@pytest.mark.parametrize(("most", "code"), [(token_store.MOST_IN_MEMORY, 0), (0, -signal.SIGBUS)])
def test_a_token_store_that_is_cut_during_a_run_is_built_again(known, tmp_path, monkeypatch, invoke, most, code):
    """A small one is in memory. A large one ends the process; what was saved is as it was."""
    monkeypatch.setenv("HEADSTART_CACHE", str(tmp_path))
    shutil.rmtree(known.run, ignore_errors=True)
    where = {"HEADSTART_CACHE": str(tmp_path), "RUN": str(known.run), "MOST_IN_MEMORY": str(most)}
    child = forked.start(CUT_IN_PLACE, *known.command(), output=known.log, environment=where)
    assert commands.exit_code_of(child) == code, known.log.read_text()
    assert {store.stat().st_size for store in tmp_path.glob("stores/*.tokens")} == {0}
    answer = invoke(known.command())
    assert answer.code == 0, answer.err
    assert "building it again" in answer.err
    assert ("nothing to do" if code == 0 else "resuming from step 4") in answer.err
    assert run_files(known.run) == run_files(known.path / "whole")


# ---- rows of test in train ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(("verb", "rows"), [("finetune", "rows.tsv"), ("translation", "pairs.tsv")])
def test_rows_of_test_in_train_are_said_before_training(known, tmp_path, invoke, monkeypatch, verb, rows):
    def refuse(training):
        raise UserError("it would train now")

    monkeypatch.setattr("headstart.training.fit.train", refuse)
    file = known.path / rows
    answer = invoke(known.command("--valid", file, "--test", file, "--steps", 1, "--out", tmp_path / "run", verb=verb))
    said = " ".join(answer.err.split())
    assert answer.code == 2
    assert "it would train now" in said
    for of, other in (("test", "train"), ("test", "valid"), ("valid", "train")):
        assert f"60 of 60 {of} rows are in {other} too" in said


def test_rows_that_are_in_one_set_alone_are_not_said(known, tmp_path, invoke):
    rows = [f"{text} Ah {number} !\toui" for number, text in enumerate(small.sentences(9, seed=99))]
    (tmp_path / "test.tsv").write_text("\n".join(["text\tlabel", *rows]))
    more = ("--test", tmp_path / "test.tsv", "--steps", 1, "--out", tmp_path / "run")
    answer = invoke(known.command(*more, verb="finetune"))
    assert answer.code == 0
    assert "too, the first at" not in answer.err
