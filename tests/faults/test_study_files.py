"""The files of a study that were cut, edited or swapped: exit 3 with the file and a remedy, after which the same
command ends with the same study.json."""

import dataclasses
import json
import shutil
from pathlib import Path

import checksummed
import numpy as np
import pytest
from small_study import MODEL, small_config, write_files

import headstart
from headstart.errors import IntegrityError
from headstart.report.page import write_report

CHANGES = {"arms": ["tfidf", "lsa", "finetuned", "combined"], "budgets": [10], "seeds": 1}
BASE, TUNED, MIXED = "pretrain/causal-s0", "trials/finetuned-b10-s0", "trials/combined-b10-s0"


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    return write_files(tmp_path_factory.mktemp("files"))


def run(files, out, log=lambda line: None, **changes):
    return headstart.study(small_config(files, **{**CHANGES, **changes}), out=out, model=MODEL, jobs=1, log=log)


@pytest.fixture(scope="module")
def finished(files, tmp_path_factory):
    directory = tmp_path_factory.mktemp("study") / "finished"
    run(files, directory)
    return directory


@pytest.fixture
def study(finished, tmp_path):
    """A copy that a test may damage, without its end."""
    copy = shutil.copytree(finished, tmp_path / "study")
    (copy / "study.json").unlink()
    return copy


def cut(file):
    file.write_bytes(file.read_bytes()[:-20])


def nothing(file):
    file.write_bytes(b"")


def another_type(file):
    file.write_bytes(b"[]\n")


