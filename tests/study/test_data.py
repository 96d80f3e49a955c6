"""A study's data: what is written, counted, tokenized and planned before the first trial, counted again by hand."""

import csv
import dataclasses
import hashlib
import itertools
import json
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import tiny_runs
from expected_errors import refused
from small_study import MODEL, small_config, write_files

from headstart.config.reading import RowReading
from headstart.config.study import FinetunePart, StudyConfig
from headstart.data.warnings import data_warnings
from headstart.study import data as module
from headstart.study.data import (
    labelled_sets,
    lsa_texts,
    prepare,
    pretraining_operations,
    sha256_of,
    step_operations,
    trial_operations,
    trial_steps,
    write_changed,
)
from headstart.study.design import Trial, arms_of, trials_of
from headstart.tokenizers.tokenizer import Tokenizer

ARMS = ["majority", "tfidf", "lsa", "scratch", "frozen", "finetuned", "combined", "scratch-long"]
SETS = ("train", "valid", "test")


def data_of(config, directory, log=lambda line: None):
    return prepare(config, MODEL, directory, "cpu", log)


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    return write_files(tmp_path_factory.mktemp("files"))


@pytest.fixture(scope="module")
def prepared(files, tmp_path_factory):
    """The data of a study with every arm but the optional ones, in a directory that no test changes."""
    return data_of(small_config(files, arms=ARMS, budgets=[10, 40]), tmp_path_factory.mktemp("studies") / "prepared")


def rows_of(path):
    return [json.loads(line) for line in Path(path).read_text().splitlines()]


