"""A corpus in two parts: every document on one side, repeats together, the share about right."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from small import store_of

from headstart.data.readers.documents import Piece
from headstart.data.splits import with_held_out


def as_pieces(documents):
    return [Piece(text, i == len(d) - 1, i == len(d) - 1) for d in documents for i, text in enumerate(d)]


def part_of(source, is_held_out, share, seed=0):
    return [piece for held, piece in with_held_out(source, share, seed) if held == is_held_out]


documents = st.lists(st.lists(st.text(min_size=1), min_size=1, max_size=3), max_size=20)


@given(documents, st.integers(0, 5))
def test_every_document_is_whole_and_on_one_side(found, seed):
    source = as_pieces(found)
    assert [piece for _, piece in with_held_out(source, seed=seed)] == source
    parts = [part_of(source, is_held_out, 0.5, seed) for is_held_out in (False, True)]
    assert sorted(parts[0] + parts[1]) == sorted(source)
    firsts = [{d[0] for d in found if as_pieces([d])[0] in part} for part in parts]
    assert not {d[0] for d in found} - firsts[0] - firsts[1]


def test_repeats_stay_together_and_the_share_is_about_right():
    source = as_pieces([[f"document {i % 1000}"] for i in range(2000)])
    held = part_of(source, True, 0.1)
    assert len(held) / 2000 == pytest.approx(0.1, abs=0.03)
    kept = {piece.text for piece in part_of(source, False, 0.1)}
    assert not kept & {piece.text for piece in held}


def test_a_store_is_cut_in_two():
    store = store_of([[[1, 2, 3], [4, 5]], [[6, 7, 8, 9, 10]]])
    before, after = store.cut_at(0.7)
    assert before.tokens.tolist() == [1, 2, 3, 4, 5, 6, 7]
    assert after.tokens.tolist() == [8, 9, 10]
    assert before.documents.tolist() == [0, 5, 7]
    assert before.segments.tolist() == [0, 3, 5, 7]
    assert after.documents.tolist() == after.segments.tolist() == [0, 3]
    assert before.header.sha256 != after.header.sha256
    assert before.documents[[0, -1]].tolist() == [0, len(before.tokens)]