def a_bit(file):
    raw = bytearray(file.read_bytes())
    raw[len(raw) // 2] ^= 1
    file.write_bytes(raw)


def inverted(file):
    data = json.loads(file.read_bytes())
    data["predictions"] = [1 - said for said in data["predictions"]]
    file.write_bytes(json.dumps(data).encode())


def without_file(file):
    file.unlink()


def another_token(file):
    spec = json.loads(file.read_bytes())
    vocabulary = spec["model"]["vocab"]
    first, second = [piece for piece in vocabulary if len(piece) > 2][:2]
    vocabulary[first], vocabulary[second] = vocabulary[second], vocabulary[first]
    file.write_text(json.dumps(spec))


def of_another(file):
    checksummed.change(file, seed=1)


def refused(files, study, *names):
    """What the study says that is to be deleted."""
    with pytest.raises(IntegrityError) as caught:
        run(files, study)
    assert caught.value.exit_code == 3
    said = str(caught.value)
    assert "Traceback" not in said
    for name in names:
        assert str(study / name) in said
    assert not (study / "study.json").exists()
    return said


def same(study, finished):
    return (study / "study.json").read_bytes() == (finished / "study.json").read_bytes()


DAMAGED = [
    ("data/leaks.json", cut, "data/leaks.json"),
    ("data/leaks.json", another_type, "data/leaks.json"),
    (f"{BASE}/result.json", cut, BASE),
    (f"{BASE}/result.json", another_type, BASE),
    (f"{TUNED}/trial.json", nothing, TUNED),
    (f"{TUNED}/trial.json", inverted, TUNED),
    (f"{TUNED}/trial.json", of_another, TUNED),
    ("trials/tfidf-b10-s0/trial.json", a_bit, "trials/tfidf-b10-s0"),
    ("study.toml", a_bit, "study.toml"),
    ("study.toml", nothing, "study.toml"),
    ("tokenizer/tokenizer.json", cut, "tokenizer"),
    ("tokenizer/tokenizer.json", without_file, "tokenizer"),
    ("tokenizer/tokenizer.json", another_token, "tokenizer"),
    (f"{BASE}/config.toml", a_bit, BASE),
    (f"{BASE}/config.toml", nothing, BASE),
    (f"{BASE}/config.toml", without_file, BASE),
]


@pytest.mark.parametrize(("file", "damage", "remedy"), DAMAGED)
def test_a_damaged_file_is_named_with_what_to_delete(files, study, file, damage, remedy):
    damage(study / file)
    said = refused(files, study, *([file] if (study / file).exists() else []))
    assert f"delete {study / remedy}" in said or (remedy == file and "delete it" in said)


@pytest.mark.slow
@pytest.mark.parametrize("remedy", sorted({remedy for *_, remedy in DAMAGED}))
def test_what_was_deleted_is_done_again(files, study, finished, remedy):
    path = study / remedy
    shutil.rmtree(path) if path.is_dir() else path.unlink()
    run(files, study)
    assert same(study, finished)


def test_times_that_cannot_be_read_are_said_and_begun_anew(files, study, finished):
    for damage in (cut, another_type):
        said = []
        damage(study / "timing.json")
        run(files, study, said.append)
        assert any("timing.json" in line and "lost" in line for line in said)
        assert same(study, finished)


def test_the_logs_of_a_study_may_be_lost(files, study, finished):
    for log in study.rglob("metrics.jsonl"):
        log.write_bytes(log.read_bytes()[:-7])
    run(files, study)
    assert same(study, finished)


@pytest.mark.slow
def test_a_bit_flipped_in_a_finished_base_is_exit_3_with_its_directory(files, study, finished):
    shutil.rmtree(study / TUNED)
    a_bit(study / BASE / "weights.safetensors")
    assert f"delete {study / BASE}" in refused(files, study, f"{BASE}/weights.safetensors")
    refused(files, study)  # the same command again cannot help
    shutil.rmtree(study / BASE)
    run(files, study)
    assert same(study, finished)


@pytest.mark.parametrize(
    ("part", "foreign", "remedy"),
    [
        (f"{TUNED}/lr-0.01/config.toml", f"{BASE}/config.toml", TUNED),
        (f"{TUNED}/lr-0.01/result.json", f"{BASE}/result.json", TUNED),
        (f"{BASE}/result.json", f"{TUNED}/lr-0.01/result.json", BASE),
    ],
)
def test_a_part_of_another_run_in_a_run_of_the_study_is_exit_3_with_what_to_delete(
    files, study, part, foreign, remedy
):  # fmt: skip
    (study / TUNED / "trial.json").unlink()
    shutil.copyfile(study / foreign, study / part)
    assert f"delete {study / remedy}:" in refused(files, study, str((study / part).parent))


# ---- a whole base or trial of another study -----------------------------------------------------------------------


ALL_ARMS = ["majority", "tfidf", "lsa", "scratch", "frozen", "finetuned", "combined"]


@pytest.fixture(scope="module")
def foreign(files, tmp_path_factory):
    """Studies that differ in one thing each."""
    directory = tmp_path_factory.mktemp("foreign")
    config = small_config(files, **{**CHANGES, "arms": ALL_ARMS})
    text = directory / "corpus.txt"
    text.write_text("\n".join(reversed(Path(files["corpus"]).read_text().splitlines())))
    rows = write_files(directory / "rows", hostile=" !")

    def with_part(name, **changes):
        part = getattr(config, name)
        changed = (
            [dataclasses.replace(part[0], **changes)] if name == "pretrain" else dataclasses.replace(part, **changes)
        )
        return dataclasses.replace(config, **{name: changed})

    others = {
        "seed": with_part("study", seed=1), "steps": with_part("pretrain", steps=6),
        "settings": with_part("pretrain", weight_decay=0.3), "text": with_part("pretrain", corpus=[str(text)]),
        "rows": with_part("finetune", **{name: rows[name] for name in ("train", "valid", "test")}),
        "epochs": with_part("finetune", least_steps=6),
    }  # fmt: skip
    for name, other in others.items():
        headstart.study(other, out=directory / name, model=MODEL, jobs=2)
    return directory


@pytest.fixture(scope="module")
def finished_with_all(files, tmp_path_factory):
    directory = tmp_path_factory.mktemp("all") / "finished"
    run(files, directory, arms=ALL_ARMS)
    return directory


@pytest.fixture
def all_arms(finished_with_all, tmp_path):
    """A copy that a test may damage, and the study as it was."""
    return shutil.copytree(finished_with_all, tmp_path / "study"), finished_with_all


def bring(foreign, study, part):
    shutil.rmtree(study / part)
    shutil.copytree(foreign / part, study / part)


@pytest.mark.slow
@pytest.mark.parametrize("other", ["seed", "steps", "settings", "text"])
@pytest.mark.parametrize("has_trials", [False, True])
def test_a_base_of_another_study_is_refused_and_made_again(files, study, finished, foreign, other, has_trials):
    bring(foreign / other, study, BASE)
    if not has_trials:
        shutil.rmtree(study / TUNED)
        shutil.rmtree(study / MIXED)
    said = refused(files, study, BASE)
    assert f"delete {study / BASE}:" in said
    assert TUNED not in said.partition("fix")[2]
    shutil.rmtree(study / BASE)  # as the message says
    run(files, study)
    assert same(study, finished)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("other", "trial", "words"),
    [
        ("settings", TUNED, "another base"),
        ("settings", "trials/frozen-b10-s0", "another base"),
        ("rows", "trials/tfidf-b10-s0", "other train, valid, test"),
        ("seed", "trials/majority-b10-s0", "other seed"),
        ("epochs", "trials/scratch-b10-s0", "other finetune.least_steps"),
        ("text", "trials/lsa-b10-s0", "other corpus"),
    ],
)
def test_a_trial_of_another_study_is_refused_and_done_again(files, all_arms, foreign, other, trial, words):
    study, finished = all_arms
    bring(foreign / other, study, trial)
    with pytest.raises(IntegrityError, match=words) as caught:
        run(files, study, arms=ALL_ARMS)
    assert f"delete {study / trial}:" in str(caught.value)
    shutil.rmtree(study / trial)
    run(files, study, arms=ALL_ARMS)
    assert same(study, finished)


@pytest.mark.slow
def test_what_another_base_made_of_the_texts_is_refused_and_made_again(files, all_arms, foreign):
    study, finished = all_arms
    vectors = f"{BASE}/vectors.npz"
    shutil.copy(foreign / "settings" / vectors, study / vectors)
    shutil.rmtree(study / "trials/frozen-b10-s0")
    with pytest.raises(IntegrityError, match="another base") as caught:
        run(files, study, arms=ALL_ARMS)
    assert str(study / vectors) in str(caught.value)
    shutil.rmtree(study / BASE)  # as the message says
    run(files, study, arms=ALL_ARMS)
    assert same(study, finished)


