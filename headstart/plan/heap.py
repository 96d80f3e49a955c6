"""What a CPU's allocator holds beyond what tensors need.

The C library maps a tensor of over 32 MB by itself and gives it back when it is freed. All others come from one heap,
where what is freed leaves holes that tensors of another size do not fit. How much that is differs from run to run by a
tenth, and no formula follows it hole by hole: the three shares below were fitted on the grid of
benchmarks/plan_error.py, and are checked on configurations that are held out.
"""

from collections.abc import Sequence

from headstart.plan.activations import Saved

MAPPED = 32 * 2**20  # bytes from which a tensor never stands in the heap
OF_WHAT_PASSES, OF_GRADIENTS = 0.35, 0.10
# Of the mean of what passes and its largest tensor: few and large ones leave larger holes than many small ones.
OF_THE_LARGEST = 1.1


def held_free(saved: Sequence[Saved], passing: int, gradients: int) -> int:
    """Bytes of holes at the peak, for what comes and goes in a step and for the gradients."""
    total = sum(row.bytes for row in saved)
    in_heap = [row for row in saved if row.bytes / row.tensors < MAPPED]
    share = sum(row.bytes for row in in_heap) / max(total, 1)
    largest = max((row.bytes / row.tensors for row in in_heap), default=0.0)
    holes = OF_WHAT_PASSES * share * passing + OF_THE_LARGEST * (passing * largest) ** 0.5
    return round(holes + OF_GRADIENTS * gradients)
