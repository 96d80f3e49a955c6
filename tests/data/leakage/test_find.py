"""The leak check: equal and near texts, in one set, across sets, and in a corpus that streams by."""

import json
import os
import random
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headstart.data.labelled import read_labelled
from headstart.data.leakage import find as corpus_leaks
from headstart.data.leakage import near_duplicates as near
from headstart.data.leakage.find import find_leaks
from headstart.data.leakage.near_duplicates import NearDuplicateIndex, containment, shingles_of
from headstart.data.leakage.text_key import folded_words, text_key
from headstart.data.readers.documents import Piece, pieces

DATA = os.environ.get("HEADSTART_DATA")
WORDS = [f"{first}{second}" for first in "bcdfglmnprst" for second in ("a", "eau", "ire", "on", "ude", "ette", "is")]


def sentence(seed, length=60):
    """So many words of a small made-up language; two of them share hardly a run of three."""
    return " ".join(random.Random(seed).choices(WORDS, k=length))


def lines(*texts):
    return [Piece(text, True, True) for text in texts]


# ---- folding --------------------------------------------------------------------------------------------


def test_folding_puts_case_accents_punctuation_and_space_aside():
    assert text_key("L'Été, à cœur\u00a0!") == text_key("l ete a COEUR") == "leteacoeur"
    assert text_key("e\u0301te\u0301") == text_key("été") == "ete"
    assert text_key("Straße 12") == "strasse12"


def test_texts_without_letters_are_not_all_one():
    assert text_key(" :-) ") == ":-)"
    assert text_key(":-)") != text_key(":-(")


def test_signs_of_scripts_without_spaces_are_words():
    assert folded_words("我喜欢 this 书") == ["我", "喜", "欢", "this", "书"]


@settings(deadline=None)
@given(st.lists(st.text(min_size=1), min_size=1))
def test_folding_by_pieces_is_folding_the_whole(parts):
    assert folded_words(" ".join(parts)) == [word for part in parts for word in folded_words(part)]


# ---- the measure ----------------------------------------------------------------------------------------


def naive_containment(one, other):
    runs = [{tuple(words[i : i + 3]) for i in range(len(words) - 2)} for words in map(folded_words, (one, other))]
    smaller, larger = sorted(runs, key=len)
    if len(smaller) < 10 or (len(smaller) < 25 and len(larger) > 2 * len(smaller)):
        return 0.0
    return len(smaller & larger) / len(smaller)


@settings(deadline=None)
@given(st.lists(st.sampled_from(WORDS[:12]), max_size=60), st.lists(st.sampled_from(WORDS[:12]), max_size=60))
def test_containment_is_the_share_of_common_runs(one, other):
    expected = naive_containment(" ".join(one), " ".join(other))
    assert containment(shingles_of(one), shingles_of(other)) == pytest.approx(expected)


def test_containment_by_hand():
    fifteen = [str(number) for number in range(15)]  # 13 runs of three
    changed = [*fifteen[:7], "other", *fifteen[8:]]  # three of them are lost
    assert containment(shingles_of(fifteen), shingles_of(changed)) == pytest.approx(10 / 13)


# ---- sets -----------------------------------------------------------------------------------------------

ORIGINAL = sentence(0)
PLANTED = {
    "one word changed": ORIGINAL.replace(ORIGINAL.split()[30], "autrement", 1),
    "cut to two thirds": " ".join(ORIGINAL.split()[:40]),
    "another beginning": sentence(99, 15) + " " + ORIGINAL,
    "inside a longer one": f"{sentence(98)} {ORIGINAL} {sentence(97)}",
    "a sentence more": f"{ORIGINAL} {sentence(96, 12)}",
    "three words changed": " ".join("zut" if i in (5, 25, 50) else w for i, w in enumerate(ORIGINAL.split())),
}


