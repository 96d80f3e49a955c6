"""The embedded corpus: what is promised of its text, its labels, its splits, its null variant and its files."""

import errno
import hashlib
import itertools
import json
import math
import os
import re
import subprocess
import sys
import unicodedata
from collections import Counter
from random import Random

import pytest
from expected_errors import refused

from headstart.demo import corpus as demo
from headstart.demo.grammar import Reviewer
from headstart.demo.phrases import BAD, GOOD, TEMPLATES
from headstart.errors import TryAgain

NAMES = ["unlabelled.txt", "train.jsonl", "valid.jsonl", "test.jsonl"]
NAMES += ["pairs.train.tsv", "pairs.valid.tsv", "pairs.test.tsv", "README.md"]


def folded(text):
    """Folding written again: letters and digits of the decomposed text."""
    decomposed = unicodedata.normalize("NFD", text.replace("œ", "oe").replace("Œ", "oe").lower())
    return "".join(character for character in decomposed if character.isalnum())


@pytest.fixture
def small_demo(monkeypatch):
    """The corpus with few rows, so that it is written at once."""
    for sizes in (demo.SIZES, demo.PAIR_SIZES):
        for split in sizes:
            monkeypatch.setitem(sizes, split, 40)
    demo._whole_split.cache_clear()
    yield
    demo._whole_split.cache_clear()


# ---- splits


