"""Every way to attend gives what the book gives, forward and backward: here those that `attend` chooses on a CPU."""

import pytest
import torch

from headstart.kernels.attention import attend
from headstart.kernels.unpadding import Varlen
from headstart.model.attention import Mask, attend_with_weights, build_mask

MASKS = {
    "all": Mask(),
    "causal": Mask(causal_square=True),
    "padded": build_mask(9, 9, causal=True, keys_present=torch.arange(9) < torch.tensor([[9], [4], [0]])),
    "documents": build_mask(9, 9, causal=True, documents=(torch.arange(9) > 3).long().expand(3, 9)),
}


def parts(batch, tokens, width=3, **kind):
    draws = torch.Generator().manual_seed(0)
    return [torch.randn(batch, 2, tokens, width, generator=draws, dtype=torch.float64).to(**kind) for _ in range(3)]


@pytest.mark.parametrize("name", MASKS)
def test_torchs_kernel_gives_and_teaches_what_the_book_does(name):
    inputs = [part.requires_grad_() for part in parts(3, 9)]
    results = []
    for mixed in (attend(*inputs, MASKS[name]), attend_with_weights(*inputs, MASKS[name])[0]):
        results.append([mixed, *torch.autograd.grad(mixed.square().sum(), inputs)])
    for one, other in zip(*results, strict=True):
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize("queries", [1, 3, 8, 9])
def test_few_queries_after_a_cache_see_what_the_book_lets_them_see(queries):
    query, key, value = parts(2, 12)
    mask = build_mask(queries, 12, causal=True)
    with torch.no_grad():
        mixed = attend(query[:, :, -queries:], key, value, mask)
    torch.testing.assert_close(mixed, attend_with_weights(query, key, value, Mask(True))[0][:, :, -queries:])


def by_the_book(inputs, lengths, causal):
    """Texts in one row, each by itself."""
    texts = zip(*(part.split(lengths, dim=2) for part in inputs), strict=True)
    return torch.cat([attend_with_weights(*text, Mask(causal_square=causal))[0] for text in texts], dim=2)


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("lengths", [[1], [3, 1, 5], [4, 4]])
def test_texts_in_one_row_are_as_if_alone(lengths, causal):
    inputs = [part.requires_grad_() for part in parts(1, sum(lengths))]
    row = attend(*inputs, Mask(causal_square=causal, varlen=Varlen.of(lengths)))
    expected = by_the_book(inputs, lengths, causal)
    torch.testing.assert_close(row, expected)
    torch.testing.assert_close(*(torch.autograd.grad(mixed.square().sum(), inputs) for mixed in (row, expected)))


@pytest.mark.gpu
@pytest.mark.parametrize("causal", [True, False])
def test_a_gpus_kernel_for_texts_in_one_row_gives_nearly_the_same(causal):
    inputs = [part.requires_grad_() for part in parts(1, 9, 16, dtype=torch.bfloat16, device="cuda")]
    exact = [part.detach().float().requires_grad_() for part in inputs]
    mixed = attend(*inputs, Mask(causal_square=causal, varlen=Varlen.of([3, 1, 5], "cuda")))
    expected = by_the_book(exact, [3, 1, 5], causal)
    torch.testing.assert_close(mixed.float(), expected, atol=0.02, rtol=0.02)
    grads = torch.autograd.grad(mixed.float().square().sum(), inputs)
    for one, other in zip(grads, torch.autograd.grad(expected.square().sum(), exact), strict=True):
        torch.testing.assert_close(one.float(), other, atol=0.1, rtol=0.05)