@pytest.mark.parametrize("text", PLANTED.values(), ids=PLANTED.keys())
def test_planted_near_duplicates_are_found_across_sets(text):
    sets = {"train": [sentence(1), ORIGINAL, sentence(2)], "test": [sentence(3), text]}
    for sets_ in (sets, {"train": sets["test"], "test": sets["train"]}):
        leaks = find_leaks(sets_)
        assert leaks.rows["near_test_in_train"] == [1]
        assert leaks.findings["near_test_in_train"][0].other == 1
        assert leaks.rows["test_in_train"] == []


@pytest.mark.parametrize(
    "text",
    [
        sentence(1),
        " ".join(sorted(ORIGINAL.split())),
        " ".join(ORIGINAL.split()[:20]) + " " + sentence(5, 60),
        " ".join(ORIGINAL.split()[:14]),
    ],
    ids=["another text", "the same words in another order", "a third of it", "a phrase of it"],
)
def test_what_is_not_a_near_duplicate_is_not_reported(text):
    leaks = find_leaks({"train": [ORIGINAL], "test": [text]})
    assert leaks.counts["near_test_in_train"] == leaks.counts["test_in_train"] == 0


def test_a_word_changed_in_a_short_text_is_found():
    short = "un deux trois quatre cinq six sept huit neuf dix onze douze"
    leaks = find_leaks({"train": [short], "test": [short.replace("six", "dix")]})
    assert leaks.rows["near_test_in_train"] == [0]


def test_equal_texts_are_found_after_folding_and_not_counted_as_near():
    leaks = find_leaks({"train": [ORIGINAL, "Très bien !"], "test": [ORIGINAL.upper() + "!!", "tres  bien"]})
    assert leaks.rows["test_in_train"] == [0, 1]
    assert leaks.rows["near_test_in_train"] == []


def test_repeats_are_the_later_rows():
    texts = ["a b", ORIGINAL, "A, b", PLANTED["one word changed"], "a b"]
    leaks = find_leaks({"train": texts})
    assert leaks.rows["train_repeats"] == [2, 4]
    assert [finding.other for finding in leaks.findings["train_repeats"]] == [0, 0]
    assert leaks.rows["near_train_repeats"] == [3]


def test_every_pair_of_sets_is_reported_even_when_clean():
    counts = find_leaks({"train": ["a"], "valid": ["b"], "test": ["c"]}, lines("d")).counts
    names = [
        "test_in_valid",
        "test_in_train",
        "valid_in_train",
        "train_repeats",
        "valid_repeats",
        "test_repeats",
    ]
    names += ["train_in_corpus", "valid_in_corpus", "test_in_corpus", "corpus_repeats"]
    assert counts == {name: 0 for plain in names for name in (plain, f"near_{plain}")}


