"""The loss in chunks against torch's own cross-entropy over all logits at once."""

import pytest
import small
import torch
import torch.nn.functional as F
from hypothesis import given, settings
from hypothesis import strategies as st

from headstart.kernels import cross_entropy
from headstart.kernels.cross_entropy import output_loss, unit_grad
from headstart.objectives.batches import to_device
from headstart.objectives.objective import LossModule
from headstart.training.loop import Step


def made(tokens, vocab, width, seed, bias=True, dtype=torch.float64):
    draws = torch.Generator().manual_seed(seed)
    hidden, weight, offset = (
        torch.randn(*shape, generator=draws, dtype=dtype).requires_grad_()
        for shape in ((tokens, width), (vocab, width), (vocab,))
    )
    return hidden, weight, offset if bias else None, torch.randint(vocab, (tokens,), generator=draws)


@settings(max_examples=60, deadline=None)
@given(
    st.integers(1, 30), st.integers(2, 40), st.integers(1, 8), st.integers(0, 99), st.booleans(),
    st.sampled_from([0.0, 0.1, 0.5]), st.integers(1, 300), st.integers(0, 3),
)  # fmt: skip
def test_loss_and_gradients_are_those_of_torch(tokens, vocab, width, seed, bias, smoothing, numbers, ignored):
    hidden, weight, offset, targets = made(tokens, vocab, width, seed, bias)
    targets[:ignored] = cross_entropy.IGNORED
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cross_entropy, "CHUNK_NUMBERS", numbers)
        patch.setattr(cross_entropy, "CHUNK_TOKENS", 1)
        ours = output_loss(hidden, weight, offset, targets, smoothing)
    inputs = [tensor for tensor in (hidden, weight, offset) if tensor is not None]
    found = torch.autograd.grad(3 * ours.sum, inputs)
    logits = F.linear(hidden, weight, offset)
    theirs = F.cross_entropy(logits, targets, reduction="sum", label_smoothing=smoothing)
    torch.testing.assert_close(ours.sum, theirs)
    for one, other in zip(found, torch.autograd.grad(3 * theirs, inputs), strict=True):
        torch.testing.assert_close(one, other)
    assert ours.correct == (logits.argmax(-1) == targets).sum()


def test_large_logits_do_not_overflow():
    hidden, weight, offset, targets = made(5, 7, 3, 0, dtype=torch.float32)
    big = (hidden.detach() * 1e4).requires_grad_()
    loss = output_loss(big, weight, offset, targets).sum
    torch.testing.assert_close(loss, F.cross_entropy(F.linear(big, weight, offset), targets, reduction="sum"))
    (grad,) = torch.autograd.grad(loss, big)
    assert grad.isfinite().all()


def test_half_precision_is_only_in_the_products(monkeypatch):
    monkeypatch.setattr(cross_entropy, "BLOCK_ROWS", 7)
    hidden, weight, offset, targets = made(9, 50, 16, 1, dtype=torch.float32)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = output_loss(hidden, weight, offset, targets).sum
    loss.backward()
    exact = F.cross_entropy(F.linear(hidden, weight, offset), targets, reduction="sum")
    assert loss.dtype == weight.grad.dtype == hidden.grad.dtype == torch.float32
    assert abs(loss - exact) < 0.02 * exact


def test_only_what_learns_gets_a_gradient_and_nothing_is_kept_without_one():
    hidden, weight, offset, targets = made(4, 6, 3, 2)
    weight.requires_grad_(False)
    output_loss(hidden, weight, offset, targets).sum.backward()
    assert weight.grad is None
    assert hidden.grad is not None
    with torch.no_grad():
        assert not output_loss(hidden, weight, offset, targets).sum.requires_grad


def test_no_tokens_have_no_loss():
    hidden, weight, offset, targets = made(0, 6, 3, 2)
    loss = output_loss(hidden, weight, offset, targets)
    assert float(loss.sum.detach()) == 0.0
    loss.sum.backward()
    assert (weight.grad == 0).all()


def test_the_whole_table_of_logits_is_never_held():
    """Each chunk is at most the promised size, and together they are all tokens, in order."""
    for vocab in (300, 50_001):
        parts = cross_entropy._chunks(20_000, vocab, torch.device("cpu"))
        most = max(cross_entropy.CHUNK_TOKENS, cross_entropy.CHUNK_NUMBERS // vocab)
        assert all(part.stop - part.start <= most for part in parts)
        assert [i for part in parts for i in range(part.start, part.stop)] == list(range(20_000))


def test_a_loss_beyond_the_smallest_probability_is_still_right():
    """The target's probability is less than any number can say; its logarithm is not."""
    hidden, weight = torch.tensor([[1.0]], requires_grad=True), torch.tensor([[200.0], [0.0], [-200.0]])
    loss = output_loss(hidden, weight, None, torch.tensor([2]))
    assert float(loss.sum.detach()) == 400.0
    loss.sum.backward()
    assert float(hidden.grad) == 400.0


def test_only_the_one_that_nothing_has_changed_is_taken_for_one(monkeypatch):
    """As on a GPU, where no number is looked at: losses that are added pass it on, one that is halved does not."""
    taken = []

    def is_one(grad):
        taken.append(grad is unit_grad(grad.device))
        return taken[-1]

    monkeypatch.setattr(cross_entropy, "_is_one", is_one)
    hidden, weight, offset, targets = made(5, 7, 3, 0, dtype=torch.float32)
    other, one = torch.ones((), requires_grad=True), unit_grad(hidden.device)

    def grad_of(of, *grad):
        hidden.grad = None
        of(output_loss(hidden, weight, offset, targets).sum).backward(*grad)
        return hidden.grad

    whole = grad_of(lambda loss: loss)
    for factor, is_known, of in (
        (1.0, True, lambda loss: loss), (1.0, True, lambda loss: loss + other), (0.5, False, lambda loss: loss / 2),
        (2.0, False, lambda loss: loss + loss), (0.0, False, lambda loss: 0 * loss),
    ):  # fmt: skip
        torch.testing.assert_close(grad_of(of, one), factor * whole)
        assert taken[-1] == is_known
    torch.testing.assert_close(grad_of(lambda loss: loss, torch.tensor(3.0)), 3 * whole)
    assert not taken[-1]
    assert float(one) == 1.0


def test_a_training_step_goes_backward_from_it(monkeypatch):
    found = []
    monkeypatch.setattr(cross_entropy, "_is_one", lambda grad: found.append(grad is unit_grad(grad.device)) or True)
    training = small.training(None)
    training.model.train()
    step = Step(training, LossModule(training.model), [])
    step.forward_backward([to_device(training.objective.batch_at(0, 0), torch.device("cpu"))], 0)
    assert found == [True]
