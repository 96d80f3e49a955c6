"""Corpora as pieces: they join to the segments exactly, and are cut where a tokenizer does not notice."""

import gzip
import io
import itertools
import json
import re
import sys
import tracemalloc
from types import SimpleNamespace

import pytest
from expected_errors import refused
from hypothesis import given, settings
from hypothesis import strategies as st

from headstart.config.reading import Reading
from headstart.data.readers import documents as module
from headstart.data.readers import files
from headstart.data.readers.documents import (
    PIECE_CHARACTERS,
    Piece,
    cut_before_space,
    has_blank_lines,
    pieces,
    sentence_pieces,
    split_sentences,
)
from headstart.data.readers.rows import BadRows

# Few characters, so that line ends and blank lines are frequent.
CROWDED = st.text(st.sampled_from("ab é\t\n\r\x0b\u2028\u00a0"), max_size=80)


def joined(source):
    """Documents as lists of segments."""
    documents, segments, segment = [], [], ""
    for piece in source:
        assert 0 < len(piece.text) <= module.PIECE_CHARACTERS
        assert piece.ends_segment or not piece.ends_document
        segment += piece.text
        if piece.ends_segment:
            segments, segment = [*segments, segment], ""
        if piece.ends_document:
            documents, segments = [*documents, segments], []
    assert not segments
    assert not segment
    return documents


def reference(text, way):
    """The documents of a text held whole, told by regular expressions."""
    text = text.removeprefix("\ufeff")
    if way == "file":
        return [[text]]
    lines = re.split("\r\n|\n|\r", text)
    groups = itertools.groupby(lines, key=lambda line: line.strip() == "")
    blank = [list(group) for is_blank, group in groups if not is_blank]
    if way == "blank" or (way == "auto" and len(blank) > 1):
        return blank
    return [[line] for group in blank for line in group]


@pytest.fixture
def small_blocks(monkeypatch):
    """Pieces of sixteen characters and blocks of seven bytes, so that a short text has many cuts."""
    monkeypatch.setattr(module, "PIECE_CHARACTERS", 16)
    monkeypatch.setattr(files, "BLOCK_BYTES", 7)


@pytest.mark.parametrize("way", ["auto", "line", "blank", "file"])
def test_pieces_are_the_documents_of_the_file(way, tmp_path_factory):
    path = tmp_path_factory.mktemp("documents") / "a.txt"

    @settings(deadline=None)
    @given(CROWDED.filter(lambda text: text.strip() != ""), st.booleans())
    def check(text, is_gzip):
        path.write_bytes(gzip.compress(text.encode()) if is_gzip else text.encode())
        assert joined(pieces([path], Reading(documents=way))) == reference(text, way)

    check()


@pytest.mark.parametrize("way", ["line", "blank", "file"])
def test_long_lines_join_to_the_same_documents(way, tmp_path_factory, small_blocks):
    path = tmp_path_factory.mktemp("documents") / "a.txt"

    @settings(deadline=None)
    @given(st.lists(st.text(st.sampled_from("abé  ")).filter(str.strip), min_size=1))
    def check(lines):
        text = "\n".join(lines)
        path.write_bytes(text.encode())
        found = list(pieces([path], Reading(documents=way)))
        # A line that begins with more white space than a piece holds counts as text, so it is left out here.
        if not any(line.startswith(" " * 16) for line in lines):
            assert joined(found) == reference(text, way)
        for piece, following in itertools.pairwise(found):
            if not piece.ends_segment:
                assert len(piece.text) == 16 or following.text[0].isspace()

    check()


def test_a_piece_ends_before_the_last_white_space_in_reach():
    word = "x" * (PIECE_CHARACTERS - 1)
    assert cut_before_space(word + " yz") == PIECE_CHARACTERS - 1
    assert cut_before_space("x" * PIECE_CHARACTERS + " yz") == PIECE_CHARACTERS
    assert cut_before_space("x" * PIECE_CHARACTERS + "y z") == PIECE_CHARACTERS
    assert cut_before_space("ab   " + "x" * PIECE_CHARACTERS) == 2
    assert cut_before_space(" " * 2 * PIECE_CHARACTERS) == PIECE_CHARACTERS
    assert cut_before_space("ab\x1c" + "x" * PIECE_CHARACTERS) == PIECE_CHARACTERS


