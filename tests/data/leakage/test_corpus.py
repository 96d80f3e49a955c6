"""Labelled rows looked for in a corpus that streams by."""

from headstart.data.leakage.find import CorpusReader
from headstart.data.leakage.near_duplicates import NearDuplicateIndex, shingles_of
from headstart.data.leakage.text_key import digest, folded_words, text_key
from headstart.data.readers.documents import Piece

ROW = " ".join(f"mot{number}" for number in range(40))
OTHER = " ".join(f"autre{number}" for number in range(40))


def reader(*texts):
    rows = [("test", row, digest(text_key(text))) for row, text in enumerate(texts)]
    return CorpusReader(rows, NearDuplicateIndex([shingles_of(folded_words(text)) for text in texts]))


def document(text):
    return Piece(text, ends_segment=True, ends_document=True)


def test_a_row_is_found_whatever_its_case_and_signs():
    found = reader(ROW, OTHER)
    found.take(document("something else"))
    found.take(document(ROW.upper() + " !!"))
    assert found.equal == {("test", 0): 1}
    assert found.document_count == 2


def test_a_row_that_is_one_segment_of_a_document_is_found():
    found = reader(ROW)
    found.take(Piece("a first line", ends_segment=True, ends_document=False))
    found.take(Piece(ROW, ends_segment=True, ends_document=True))
    assert found.equal == {("test", 0): 0}


def test_a_row_in_two_pieces_is_one_row():
    found = reader(ROW)
    half = len(ROW) // 2
    half = ROW.index(" ", half)
    found.take(Piece(ROW[:half], ends_segment=False, ends_document=False))
    found.take(Piece(ROW[half:], ends_segment=True, ends_document=True))
    assert found.equal == {("test", 0): 0}


def test_a_row_with_a_few_other_words_is_near():
    found = reader(ROW)
    found.take(document(ROW.replace("mot39", "x").replace("mot0", "y")))
    (share,) = [share for _, share in found.near.values()]
    assert share == 36 / 38  # of 38 runs of three words each changed end touches one
    assert found.equal == {}


def test_documents_that_stand_earlier_already_are_told():
    found = reader(ROW)
    for text in (OTHER, "x", OTHER.upper(), "", "", OTHER.replace("autre39", "z")):
        found.take(document(text))
    assert list(found.repeats()) == [(2, 0)]
    assert [pair[:2] for pair in found.near_repeats()] == [(5, 0)]