def write_rows(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


def with_files(config, **given):
    return dataclasses.replace(config, finetune=dataclasses.replace(config.finetune, **given))


def arm_of(data, kind):
    return next(arm for arm in arms_of(data.config.study) if arm.kind == kind)


# ---- labelled rows ------------------------------------------------------------------------------------------


def test_the_rows_are_written_as_they_were_read(prepared, files):
    for name in SETS:
        assert rows_of(prepared.labelled(name)) == rows_of(files[name])


def test_any_form_and_encoding_becomes_the_same_plain_files(prepared, files, tmp_path):
    given = {}
    for name in SETS:
        given[name] = str(tmp_path / f"{name}.csv")
        with open(given[name], "w", encoding="cp1252", newline="") as file:
            lines = csv.writer(file)
            lines.writerow(["id", "note", "review"])
            lines.writerows([[n, row["label"], row["text"]] for n, row in enumerate(rows_of(files[name]))])
    config = small_config(files, arms=["majority"], budgets=[10, 40])
    reading = RowReading(text_column="review", label_column="note", encoding="cp1252")
    config = dataclasses.replace(with_files(config, **given), reading=reading, pretrain=[])
    data = data_of(config, tmp_path / "study")
    for name in SETS:
        assert data.labelled(name).read_bytes() == prepared.labelled(name).read_bytes()


def test_the_same_files_give_the_same_data_and_write_nothing_again(prepared, files, tmp_path):
    config, directory = small_config(files, arms=ARMS, budgets=[10, 40]), tmp_path / "study"
    first = data_of(config, directory)
    assert dataclasses.replace(first, directory=prepared.directory) == prepared
    times = {path: path.stat().st_mtime_ns for path in (directory / "data").iterdir()}
    told = []
    assert data_of(config, directory, told.append) == first
    assert {path: path.stat().st_mtime_ns for path in (directory / "data").iterdir()} == times
    assert not any("looking for texts" in line for line in told)


def test_what_is_there_already_is_not_written_again(tmp_path):
    file = tmp_path / "a" / "b"
    write_changed(file, b"one")
    inode = file.stat().st_ino
    write_changed(file, b"one")
    assert file.stat().st_ino == inode
    write_changed(file, b"two")
    assert file.read_bytes() == b"two"


def test_without_valid_and_test_parts_of_train_are_split_off(files, tmp_path):
    config = with_files(small_config(files, arms=["majority", "tfidf"], budgets=[10]), valid="", test="")
    told = []
    data = data_of(config, tmp_path / "study", told.append)
    rows = {name: [row["text"] for row in rows_of(data.labelled(name))] for name in SETS}
    # A fifth of 40 rows for test, and a tenth of the other 32 for valid: of each of the two classes at least one.
    assert {name: len(texts) for name, texts in rows.items()} == {"train": 28, "valid": 4, "test": 8}
    assert sorted(itertools.chain(*rows.values())) == sorted(row["text"] for row in rows_of(files["train"]))
    assert any("no --test" in line for line in told)
    assert {data.facts["data"][name]["file"] for name in SETS} == {"train.jsonl"}


def test_a_text_that_occurs_twice_stays_on_one_side(files, tmp_path):
    once = rows_of(files["train"])
    shouted = [{**row, "text": row["text"].upper() + " !"} for row in once]
    config = with_files(small_config(files), train=write_rows(tmp_path / "train.jsonl", once + shouted), test="")
    sets = labelled_sets(config, lambda line: None)
    held_out, kept = ({text.upper().rstrip(" !") for text in sets[name].texts} for name in ("test", "train"))
    assert len(sets["test"]) == 2 * len(held_out) > 0
    assert not held_out & kept


def test_rows_that_are_skipped_are_told_of_by_their_set(files, tmp_path):
    rows = rows_of(files["test"])
    config = with_files(small_config(files), test=write_rows(tmp_path / "test.jsonl", [*rows, {"text": ""}]))
    config = dataclasses.replace(config, reading=RowReading(skip_bad_rows=True))
    told = []
    assert len(labelled_sets(config, told.append)["test"]) == len(rows)
    (line,) = told
    assert line.startswith("test: 1 ")


def test_rows_that_fit_no_study_are_refused(files, tmp_path):
    with refused("missing", "--train", "--demo"):
        labelled_sets(StudyConfig(finetune=FinetunePart()), print)
    unseen = write_rows(tmp_path / "unseen.jsonl", [{"text": "bof", "label": "peut-être"}])
    with refused("unknown-name", "'peut-être'", "unseen.jsonl:1"):
        labelled_sets(with_files(small_config(files), valid=unseen), print)
    pairs = write_rows(tmp_path / "pairs.jsonl", [{"text_a": "a", "text_b": "b", "label": "pos"}])
    with refused("mismatch", "pairs.jsonl"):
        labelled_sets(with_files(small_config(files), test=pairs), print)


def test_texts_of_train_are_read_in_pretraining_where_that_is_asked_for(files, tmp_path):
    config = small_config(files, arms=["finetuned"])
    (phase,) = config.pretrain
    data = data_of(dataclasses.replace(config, pretrain=[dataclasses.replace(phase, labelled_texts=True)]), tmp_path)
    texts = tmp_path / "data" / "train-texts.jsonl"
    assert data.corpus_of(data.config.pretrain[0]) == [files["corpus"], str(texts)]
    assert rows_of(texts) == [{"text": row["text"]} for row in rows_of(files["train"])]
    assert texts.read_bytes().isascii(), "so that it reads alike in the encoding of any corpus"
    assert data.facts["data"]["corpus_total"]["documents"] == 150 + 40


# ---- tokens -------------------------------------------------------------------------------------------------


def test_tokens_are_those_of_the_study_s_tokenizer(prepared, files):
    tokenizer, sets = Tokenizer.load(prepared.tokenizer), prepared.sets()
    assert tokenizer.size == prepared.model.vocab == prepared.facts["model"]["vocab"]
    for name in SETS:
        texts = [row["text"] for row in rows_of(files[name])]
        assert sets[name].texts == texts
        expected = [tokenizer.encode(text).tolist() for text in texts]
        assert [ids.tolist() for ids in sets[name].token_ids] == expected


@pytest.mark.parametrize(("length", "longest"), [(50, 50), (1000, MODEL["context"])])
def test_the_mean_length_counts_a_frame_of_two_and_no_token_beyond_the_longest(files, tmp_path, length, longest):
    data = data_of(with_files(small_config(files, arms=["majority"]), length=length), tmp_path)
    tokenizer = Tokenizer.load(data.tokenizer)
    lengths = [len(tokenizer.encode(row["text"])) + 2 for row in rows_of(files["train"])]
    assert min(lengths) < longest < max(lengths)
    assert data.config.finetune.length == longest
    assert data.mean_tokens == pytest.approx(np.mean([min(longest, one) for one in lengths]))


def test_a_tokenizer_has_the_roles_of_all_objectives(files, tmp_path):
    config = small_config(files, arms=["finetuned"], objectives=["causal", "masked"])
    roles = Tokenizer.load(data_of(config, tmp_path).tokenizer).roles
    assert {"begin", "end", "mask", "pad"} <= set(roles)


def test_a_tokenizer_from_before_the_study_s_settings_were_written_is_kept(files, tmp_path):
    config = small_config(files, arms=["majority"])
    first = data_of(config, tmp_path)
    before = (first.tokenizer / "tokenizer.json").read_bytes()
    (tmp_path / "study.toml").write_text("")
    other = dataclasses.replace(config, tokenizer=dataclasses.replace(config.tokenizer, vocab=280))
    told = []
    assert data_of(other, tmp_path, told.append).model.vocab == first.model.vocab
    assert not any("training a tokenizer" in line for line in told)
    assert (first.tokenizer / "tokenizer.json").read_bytes() == before


def test_a_given_tokenizer_has_to_normalise_as_is_asked_for(files, tmp_path):
    config = small_config(files, arms=["scratch"])
    plain = data_of(config, tmp_path / "plain").tokenizer
    part = dataclasses.replace(config.tokenizer, tokenizer=str(plain), normalise=["lower-case"])
    with refused("mismatch", str(plain), "lower-case", "[tokenizer]"):
        data_of(dataclasses.replace(config, tokenizer=part), tmp_path / "given")


def test_a_file_of_two_phases_is_learned_from_once(files, tmp_path):
    config = small_config(files, arms=["lsa"])
    twice = dataclasses.replace(config, pretrain=[*config.pretrain, *config.pretrain])
    lines = Path(files["corpus"]).read_text().splitlines()
    texts = [row["text"] for row in rows_of(files["train"])]
    assert sorted(lsa_texts(data_of(twice, tmp_path))) == sorted(lines + texts)


def test_lsa_takes_a_sample_of_a_large_corpus(prepared, monkeypatch):
    every = lsa_texts(prepared)
    monkeypatch.setattr(module, "LSA_CHARACTERS", sum(map(len, every)) // 2)
    sample = lsa_texts(prepared)
    assert sample == lsa_texts(prepared)
    assert set(sample) < set(every)
    assert 0.35 * len(every) < len(sample) < 0.65 * len(every)


# ---- what is said of the data -------------------------------------------------------------------------------


def test_the_facts_are_those_of_the_files(prepared, files):
    facts = prepared.facts["data"]
    for name in SETS:
        rows = rows_of(files[name])
        assert (facts[name]["file"], facts[name]["rows"]) == (f"{name}.jsonl", len(rows))
        assert facts[name]["classes"] == Counter(str(row["label"]) for row in rows)
    raw = Path(files["corpus"]).read_bytes()
    (corpus,) = facts["corpus"]
    assert (corpus["file"], corpus["sha256"]) == ("corpus.txt", hashlib.sha256(raw).hexdigest())
    lines = raw.decode().splitlines()
    tokenizer = Tokenizer.load(prepared.tokenizer)
    total = facts["corpus_total"]
    assert total["documents"] == len(lines) == 150
    assert total["text_bytes"] == sum(len(line.encode()) for line in lines)
    assert total["tokens"] >= sum(len(tokenizer.encode(line)) for line in lines)


def test_what_is_doubtful_in_the_rows_is_said_as_data_check_says_it(files, tmp_path):
    rows = rows_of(files["train"])
    for number, row in enumerate(rows):
        row["label"] = "business" if number % 2 else "sport"
    rows += [{"text": f"{n} texte " * (40 if n else 1), "label": "business" if n else "sport "} for n in range(10)]
    train = write_rows(tmp_path / "train.jsonl", rows)
    told, config = [], small_config(files, arms=["majority"], budgets=[10], seeds=1)
    config = dataclasses.replace(config, finetune=FinetunePart(train=train, length=32, batch=5))
    data = data_of(config, tmp_path / "study", told.append)
    tokenizer = Tokenizer.load(data.tokenizer)
    sets = {name: rows.tokenized(tokenizer) for name, rows in data.sets().items()}
    expected = [f"{name}: {warning.message}" for name, warning in data_warnings(sets, 32)]
    assert data.facts["data"]["warnings"] == expected
    assert [line for line in told if line in expected] == expected
    assert any("'sport␣' (1 row)" in line for line in expected)
    assert any("are longer than 32 tokens, and are cut" in line for line in expected)


def test_texts_that_stand_in_two_sets_or_in_the_corpus_are_counted(files, tmp_path):
    train, valid, test = (
        [{"text": f"{name} numéro {n} {word}", "label": ("oui", "non")[n % 2]} for n, word in enumerate(words)]
        for name, words in (
            ("Formation", ["chat", "livre", "maison", "route", "fleur", "table"]),
            ("Validation", ["verre", "montagne", "rivière", "jardin"]),
            ("Examen", ["porte", "fenêtre", "bateau", "nuage", "soleil"]),
        )
    )
    test[1]["text"] = train[0]["text"].upper()  # case and accents do not count
    test[4]["text"] = "Une phrase du corpus, que personne n'attend ici."
    valid[3]["text"] = train[5]["text"]
    (tmp_path / "corpus.txt").write_text(f"Rien de tel.\n{test[4]['text']}\n" + "Encore une ligne.\n" * 3)
    given = {
        name: write_rows(tmp_path / f"{name}.jsonl", rows)
        for name, rows in (("train", train), ("valid", valid), ("test", test))
    }
    config = small_config({**files, **given, "corpus": str(tmp_path / "corpus.txt")}, arms=["majority"], budgets=[6])
    facts = data_of(config, tmp_path / "study").facts
    exact = {name: count for name, count in facts["data"]["leaks"].items() if not name.startswith("near_")}
    assert exact == {"test_in_train": 1, "test_in_valid": 0, "valid_in_train": 1, "test_in_corpus": 1}
    assert (facts["leaked_rows"], facts["data"]["leaked_test_rows"]) == ([1, 4], 2)
    test[1]["text"] = "Autre chose."
    write_rows(tmp_path / "test.jsonl", test)
    assert data_of(config, tmp_path / "study").facts["leaked_rows"] == [4]


def test_a_corpus_that_is_not_there_is_refused(tmp_path):
    (tmp_path / "a").write_bytes(b"abc")
    assert sha256_of(str(tmp_path / "a")) == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    with refused("no-file", str(tmp_path / "nowhere")):
        sha256_of(str(tmp_path / "nowhere"))


# ---- arms ---------------------------------------------------------------------------------------------------


def test_the_arms_that_need_text_to_pretrain_on_say_so(files, tmp_path):
    config = small_config(files)
    for arm in ("finetuned", "frozen", "scratch-long"):
        study = dataclasses.replace(config.study, arms=[arm])
        with refused("missing", "--corpus", "--start", "--demo"):
            data_of(dataclasses.replace(config, study=study, pretrain=[]), tmp_path / "study")


def test_a_base_reads_as_its_objective_does(prepared):
    reads = {
        objective: (model.direction, model.segments)
        for objective in ("causal", "masked", "masked-nsp", None)
        for model in [prepared.model_for(objective)]
    }
    assert reads == {
        "causal": ("causal", 0), "masked": ("bidirectional", 0), "masked-nsp": ("bidirectional", 2),
        None: ("bidirectional", 0),
    }  # fmt: skip
    assert (prepared.head.kind, prepared.head.classes) == ("classification", 2)


def test_pairs_are_told_apart_by_segments(files, tmp_path):
    given = {
        name: write_rows(
            tmp_path / f"{name}.jsonl",
            [{"text_a": row["text"], "text_b": "Vraiment ?", "label": row["label"]} for row in rows_of(files[name])],
        )
        for name in SETS
    }
    config = with_files(small_config(files, arms=["scratch"]), **given)
    data = data_of(config, tmp_path / "study")
    assert data.model.segments == 2
    assert rows_of(data.labelled("train")) == rows_of(given["train"])
    assert data.sets()["train"].texts_b == ["Vraiment ?"] * 40
    start = dataclasses.replace(config.study, arms=["scratch", "imported"], start=str(tiny_runs.path_of("causal")))
    told = []
    started = data_of(dataclasses.replace(config, study=start, pretrain=[]), tmp_path / "started", told.append)
    assert started.model.segments == 0
    assert any("no segments" in line for line in told)


def test_a_start_brings_its_shape_and_its_tokenizer(files, tmp_path):
    config = small_config(files, arms=["scratch"])
    study = dataclasses.replace(config.study, arms=["scratch", "imported"], start=str(tiny_runs.path_of("causal")))
    data = prepare(dataclasses.replace(config, study=study, pretrain=[]), {}, tmp_path, "cpu", lambda line: None)
    run = tiny_runs.run_of("causal")
    assert data.model == run.config.model
    assert Tokenizer.load(data.tokenizer).fingerprint == run.tokenizer.fingerprint
    assert data.facts["model"]["preset"] == "the start's"
    assert data.config.finetune.length == min(32, run.config.model.context)


def test_learning_rates_are_those_of_all_arms_or_of_their_own(prepared):
    assert [prepared.learning_rates_for(arm_of(prepared, kind)) for kind in ("scratch", "finetuned")] == [
        [1e-3, 1e-2]
    ] * 2
    finetune = dataclasses.replace(prepared.config.finetune, scratch_learning_rate=0.05)
    data = dataclasses.replace(prepared, config=dataclasses.replace(prepared.config, finetune=finetune))
    kinds = ("scratch", "scratch-long", "finetuned")
    assert [data.learning_rates_for(arm_of(data, kind)) for kind in kinds] == [[0.05], [0.05], [1e-3, 1e-2]]


def test_weights_are_kept_of_the_first_seed_with_the_most_labels(prepared):
    kept = [trial.name for trial in trials_of(prepared.config.study) if prepared.keeps_model(trial)]
    assert kept == [f"{arm}-b40-s0" for arm in ARMS]


def test_a_trial_waits_for_those_that_it_takes_something_from(prepared):
    def before(kind, budget, seed):
        return [one.name for one in prepared.trials_before(Trial(arm_of(prepared, kind), budget, seed))]

    assert before("tfidf", 10, 1) == []
    assert before("tfidf", 40, 1) == ["tfidf-b40-s0"]  # with all rows it is the same for every seed
    assert before("lsa", 10, 1) == ["lsa-b40-s0"]  # which learns from the text
    assert before("lsa", 40, 0) == []
    assert before("frozen", 10, 1) == ["frozen-b40-s0"]  # which has the base read the texts
    assert before("combined", 10, 1) == ["tfidf-b10-s1", "lsa-b10-s1", "frozen-b10-s1", "finetuned-b10-s1"]
    assert before("finetuned", 40, 1) == []


# ---- operations ---------------------------------------------------------------------------------------------


def test_steps_are_epochs_over_the_budget_and_at_least_so_many(prepared):
    scratch = arm_of(prepared, "scratch")
    # Batches of 5, 2 epochs, and 4 steps at least.
    assert trial_steps(prepared, Trial(scratch, 40, 0)) == (16, 8)
    assert trial_steps(prepared, Trial(scratch, 10, 0)) == (4, 2)
    assert trial_steps(prepared, Trial(scratch, 5, 0)) == (4, 1)


def test_a_trial_costs_its_steps_with_every_learning_rate(prepared):
    for kind in ("scratch", "finetuned"):
        arm = arm_of(prepared, kind)
        assert trial_operations(prepared, Trial(arm, 40, 0)) == 2 * 16 * step_operations(prepared, arm)
    for kind in ("majority", "tfidf", "lsa", "frozen", "combined"):
        assert trial_operations(prepared, Trial(arm_of(prepared, kind), 40, 0)) == 0
    scratch, tuned = (step_operations(prepared, arm_of(prepared, k)) for k in ("scratch", "finetuned"))
    assert scratch == tuned


def test_the_long_scratch_has_the_compute_of_the_base_on_top(prepared):
    long, short = (trial_operations(prepared, Trial(arm_of(prepared, k), 40, 0)) for k in ("scratch-long", "scratch"))
    base = pretraining_operations(prepared, "causal")
    # To the nearest step of each of the two tries.
    assert abs(long - short - base) <= step_operations(prepared, arm_of(prepared, "scratch"))


def test_operations_of_pretraining_are_those_of_its_steps(prepared):
    assert prepared.steps == {"causal": [12]}
    doubled = dataclasses.replace(prepared, steps={"causal": [24]})
    assert pretraining_operations(doubled, "causal") == 2 * pretraining_operations(prepared, "causal")
    # 12 steps of 4 blocks of 32 tokens; a multiplication of a weight and its gradients are 6 operations a token.
    model, tokens = prepared.model, 12 * 4 * 32
    weights = 4 * model.width**2 + 2 * model.width * model.ffn + model.width * model.vocab
    found = pretraining_operations(prepared, "causal") / (6 * tokens * weights)
    assert 1 < found < 1.5  # attention, and what is not a product of matrices, come on top


def test_operations_are_those_of_the_share_and_of_both_readings(files, tmp_path):
    arms = ["scratch", "frozen", "finetuned"]
    config = small_config(files, objectives=["masked"], arms=arms, budgets=[10])
    (phase,) = config.pretrain
    changed = dataclasses.replace(
        config,
        pretrain=[dataclasses.replace(phase, mask_prob=0.5)],
        finetune=dataclasses.replace(config.finetune, r_drop=1.0),
    )
    usual, now = data_of(config, tmp_path / "usual"), data_of(changed, tmp_path / "now")
    # 12 steps of 4 blocks of 32: 5 tokens of each are hidden at 0.15, 16 at 0.5; backward costs twice forward.
    head = 2 * 16 * 16 + 2 * 16 * usual.model.vocab
    more = pretraining_operations(now, "masked") - pretraining_operations(usual, "masked")
    assert more == 12 * 4 * 3 * (16 - 5) * head
    arm = arms_of(config.study)[0]
    assert step_operations(now, arm) == 2 * step_operations(usual, arm)
    for trial in trials_of(config.study):
        assert trial_operations(now, trial) == 2 * trial_operations(usual, trial)


def test_equal_operations_take_the_share_into_account(files, tmp_path):
    config = small_config(files, objectives=["causal", "masked"], arms=["finetuned"], budgets=[10])
    (phase,) = config.pretrain
    steps = []
    for share in (0.15, 0.9):
        phases = [dataclasses.replace(phase, steps=100, mask_prob=share)]
        found = data_of(dataclasses.replace(config, pretrain=phases), tmp_path / str(share))
        steps.append(found.steps["masked"][0])
        assert found.steps["causal"] == [100]
        equal = [pretraining_operations(found, objective) for objective in ("causal", "masked")]
        assert equal[0] == pytest.approx(equal[1], rel=0.01)
    assert steps[0] > steps[1]
