"""Marian's tensors and ours: the names, and the order of the columns that runs through all of them.

Both models add sinusoids to the embedding. Marian has the sines in the first half of the columns and the cosines in
the second, ours take turns. Nothing in a block depends on the order of the columns as long as every tensor that reads
or writes that stream agrees on it: with the columns put into the other's order, the two models are the same function.
"""

import re
from collections.abc import Iterator, Mapping

import torch
from torch import Tensor

from headstart.interop.families import Part, linear
from headstart.model.positions import sinusoids
from headstart.model.presets import ModelConfig

# Where the stream's columns are in our tensors: matrices that read it, and whatever writes it or norms it.
_READS = re.compile(r".*\.(tokens|qkv|feed_forward\.input)\.weight|head\.output\.weight")
_WRITES = re.compile(r".*\.((cross_)?attention\.output|feed_forward\.output|\w+_norm)\.(weight|bias)")


def block_parts(model: ModelConfig) -> Iterator[Part]:
    """All tensors of both stacks, by Marian's names without their `model.`."""
    qkv, rows = ("q_proj", "k_proj", "v_proj"), (model.width,) * 3
    for stack, depth in (("encoder", model.depth), ("decoder", model.decoder_depth)):
        for index in range(depth):
            block, layer = f"base.{stack}.blocks.{index}", f"{stack}.layers.{index}"
            kinds = [("attention", "self_attn", "attention_norm")]
            if stack == "decoder":
                kinds.append(("cross_attention", "encoder_attn", "cross_norm"))
            for ours, theirs, norm in kinds:
                yield from linear(f"{block}.{ours}.qkv", *(f"{layer}.{theirs}.{x}" for x in qkv), rows=rows)
                yield from linear(f"{block}.{ours}.output", f"{layer}.{theirs}.out_proj")
                yield from linear(f"{block}.{norm}", f"{layer}.{theirs}_layer_norm")
            yield from linear(f"{block}.feed_forward.input", f"{layer}.fc1")
            yield from linear(f"{block}.feed_forward.output", f"{layer}.fc2")
            yield from linear(f"{block}.feed_forward_norm", f"{layer}.final_layer_norm")


def marian_order(width: int) -> Tensor:
    """For each of Marian's columns, ours: the even ones, which hold the sines, and then the odd ones."""
    return torch.cat([torch.arange(0, width, 2), torch.arange(1, width, 2)])


def our_order(width: int) -> Tensor:
    """For each of our columns, Marian's."""
    return marian_order(width).argsort()


def reordered(ours: Mapping[str, Tensor], order: Tensor) -> dict[str, Tensor]:
    """Tensors under our names with the columns of the stream in this order, wherever they are."""
    return {name: _moved(name, tensor, order) for name, tensor in ours.items()}


def _moved(name: str, tensor: Tensor, order: Tensor) -> Tensor:
    if _READS.fullmatch(name):
        return tensor[:, order]
    return tensor[order] if _WRITES.fullmatch(name) else tensor


def marian_positions(length: int, width: int) -> Tensor:
    """What Marian adds to the embedding, (length, width)."""
    return sinusoids(torch.arange(length), width, torch.float32)[:, marian_order(width)]
