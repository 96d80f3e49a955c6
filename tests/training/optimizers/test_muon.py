"""Muon in batches against torch's own, one matrix after the other; and an update that must not be made."""

import pytest
import torch

from headstart.training.optimizers.muon import Muon, orthogonal


def matrices(seed):
    draws = torch.Generator().manual_seed(seed)
    shapes = [(8, 8), (24, 8), (8, 24), (8, 8), (24, 8)]
    return [torch.nn.Parameter(torch.randn(shape, generator=draws)) for shape in shapes]


def random_grads(seed, like):
    draws = torch.Generator().manual_seed(seed)
    return [torch.randn(p.shape, generator=draws) for p in like]


@pytest.mark.parametrize("rate", [0.02, torch.tensor(0.02)], ids=["number", "tensor"])
def test_steps_are_those_of_torch(rate):
    ours, theirs = matrices(0), matrices(0)
    muon = Muon([{"params": ours, "weight_decay": 0.1}], lr=rate)
    peer = torch.optim.Muon([{"params": theirs, "weight_decay": 0.1}], lr=0.02)
    for step in range(4):
        for one, other, grad in zip(ours, theirs, random_grads(step, ours), strict=True):
            one.grad, other.grad = grad.clone(), grad.clone()
        muon.step()
        peer.step()
    for one, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(one, other, atol=2e-3, rtol=0)  # bf16, in another order: 1/256 of a step
        memory, peers = muon.state[one]["momentum_buffer"], peer.state[other]["momentum_buffer"]
        torch.testing.assert_close(memory, peers)


def test_matrices_that_stand_in_one_tensor_are_updated_each_by_itself():
    whole = torch.nn.Parameter(torch.randn(20, 8, generator=torch.Generator().manual_seed(0)))
    apart = [torch.nn.Parameter(part.detach().clone()) for part in whole.split([8, 4, 8])]
    muon = Muon([{"params": [whole], "rows": (8, 4, 8), "weight_decay": 0.1}], lr=0.02)
    peer = torch.optim.Muon([{"params": apart, "weight_decay": 0.1}], lr=0.02)
    for step in range(4):
        whole.grad = random_grads(step, [whole])[0]
        for one, grad in zip(apart, whole.grad.split([8, 4, 8]), strict=True):
            one.grad = grad.clone()
        muon.step()
        peer.step()
    torch.testing.assert_close(whole, torch.cat(apart), atol=2e-3, rtol=0)
    memories = [peer.state[one]["momentum_buffer"] for one in apart]
    torch.testing.assert_close(muon.state[whole]["momentum_buffer"], torch.cat(memories))


def test_singular_values_come_near_one():
    found = orthogonal(torch.randn(3, 16, 40, generator=torch.Generator().manual_seed(0)))
    values = torch.linalg.svdvals(found.float())
    assert (values > 0.5).all()
    assert (values < 1.5).all()


def test_an_update_that_must_not_be_made_changes_neither_weights_nor_memory():
    ours = matrices(1)
    muon = Muon([{"params": ours, "weight_decay": 0.1}], lr=0.02)
    muon.found_inf = torch.tensor(0.0)
    for parameter, grad in zip(ours, random_grads(0, ours), strict=True):
        parameter.grad = grad
    muon.step()
    before = [(p.detach().clone(), muon.state[p]["momentum_buffer"].clone()) for p in ours]
    muon.found_inf = torch.tensor(1.0)
    for parameter in ours:
        parameter.grad = torch.full_like(parameter, torch.nan)
    muon.step()
    for parameter, (weight, memory) in zip(ours, before, strict=True):
        assert torch.equal(parameter, weight)
        assert torch.equal(muon.state[parameter]["momentum_buffer"], memory)
