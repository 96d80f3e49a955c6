"""Tensors that several ranks hold in parts; in one process every tensor is whole."""

import pytest
import torch
from torch import nn

from headstart.runs.shards import gathered, is_shard, like, local, whole


class Shard(torch.Tensor):
    """Stands for what FSDP makes of a parameter: rows of a whole that this rank holds."""

    @staticmethod
    def of(tensor, rows):
        shard = tensor[rows].as_subclass(Shard)
        shard.all_rows = tensor
        return shard

    def full_tensor(self):
        return self.all_rows

    def to_local(self):
        return self.as_subclass(torch.Tensor)

    def detach(self):
        return self


@pytest.fixture
def table():
    return torch.arange(12.0).reshape(4, 3)


def test_a_plain_tensor_is_whole(table):
    assert not is_shard(table)
    assert not is_shard(nn.Parameter(table))
    assert local(table) is table
    assert whole(table) is table


def test_a_shard_is_a_part_and_can_be_made_whole(table):
    shard = Shard.of(table, slice(2, 4))
    assert is_shard(shard)
    assert local(shard).tolist() == [[6, 7, 8], [9, 10, 11]]
    assert whole(shard) is table


def test_what_is_not_sharded_is_gathered_as_it_is(table):
    found = gathered({"a": table}, is_kept=False)
    assert found == {"a": table}


def test_shards_are_gathered_on_the_rank_that_keeps_them(table):
    tensors = {"a": Shard.of(table, slice(0, 2)), "b": torch.ones(2)}
    found = gathered(tensors, is_kept=True)
    assert torch.equal(found["a"], table)
    assert torch.equal(found["b"], torch.ones(2))
    assert gathered(tensors, is_kept=False) == {}


def test_a_tensor_becomes_like_a_parameter_of_one_process(table):
    assert like(table, nn.Parameter(torch.zeros(4, 3))) is table