def test_sketches_overlook_nothing_that_comparing_all_pairs_finds():
    draw = random.Random(5)
    texts = []
    for seed in range(60):
        words = sentence(seed, draw.randrange(15, 80)).split()
        texts.append(" ".join(words))
        for position in draw.sample(range(len(words)), len(words) // 15):
            words[position] = "zut"
        texts.append(" ".join(words[draw.randrange(4) :]))
    index = NearDuplicateIndex([shingles_of(text.split()) for text in texts])
    for row, shingles in enumerate(index.shingles):
        expected = {o for o, other in enumerate(index.shingles) if containment(shingles, other) >= near.NEAR}
        assert expected <= set(index.candidates(shingles)), row


def test_a_template_in_thousands_of_rows_stays_cheap(monkeypatch):
    monkeypatch.setattr(near, "POSTINGS", 20)
    template = sentence(7, 40)
    texts = [f"{template} numéro {row}" for row in range(300)]
    assert find_leaks({"train": texts}).counts["near_train_repeats"] == 299


# ---- the corpus -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("text", PLANTED.values(), ids=PLANTED.keys())
def test_planted_near_duplicates_are_found_in_the_corpus(text):
    corpus = lines(sentence(1), text, sentence(2))
    leaks = find_leaks({"test": [sentence(3), ORIGINAL]}, corpus)
    assert leaks.rows["near_test_in_corpus"] == [1]
    assert leaks.findings["near_test_in_corpus"][0].other == 1


def test_equal_texts_are_found_as_segments_and_as_documents():
    corpus = [
        Piece("Première ligne,", True, False), Piece("seconde LIGNE", True, True),
        Piece("une autre", True, False), Piece("encore", True, True),
    ]  # fmt: skip
    leaks = find_leaks({"test": ["premiere ligne seconde ligne", "encore !", "autre"]}, corpus)
    assert leaks.rows["test_in_corpus"] == [0, 1]
    assert leaks.corpus_document_count == 2


@pytest.mark.parametrize("lead", [0, 500, 7_000, 8_150, 8_180, 16_300])
def test_a_row_is_found_wherever_it_lies_in_a_long_document(lead):
    words = sentence(1, lead).split() + ORIGINAL.split() + sentence(2, 20_000).split()
    cut = [" ".join(words[start : start + 900]) + " " for start in range(0, len(words), 900)]
    whole = [
        Piece(text, is_last, is_last) for text, is_last in zip(cut, [*[False] * (len(cut) - 1), True], strict=True)
    ]
    by_lines = [Piece(piece.text, True, piece.ends_document) for piece in whole]
    for corpus in (whole, by_lines):
        assert find_leaks({"test": [ORIGINAL]}, corpus).rows["near_test_in_corpus"] == [0]


def test_a_row_of_many_short_lines_is_found():
    verses = [ORIGINAL.split()[start : start + 5] for start in range(0, 60, 5)]
    verses[3] = ["un", "autre", "vers"]
    corpus = [Piece(" ".join(verse), True, verse is verses[-1]) for verse in verses]
    assert find_leaks({"test": [ORIGINAL]}, corpus).rows["near_test_in_corpus"] == [0]


def test_repeats_within_the_corpus_are_counted_and_near_ones_estimated():
    corpus = lines("a", ORIGINAL, "A!", "...", "?!", PLANTED["one word changed"], sentence(1), ORIGINAL)
    leaks = find_leaks({}, corpus)
    assert leaks.rows["corpus_repeats"] == [2, 7]
    assert leaks.rows["near_corpus_repeats"] == [5]


def test_a_stream_is_enough():
    leaks = find_leaks({"test": [ORIGINAL]}, (piece for piece in lines(sentence(1), ORIGINAL)))
    assert leaks.rows["test_in_corpus"] == [0]


def test_estimate_of_resemblance_is_near_the_truth():
    rows = np.random.default_rng(0).integers(0, 2**63, 3000).tolist()
    one, other = set(rows[:2000]), set(rows[400:2400])  # 1,600 of 2,400 in common
    sketches = [set(sorted(values)[:16]) for values in (one, other)]
    assert abs(corpus_leaks._resemblance(*sketches) - 2 / 3) < 0.3
    assert corpus_leaks._resemblance(sketches[0], sketches[0]) == 1


# ---- real data ------------------------------------------------------------------------------------------


@pytest.mark.skipif(not DATA, reason="HEADSTART_DATA is not set")
def test_the_known_overlap_of_cls_books_is_found_row_by_row():
    folder = Path(DATA) / "cls-books"
    sets = {name: read_labelled(folder / f"{name}.jsonl.gz").texts for name in ("train", "valid", "test")}
    leaks = find_leaks(sets, pieces([Path(DATA) / "fr-reviews" / "valid.txt.gz"]))
    known = json.loads((folder / "overlap.json").read_text())
    for later, earlier, count in [("test", "train", 43), ("test", "valid", 12), ("valid", "train", 13)]:
        assert leaks.rows[f"{later}_in_{earlier}"] == known[f"{later}_rows_also_in_{earlier}"]
        assert leaks.counts[f"{later}_in_{earlier}"] == count
    assert [leaks.counts[f"{name}_repeats"] for name in sets] == [20, 1, 35]
    assert leaks.rows["near_train_repeats"] == [1539]
    assert [leaks.counts[f"{name}_in_corpus"] for name in sets] == [0, 0, 0]
