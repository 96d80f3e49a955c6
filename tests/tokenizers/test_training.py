"""Training: the same bytes every time, the sizes that were asked for, and what it learns from."""

import hashlib
import os
import subprocess
import sys
from collections import Counter

import french_sentences
import pytest
from expected_errors import refused
from hypothesis import given
from hypothesis import strategies as st

from headstart.tokenizers import training as module
from headstart.tokenizers.special_tokens import SPECIALS
from headstart.tokenizers.training import CorpusStats, measure, sampled, train

KINDS = ["bpe", "unigram", "wordpiece", "char"]
LINES = french_sentences.lines(300)

IN_A_CHILD = """
import french_sentences, sys
from headstart.tokenizers.training import train
lines = french_sentences.lines(300) + ["œ 中文 🙂 rare é" + chr(0x4E00 + i) for i in range(20)]
for kind in ("bpe", "unigram", "wordpiece", "char"):
    train(lambda: lines, vocab=700, kind=kind).tokenizer.save(f"{sys.argv[1]}/{kind}")
"""


def test_the_same_text_gives_the_same_bytes_whatever_the_threads(tmp_path):
    seen = {kind: set() for kind in KINDS}
    # The library's hash tables are seeded anew in every process: more than two of them.
    for number, threads in enumerate(["1", "2", "2"]):
        directory = tmp_path / str(number)
        environment = {
            **os.environ,
            "RAYON_NUM_THREADS": threads,
            "PYTHONPATH": os.path.dirname(french_sentences.__file__),
        }
        environment["PYTHONPATH"] += os.pathsep + os.environ.get("PYTHONPATH", "")
        subprocess.run([sys.executable, "-c", IN_A_CHILD, directory], env=environment, check=True)
        for kind in KINDS:
            raw = (directory / kind / "tokenizer.json").read_bytes()
            seen[kind].add(hashlib.sha256(raw).hexdigest())
    assert {kind: len(digests) for kind, digests in seen.items()} == dict.fromkeys(KINDS, 1)


@pytest.mark.parametrize("kind", ["bpe", "unigram", "wordpiece"])
def test_the_vocabulary_has_the_size_that_was_asked_for(kind):
    size = 265 if kind != "wordpiece" else 150
    training = train(lambda: LINES, vocab=size, kind=kind)
    assert training.tokenizer.size == size
    assert training.notes == []


def test_a_text_too_small_for_the_vocabulary_says_what_was_reached():
    training = train(lambda: ["un chat", "un chat noir"], vocab=8_000)
    # 7 special tokens, 256 bytes and the merges of what stands twice: `un`, ` ch`, ` cha`, ` chat` or the like.
    assert 263 < training.tokenizer.size < 275
    assert training.notes[0].startswith(f"asked for 8,000 tokens, reached {training.tokenizer.size}")


@pytest.mark.parametrize(
    ("kind", "least", "parts"),
    [
        ("bpe", 263, "7 special tokens + 256 for the alphabet"),
        ("unigram", 264, "7 special tokens + 256 for the alphabet + 1 for a piece"),
        ("wordpiece", 14, "7 special tokens + 6 for the alphabet + 1 for a piece"),
        ("char", 8, "7 special tokens + 1 for a piece"),
    ],
)
def test_a_vocabulary_smaller_than_its_alphabet_is_refused_with_the_least(kind, least, parts):
    texts = ["abc abc"] * 3
    with refused("bad-value", kind, f"{least} ({parts})"):
        train(lambda: texts, vocab=least - 1, kind=kind)
    assert train(lambda: texts, vocab=least, kind=kind).tokenizer.size <= least


def test_the_alphabet_of_wordpiece_has_its_numbers_in_order():
    pieces = train(lambda: ["cab bac"], vocab=14, kind="wordpiece").tokenizer.pieces
    assert pieces[:13] == [*SPECIALS, "##a", "##b", "##c", "a", "b", "c"]


