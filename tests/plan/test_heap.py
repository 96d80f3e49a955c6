"""What a CPU's allocator holds in holes, by hand."""

import pytest

from headstart.plan import heap
from headstart.plan.activations import Saved

MEGABYTE = 2**20


def test_holes_grow_with_what_passes_and_with_the_largest_tensor():
    saved = [Saved("small", "", 40 * MEGABYTE, 40), Saved("large", "", 60 * MEGABYTE, 6)]
    expected = (0.35 * 100 + 1.1 * (100 * 10) ** 0.5 + 0.1 * 20) * MEGABYTE
    assert heap.held_free(saved, 100 * MEGABYTE, 20 * MEGABYTE) == pytest.approx(expected)


def test_tensors_that_are_mapped_by_themselves_leave_no_holes():
    mapped = [Saved("mapped", "", 400 * MEGABYTE, 10)]
    assert heap.held_free(mapped, 400 * MEGABYTE, 0) == 0
    half = [*mapped, Saved("in the heap", "", 400 * MEGABYTE, 400)]
    expected = (0.35 * 0.5 * 800 + 1.1 * 800**0.5) * MEGABYTE
    assert heap.held_free(half, 800 * MEGABYTE, 0) == pytest.approx(expected)


def test_nothing_kept_is_no_holes():
    assert heap.held_free([], 0, 0) == 0