def test_a_seed_gives_the_same_reviews_in_another_process():
    program = (
        "from headstart.demo import corpus as demo; import hashlib; "
        "rows = demo.reviews(3, 'train', 200) + demo.pairs(3, 'train', 200); "
        "print(hashlib.sha256(repr(rows).encode()).hexdigest())"
    )
    digests = {
        subprocess.run(
            [sys.executable, "-c", program],
            env={**os.environ, "PYTHONHASHSEED": hash_seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for hash_seed in ("1", "2")
    }
    assert len(digests) == 1


def test_another_seed_gives_other_reviews():
    assert not set(demo.reviews(0, "train", 50)) & set(demo.reviews(1, "train", 50))


def test_fewer_reviews_are_the_first_ones(labelled, unlabelled, pairs):
    assert demo.reviews(5, "test", 10) == labelled["test"][:10]
    assert demo.reviews(5, "unlabelled", 10) == unlabelled[False][:10]
    assert demo.pairs(5, "valid", 10) == pairs["valid"][:10]


def test_labelled_splits_have_their_sizes_and_equal_classes(labelled):
    for split, size in {"train": 1600, "valid": 400, "test": 2000}.items():
        assert Counter(r.label for r in labelled[split]) == {"positive": size // 2, "negative": size // 2}


def test_no_review_is_in_two_splits_or_twice_in_one(labelled, unlabelled):
    for null in (False, True):
        keys = [folded(r.french) for r in itertools.chain(*labelled.values(), unlabelled[null])]
        assert len(keys) == len(set(keys)) == 6000


def test_no_side_of_a_pair_is_in_two_splits_or_twice_in_one(pairs):
    assert {split: len(rows) for split, rows in pairs.items()} == {"train": 2000, "valid": 500, "test": 1000}
    for side in ("english", "french"):
        keys = [folded(getattr(pair, side)) for split in pairs.values() for pair in split]
        assert len(keys) == len(set(keys))


# ---- what the grammar knows


def test_a_few_labels_show_few_of_the_expressions(labelled, unlabelled):
    in_test = {e.french for r in labelled["test"] for e in r.expressions}
    late_in_test = {e.french for r in labelled["test"] for e in r.expressions if e.late}
    for seed in range(5):
        chosen = [e.french for r in Random(seed).sample(labelled["train"], 50) for e in r.expressions]
        assert len(in_test & set(chosen)) < 0.35 * len(in_test)
        assert len(late_in_test & set(chosen)) < 0.15 * len(late_in_test)
    uses_late = {
        split: sum(any(e.late for e in r.expressions) for r in rows) / len(rows) for split, rows in labelled.items()
    }
    assert uses_late["train"] < 0.07
    assert uses_late["test"] > 0.85
    company = {e.french for r in unlabelled[False] for e in r.expressions}
    uses = [e.french in company for r in labelled["test"] for e in r.expressions]
    assert sum(uses) > 0.99 * len(uses)


# ---- the null variant


def companions_information(reviews):
    """The mutual information, in bits, of the polarities of two expressions in one review."""
    counts = Counter(pair for r in reviews for pair in itertools.permutations([e.polarity for e in r.expressions], 2))
    total = sum(counts.values())
    sides = {side: sum(count for pair, count in counts.items() if pair[0] == side) / total for side in (GOOD, BAD)}
    return sum(
        count / total * math.log2(count / total / sides[one] / sides[other]) for (one, other), count in counts.items()
    )


def test_company_tells_the_polarity_and_in_the_null_variant_nothing(unlabelled):
    assert companions_information(unlabelled[False]) > 0.3
    assert companions_information(unlabelled[True]) < 0.001


def test_the_null_variant_uses_the_same_words_as_often(unlabelled):
    shares = []
    for null in (False, True):
        counts = Counter(e.french for r in unlabelled[null] for e in r.expressions)
        shares.append({word: count / sum(counts.values()) for word, count in counts.items()})
    common = [word for word, share in shares[0].items() if share > 0.01]
    assert len(common) > 15
    for word in common:
        assert shares[1][word] == pytest.approx(shares[0][word], rel=0.35), word


def test_the_null_variant_has_the_labelled_reviews_of_the_other(labelled):
    assert demo.reviews(5, "train", null=True) == labelled["train"]
    assert demo.reviews(5, "unlabelled", 1, null=True)[0].label is None


@pytest.mark.slow
def test_the_whole_corpus_is_written_with_its_sizes(tmp_path):
    sizes = {file.name: file.rows for file in demo.write_demo(tmp_path)}
    del sizes["README.md"]
    assert sizes == {
        "unlabelled.txt": 20_000, "train.jsonl": 1600, "valid.jsonl": 400, "test.jsonl": 2000,
        "pairs.train.tsv": 10_000, "pairs.valid.tsv": 500, "pairs.test.tsv": 1000,
    }  # fmt: skip
    lines = {name: (tmp_path / name).read_text().splitlines() for name in sizes}
    reviews = lines["unlabelled.txt"] + [
        json.loads(line)["text"] for split in ("train", "valid", "test") for line in lines[f"{split}.jsonl"]
    ]
    assert len({folded(text) for text in reviews}) == 24_000
    rows = [line.split("\t") for split in ("train", "valid", "test") for line in lines[f"pairs.{split}.tsv"]]
    assert len({folded(english) for english, _ in rows}) == len({folded(french) for _, french in rows}) == 11_500


@pytest.mark.slow
def test_unlabelled_text_helps_few_labels_and_in_the_null_variant_does_not():
    """Word vectors from the company of words, against TF-IDF, with 50 and 200 labels."""
    np = pytest.importorskip("numpy")
    text = pytest.importorskip("sklearn.feature_extraction.text")
    from sklearn.decomposition import TruncatedSVD
    from sklearn.linear_model import LogisticRegression

    train, test = demo.reviews(0, "train"), demo.reviews(0, "test")
    labels, test_labels = (np.array([r.label == "positive" for r in rows]) for rows in (train, test))

    def accuracy(features, test_features, budget):
        scores = []
        for seed in range(6):
            order = np.random.default_rng(seed).permutation(len(train))
            rows = np.concatenate([order[labels[order] == side][: budget // 2] for side in (True, False)])
            model = LogisticRegression(C=10, max_iter=1000).fit(features[rows], labels[rows])
            scores.append(model.score(test_features, test_labels))
        return float(np.mean(scores))

    def vectors(null):
        """The mean of word vectors: positive pointwise information of words in one review, 100 directions."""
        documents = [r.french for r in demo.reviews(0, "unlabelled", 8000, null)]
        counter = text.CountVectorizer(binary=True, min_df=3)
        present = counter.fit_transform(documents).astype(np.float64)
        together = (present.T @ present).tocoo()
        frequency = np.asarray(present.sum(axis=0)).ravel()
        together.data = np.maximum(
            0, np.log(together.data * len(documents) / frequency[together.row] / frequency[together.col])
        )
        together.data[together.row == together.col] = 0
        words = TruncatedSVD(100, random_state=0).fit_transform(together.tocsr())
        words /= np.linalg.norm(words, axis=1, keepdims=True) + 1e-9
        weight = np.log(len(documents) / frequency)
        return [counter.transform([r.french for r in rows]).multiply(weight).tocsr() @ words for rows in (train, test)]

    tfidf = text.TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True)
    counted = [tfidf.fit_transform([r.french for r in train]), tfidf.transform([r.french for r in test])]
    normal, null = vectors(False), vectors(True)
    for budget in (50, 200):
        counting = accuracy(*counted, budget)
        assert accuracy(*normal, budget) > counting + 0.05
        assert accuracy(*null, budget) < counting
    assert 0.75 < accuracy(*counted, 1600) < 0.88


# ---- files


def test_the_files_hold_the_reviews_and_the_pairs(small_demo, tmp_path):
    files = demo.write_demo(tmp_path / "new" / "demo", seed=4)
    assert [file.name for file in files] == NAMES
    assert sorted(path.name for path in (tmp_path / "new" / "demo").iterdir()) == sorted(NAMES)
    lines = {name: (tmp_path / "new" / "demo" / name).read_text().splitlines() for name in NAMES}
    assert lines["unlabelled.txt"] == [r.french for r in demo.reviews(4, "unlabelled")]
    assert [json.loads(line) for line in lines["test.jsonl"]] == [
        {"text": r.french, "label": r.label} for r in demo.reviews(4, "test")
    ]
    assert [tuple(line.split("\t")) for line in lines["pairs.test.tsv"]] == demo.pairs(4, "test")
    for file in files:
        data = (tmp_path / "new" / "demo" / file.name).read_bytes()
        assert (file.size_bytes, file.sha256) == (len(data), hashlib.sha256(data).hexdigest())
        assert (file.rows, file.fresh) == (len(data.splitlines()), True)


def test_the_variants_share_all_files_but_the_unlabelled_text_and_the_readme(small_demo, tmp_path):
    demo.write_demo(tmp_path / "normal")
    demo.write_demo(tmp_path / "null", null=True)
    differing = {
        name for name in NAMES if (tmp_path / "normal" / name).read_bytes() != (tmp_path / "null" / name).read_bytes()
    }
    assert differing == {"unlabelled.txt", "README.md"}


def test_writing_again_changes_nothing_and_mends_what_is_missing(small_demo, tmp_path):
    demo.write_demo(tmp_path)
    before = {name: (tmp_path / name).stat().st_mtime_ns for name in NAMES}
    assert not any(file.fresh for file in demo.write_demo(tmp_path))
    assert {name: (tmp_path / name).stat().st_mtime_ns for name in NAMES} == before
    (tmp_path / "valid.jsonl").unlink()
    assert [file.name for file in demo.write_demo(tmp_path) if file.fresh] == ["valid.jsonl"]


def test_other_files_of_these_names_are_refused_and_kept(small_demo, tmp_path):
    (tmp_path / "train.jsonl").write_text("mine\n")
    (tmp_path / "notes.txt").write_text("mine too\n")
    with refused("exists", "train.jsonl"):
        demo.write_demo(tmp_path)
    assert (tmp_path / "train.jsonl").read_text() == "mine\n"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["notes.txt", "train.jsonl"]


def test_a_full_disk_leaves_nothing_half_made(small_demo, tmp_path, monkeypatch):
    calls = itertools.count()

    def full(descriptor):
        if next(calls) == 3:
            raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with refused("disk-full", by=TryAgain):
        demo.write_demo(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_what_a_killed_writer_left_is_removed(small_demo, tmp_path):
    (tmp_path / ".tmp-train.jsonl-1-1").write_text('{"text": "Un ré')
    (tmp_path / ".tmp-README.md-1-1").write_text("# The emb")
    demo.write_demo(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(NAMES)


def test_a_file_in_the_place_of_the_directory_is_refused(small_demo, tmp_path):
    (tmp_path / "demo").write_text("")
    with refused("no-file", str(tmp_path / "demo")):
        demo.write_demo(tmp_path / "demo")


# ---- reviews


def test_reviews_are_of_one_to_many_sentences(labelled):
    lengths = Counter(len(re.findall(r"[.!?]", r.french)) for r in labelled["test"])
    assert all(lengths[count] > 20 for count in range(1, 7))


def test_counting_words_is_not_enough(labelled):
    """Even who knows the polarity of every expression and counts is often wrong."""
    score = 0.0
    for review in labelled["test"]:
        balance = sum(e.polarity for e in review.expressions)
        judgement = GOOD if review.label == "positive" else BAD
        score += 0.5 if balance == 0 else float(balance * judgement > 0)
    assert 0.70 < score / len(labelled["test"]) < 0.88


def test_in_the_null_variant_mais_joins_any_two_polarities():
    random = Random(0)
    template = next(f for f in TEMPLATES["contrasts"] if f.french == "{0}, mais {1}.")
    seen = Counter()
    for _ in range(2000):
        reviewer = Reviewer(random, GOOD, null=True)
        reviewer.fill(template)
        seen[reviewer.expressions[0].polarity, reviewer.expressions[-1].polarity] += len(reviewer.expressions) == 2
    total = sum(seen.values())
    assert all(abs(count / total - 0.25) < 0.05 for count in seen.values())