def test_lines_are_documents_without_blank_lines(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text(" one \n\ttwo\r\nthree\n\n\n")
    assert list(pieces([path])) == [Piece(t, True, True) for t in (" one ", "\ttwo", "three")]


def test_blank_lines_part_documents_and_lines_are_segments(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text("\n\na1\na2\n \t\nb1\n")
    assert list(pieces([path])) == [
        Piece("a1", True, False), Piece("a2", True, True), Piece("b1", True, True)
    ]  # fmt: skip


def test_auto_is_decided_for_each_file_by_itself(tmp_path):
    (tmp_path / "lines.txt").write_text("a\nb\n")
    (tmp_path / "books.txt").write_text("c\nd\n\ne\n")
    found = joined(pieces([tmp_path / "lines.txt", tmp_path / "books.txt"]))
    assert found == [["a"], ["b"], ["c", "d"], ["e"]]


@settings(deadline=None)
@given(CROWDED, st.lists(st.integers(0, 80)))
def test_blank_lines_are_seen_across_block_borders(text, positions):
    positions = sorted({min(position, len(text)) for position in positions})
    blocks = [text[a:b] for a, b in zip([0, *positions], [*positions, len(text)], strict=True)]
    lines = [line.strip() for line in re.split("\r\n|\n|\r", text)]
    expected = re.search("x-+x", "".join("x" if line else "-" for line in lines)) is not None
    assert has_blank_lines(blocks) == expected


def test_a_long_line_is_never_held(tmp_path):
    path = tmp_path / "a.txt"
    with open(path, "w") as file:
        for _ in range(256):
            file.write("mot " * 16_384)
    tracemalloc.start()
    character_count = sum(len(piece.text) for piece in pieces([path]))
    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert character_count == 256 * 65_536
    assert peak_bytes < 4 << 20


def test_rows_are_documents_kept_to_the_character(tmp_path):
    texts = ["a\n\nb ", " c\r\n"]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps({"review": text}) + "\n" for text in texts))
    assert joined(pieces([tmp_path / "a.jsonl"], Reading(text_column="review"))) == [[text] for text in texts]


def test_rows_of_two_texts_are_documents_of_two_segments(tmp_path):
    (tmp_path / "a.jsonl").write_text('{"text_a": "one", "text_b": "two"}\n')
    assert joined(pieces([tmp_path / "a.jsonl"])) == [["one", "two"]]


def test_sentencepiece_pieces_are_read_as_their_text(tmp_path):
    (tmp_path / "a.spm").write_text("▁Que ▁faire ? ▁d ' amour\n\nplain text\n")
    assert joined(pieces([tmp_path / "a.spm"])) == [["Que faire? d'amour"], ["plain text"]]


def test_standard_input_is_a_corpus(monkeypatch):
    data = b"a\nb\n\nc"
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(data)))
    assert joined(pieces(["-"])) == [["a", "b"], ["c"]]
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(b'{"text": "a"}\n')))
    assert joined(pieces(["-.jsonl"])) == [["a"]]


def test_skipped_rows_are_counted_or_warned_of_but_never_silent(tmp_path):
    (tmp_path / "a.jsonl").write_text('{"text": "a"}\n{"text": ""}\n{"tex\n{"text": 3}\n')
    bad = BadRows(skip=True)
    assert joined(pieces([tmp_path / "a.jsonl"], bad_rows=bad)) == [["a"]]
    assert bad.counts == {"empty text": 1, "malformed JSON": 1, "not text": 1}
    with pytest.warns(UserWarning, match="3 bad rows skipped: 1 empty text"):
        assert joined(pieces([tmp_path / "a.jsonl"], Reading(skip_bad_rows=True))) == [["a"]]


def test_a_later_file_without_text_is_refused_by_its_name(tmp_path):
    (tmp_path / "a.txt").write_text("a")
    (tmp_path / "b.txt").write_text(" \n\n")
    with refused("bad-text", "b.txt"):
        list(pieces([tmp_path / "a.txt", tmp_path / "b.txt"]))


# ---- sentences ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "sentences",
    [
        ["Il pleut.", "Elle lit."],
        ["Quel livre !", "Vraiment ?", "Oui…", "Bref."],
        ["M. Hugo est mort.", "Mme. Sand aussi."],
        ["J. K. Rowling l'a écrit.", "Je l'ai lu."],
        ["Voir cf. Balzac, p. 12.", "Puis rien."],
        ["It costs 3.14 euros.", "Mr. Smith paid it."],
        ["« Bonjour ! » dit-il en entrant.", "« Sortez. »", "Elle sortit."],
        ["« Viens ! »", "Puis il partit."],
        ["Elle hésite... puis répond.", "Enfin !"],
        ["Fini (ou presque).", "Alors ?"],
        ["— Tu viens ?", "— Non."],
        ["Le site exemple.fr est en panne.", "12 personnes attendent."],
        ["A. Dumas.", "Et voilà."],
        ["Sans fin"],
    ],
)
def test_sentences_are_found(sentences):
    text = " ".join(sentences)
    assert [sentence.strip() for sentence in split_sentences(text)] == sentences


@given(st.text("aA.!?… «»\"')—\n1", max_size=40) | st.text())
def test_sentences_join_to_the_text(text):
    assert "".join(split_sentences(text)) == text
    assert all(split_sentences(text))


def test_the_white_space_belongs_to_what_follows():
    assert split_sentences("Un.  Deux.\nTrois.") == ["Un.", "  Deux.", "\nTrois."]


def test_every_sentence_of_a_piece_becomes_a_segment():
    pieces = [
        Piece("Un. Deux", False, False),
        Piece(" ou trois. Quatre.", True, False),
        Piece("", True, True),
    ]
    assert list(sentence_pieces(pieces)) == [
        Piece("Un.", True, False), Piece(" Deux", False, False), Piece(" ou trois.", True, False),
        Piece(" Quatre.", True, False), Piece("", True, True),
    ]  # fmt: skip
