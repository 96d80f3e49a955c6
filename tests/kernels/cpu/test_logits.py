"""The loss of a chunk, and its gradients, against torch's cross-entropy."""

import pytest
import torch
import torch.nn.functional as F

from headstart.kernels.cpu.logits import CpuLogits


@pytest.mark.parametrize("vocab", [7, 64, 100])
@pytest.mark.parametrize("smoothing", [0.0, 0.1])
@pytest.mark.parametrize("has_bias", [False, True])
def test_loss_right_answers_and_gradients_are_torchs(vocab, smoothing, has_bias):
    torch.manual_seed(0)
    rows, matrix = torch.randn(9, 5), torch.randn(vocab, 5)
    bias = torch.randn(vocab) if has_bias else None
    targets = torch.randint(vocab, (9,))
    targets[4] = -100
    found = CpuLogits(12, matrix, torch.float32).loss(rows, bias, targets, smoothing, True, True)
    logits = F.linear(rows, matrix, bias).requires_grad_()
    wanted = F.cross_entropy(logits, targets, reduction="sum", label_smoothing=smoothing)
    wanted.backward()
    assert torch.allclose(found.sum, wanted, rtol=1e-5)
    assert found.correct == (logits.argmax(dim=1) == targets).sum()
    assert torch.allclose(found.exact_grads, logits.grad, atol=1e-6)


def test_buffers_are_used_again_and_only_what_is_asked_for_is_computed():
    torch.manual_seed(0)
    matrix, targets = torch.randn(10, 4), torch.randint(10, (6,))
    room = CpuLogits(6, matrix, torch.float32)
    for count in (6, 2, 5):
        rows = torch.randn(count, 4)
        found = room.loss(rows, None, targets[:count], 0.0, False, False)
        assert torch.allclose(found.sum, F.cross_entropy(rows @ matrix.T, targets[:count], reduction="sum"))
        assert (found.correct, found.grads, found.exact_grads) == (None, None, None)


def test_a_product_in_bf16_is_summed_in_fp32():
    torch.manual_seed(0)
    rows, matrix, targets = torch.randn(8, 16), torch.randn(50, 16), torch.randint(50, (8,))
    low = (rows.bfloat16(), matrix.bfloat16())
    found = CpuLogits(8, low[1], torch.float32).loss(low[0], None, targets, 0.0, False, True)
    wanted = F.cross_entropy((low[0] @ low[1].T).float(), targets, reduction="sum")
    assert torch.allclose(found.sum, wanted, rtol=1e-4)
    assert (found.grads.dtype, found.exact_grads.dtype) == (torch.bfloat16, torch.float32)