def test_an_honest_base_is_taken_whoever_asks_for_its_trials(files, study, finished, tmp_path):
    """With other jobs, in another directory, and where a trial knows of no base, as once none did."""
    weights = study / BASE / "weights.safetensors"
    before = weights.stat().st_mtime_ns
    checksummed.write(file := study / MIXED / "trial.json", {**checksummed.read(file), "base": None})
    shutil.rmtree(study / TUNED)
    run(files, study)
    assert same(study, finished)
    assert weights.stat().st_mtime_ns == before
    study.rename(tmp_path / "moved")
    shutil.rmtree(tmp_path / "moved" / TUNED)
    headstart.study(small_config(files, **CHANGES), out=tmp_path / "moved", model=MODEL, jobs=2)
    assert same(tmp_path / "moved", finished)


KEPT = [("lsa", "linear.safetensors"), ("tfidf", "linear.safetensors"), ("finetuned", "weights.safetensors")]


@pytest.mark.parametrize(("trial", "name"), KEPT)
def test_what_a_trial_has_kept_and_is_gone_does_not_change_which_model_is_kept(files, study, trial, name):
    trial = study / "trials" / f"{trial}-b10-s0"
    (file,) = trial.rglob(name)
    file.unlink()
    assert f"delete {trial}:" in refused(files, study, str(file.relative_to(study)))


@pytest.mark.slow
@pytest.mark.parametrize(("damage", "word"), [(a_bit, "not what was written"), (None, "missing")])
def test_probabilities_that_a_mix_needs_are_those_of_the_trial(files, study, finished, damage, word):
    shutil.rmtree(study / MIXED)
    file = study / "trials/tfidf-b10-s0/probabilities.npz"
    damage(file) if damage else file.unlink()
    said = refused(files, study, "trials/tfidf-b10-s0/probabilities.npz")
    assert word in said
    assert f"delete {study / 'trials/tfidf-b10-s0'}:" in said
    shutil.rmtree(file.parent)
    run(files, study)
    assert same(study, finished)


@pytest.mark.slow
def test_what_lsa_has_learnt_is_of_this_text(files, study, finished):
    shutil.rmtree(study / "trials/lsa-b10-s0")
    with np.load(study / "lsa.npz") as arrays:
        other = {**arrays, "content": arrays["content"][::-1]}
    np.savez(study / "lsa.npz", **other)
    assert "of other text" in refused(files, study, "lsa.npz")
    a_bit(study / "lsa.npz")
    assert "delete it" in refused(files, study, "lsa.npz")
    (study / "lsa.npz").unlink()
    run(files, study)
    assert same(study, finished)


def test_the_kept_model_is_not_made_of_damaged_weights(files, study, finished):
    kept = json.loads((finished / "study.json").read_bytes())["kept_model"]
    trial = study / "trials" / f"{kept['arm']}-b10-s0"
    parts = [trial] if kept["arm"] != "combined" else sorted((study / "trials").glob("*-b10-s0"))
    (file, *_) = [file for part in parts for file in part.rglob("*.safetensors")]
    a_bit(file)
    said = refused(files, study)
    assert str(file) in said
    assert f"delete {next(part for part in parts if part in file.parents)}" in said


def test_a_recipe_that_is_lost_is_taken_from_the_studys_settings(files, tmp_path):
    """It was measured, and would not be the same if it was measured again."""
    directory, said = tmp_path / "study", []
    directory.mkdir()
    settings = {"study": {"preset": "tiny"}, "model": {}, "finetune": {}, "tokenizer": {}, "pretrain": {"steps": 7}}
    checksummed.write(directory / "recipe.json", {"settings": settings, "sentences": [], "forecast": None})
    config = small_config(files, arms=["majority", "tfidf"], budgets=[10], seeds=1, time="1000s")
    config = dataclasses.replace(config, pretrain=[dataclasses.replace(config.pretrain[0], steps=0)])

    def once():
        return headstart.study(config, out=directory, model=MODEL, device="cpu", jobs=1, log=said.append)

    record = once()
    before = (directory / "study.toml").read_text()
    assert "steps = 7" in before
    cut(directory / "recipe.json")
    with pytest.raises(IntegrityError) as caught:
        once()
    assert str(directory / "recipe.json") in str(caught.value)
    (directory / "recipe.json").unlink()
    assert once().to_json() == record.to_json()
    assert (directory / "study.toml").read_text() == before
    assert any("recipe.json is missing" in line for line in said)


def test_a_report_of_an_edited_study_is_refused(finished, tmp_path):
    shutil.copy(finished / "study.json", tmp_path)
    text = (tmp_path / "study.json").read_text()
    (tmp_path / "study.json").write_text(text.replace('"accuracy": 0.', '"accuracy": 1.', 1))
    with pytest.raises(IntegrityError):
        write_report(tmp_path)
