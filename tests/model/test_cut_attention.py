"""Texts in one row, for devices that want them side by side: the padded way gives what the text-by-text way gives."""

import pytest
import torch

from headstart.model.cut_attention import _padded, attend_within
from headstart.model.masks import Cuts


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("lengths", [[1], [3, 1, 5], [4, 4]])
def test_side_by_side_is_as_one_after_another(lengths, causal):
    torch.manual_seed(0)
    query, key, value = (torch.randn(1, 2, sum(lengths), 3, dtype=torch.float64) for _ in range(3))
    cuts = Cuts.of(lengths)
    torch.testing.assert_close(
        _padded(query, key, value, cuts, causal, 0.0), attend_within(query, key, value, cuts, causal)
    )


@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
@pytest.mark.parametrize("causal", [True, False])
def test_the_kernel_for_lengths_of_all_kinds_gives_nearly_the_same(causal):
    torch.manual_seed(0)
    parts = [torch.randn(1, 2, 9, 16, dtype=torch.bfloat16, device="cuda") for _ in range(3)]
    cuts = Cuts.of([3, 1, 5], "cuda")
    exact = _padded(*(part.float() for part in parts), cuts, causal, 0.0)
    torch.testing.assert_close(attend_within(*parts, cuts, causal).float(), exact, atol=0.02, rtol=0.02)