def test_text_without_text_is_refused():
    with refused("too-few"):
        train(lambda: ["", ""])


def test_bpe_merges_the_most_frequent_pair_first():
    # ab three times, cd twice, nothing else twice.
    tokenizer = train(lambda: ["ab", "ab", "ab", "cd", "cd", "e"], vocab=300).tokenizer
    assert tokenizer.pieces[263:] == ["ab", "cd"]


def test_characters_are_kept_by_frequency():
    tokenizer = train(lambda: ["aab", "éa b"], vocab=10, kind="char").tokenizer
    assert tokenizer.pieces == [*SPECIALS, "a", "b", " "]
    assert tokenizer.encode("aéb").tolist() == [7, 1, 8]
    assert tokenizer.decode([7, 1, 8]) == "a<unk>b"


def test_the_alphabet_of_wordpiece_covers_nearly_all_of_the_text():
    characters = Counter({"e": 60_000, "a": 40_000, "z": 11, "q": 9, " ": 10**9})
    # One in ten thousand may be missing: 10 of 100,020. The q may, and then the z may not.
    assert module._covering(characters) == ["a", "e", "z"]


# ---- what is learned from ----


@given(st.lists(st.text("ab cé中\n", max_size=300), max_size=8))
def test_all_of_a_small_text_is_learned_from(texts):
    stats = measure(texts, "bpe")
    assert stats.share == stats.unspaced_share == 1
    assert stats.text_bytes == sum(len(text.encode()) for text in texts)
    assert "".join(sampled(texts, stats)) == "".join(texts)


def test_words_are_never_cut_and_long_stretches_are():
    stats = CorpusStats(0, 0, Counter(), share=1, unspaced_share=1)
    word = "x" * 64
    assert list(sampled([f"a {word} b"], stats)) == [f"a {word} b"]
    parts = list(sampled(["a " + "y" * 150 + " b"], stats))
    assert parts == ["a ", "y" * 64, "y" * 64, "y" * 22, " b"]
    # Chinese is written without spaces, and takes three bytes a character.
    assert [len(part) for part in sampled(["书" * 40], stats)] == [0, 16, 16, 8, 0]


def test_of_a_huge_text_a_sample_of_the_stated_size_is_taken_from_everywhere():
    texts = [f"{number:05d} " + "mot " * 20 for number in range(20_000)]
    stats = measure(texts, "bpe", sample_bytes=200_000)
    taken = list(sampled(texts, stats))
    assert 0.9 < sum(map(len, taken)) / 200_000 < 1.1
    assert taken == list(sampled(texts, stats))
    numbers = [int(text[:5]) for text in taken]
    per_fifth = Counter(number // 4_000 for number in numbers)
    assert min(per_fifth.values()) > 0.8 * len(taken) / 5
    training = train(lambda: texts, vocab=300, sample_bytes=200_000)
    assert "sample of 0 MB, taken evenly from 2 MB" in " ".join(training.notes)


def test_of_text_without_spaces_no_more_than_the_limit_is_taken(monkeypatch):
    monkeypatch.setitem(module.UNSPACED_BYTES, "bpe", 100_000)
    texts = ["".join(LINES).replace(" ", "")[:8_000] for _ in range(50)]
    stats = measure(texts, "bpe")
    assert stats.unspaced_bytes == stats.text_bytes
    assert 0.9 < sum(len(part.encode()) for part in sampled(texts, stats)) / 100_000 < 1.1
    assert any("no white space" in note for note in train(lambda: texts, vocab=300).notes)


@pytest.mark.parametrize("kind", ["bpe", "unigram", "wordpiece"])
def test_pieces_cut_before_white_space_give_the_same_tokenizer(kind):
    whole = [" ".join(LINES)]
    cut = [line if number == 0 else " " + line for number, line in enumerate(LINES)]
    together, apart = (train(lambda texts=texts: texts, vocab=500, kind=kind) for texts in (whole, cut))
    assert together.tokenizer.fingerprint == apart.tokenizer.fingerprint
