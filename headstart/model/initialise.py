"""The first weights, in one function: a tensor's numbers depend on its name and the seed, on nothing else."""

import math

import torch
from torch import Tensor, nn

from headstart.config.model import ModelConfig
from headstart.randomness import seed_of

TOKEN_VECTOR_SCALE = 0.1  # of token vectors that are given; 0.02 and 0.3 were no better (docs/findings.md)
_RESIDUAL = ("attention.output.weight", "feed_forward.output.weight")  # write into the residual stream
_LAB_ZEROS = ("attention.qkv.bias", "attention.output.bias", "head.output.bias", "head.classifier.bias")


def initialise(model: nn.Module, config: ModelConfig, seed: int) -> None:
    """Fill every parameter by the rule of its preset.

    lab              uniform ±0.1 for embeddings and outputs, torch's defaults elsewhere: what the course's code has
    xavier           Xavier for matrices, a deviation of width^−½ for embeddings (2017)
    normal           a deviation of 0.02 everywhere (BERT)
    normal-residual  the same, but what adds to the residual stream divided by √(2 · depth) (GPT-2)

    Norms start at one, biases at zero (except torch's defaults in `lab`).
    """
    for name, parameter in model.named_parameters():
        generator = torch.Generator().manual_seed(seed_of(seed, "initialise", name))
        # Drawn on the CPU in float32, for any device and precision: the same model everywhere.
        fresh = torch.empty(parameter.shape, device="cpu")
        _fill(fresh, name, config, generator)
        with torch.no_grad():
            parameter.copy_(fresh)


def take_token_vectors(model: nn.Module, vectors: Tensor) -> None:
    """Begin with these token vectors (vocab, width), of mean square 1; a token whose vector is zero keeps its own."""
    table = dict(model.named_parameters())["base.embedding.tokens.weight"]
    with torch.no_grad():
        is_known = vectors.any(dim=1, keepdim=True)
        table.copy_(torch.where(is_known, TOKEN_VECTOR_SCALE * vectors, table))


def _fill(tensor: Tensor, name: str, config: ModelConfig, generator: torch.Generator) -> None:
    is_lab, is_bias = config.init == "lab", name.endswith("bias")
    is_table = name.startswith(("base.embedding.", "base.target_embedding."))
    if name.endswith(("norm.weight", "norm.bias")):
        tensor.fill_(0.0 if is_bias else 1.0)
    elif is_bias and (not is_lab or name.endswith(_LAB_ZEROS)):
        tensor.zero_()
    elif is_lab and (is_table or name in ("head.output.weight", "head.classifier.weight")):
        tensor.uniform_(-0.1, 0.1, generator=generator)
    elif is_lab and not name.endswith("qkv.weight"):
        # nn.Linear's own: within one over the root of what goes in.
        fan_in = config.ffn if "feed_forward.output" in name else config.width
        tensor.uniform_(-(fan_in**-0.5), fan_in**-0.5, generator=generator)
    elif config.init == "xavier" and (is_table or name == "head.output.weight"):
        tensor.normal_(0.0, config.width**-0.5, generator=generator)
    elif is_lab or config.init == "xavier":
        nn.init.xavier_uniform_(tensor, generator=generator)
    else:
        depth = config.decoder_depth if ".decoder." in name else config.depth
        is_residual = config.init == "normal-residual" and name.endswith(_RESIDUAL)
        tensor.normal_(0.0, 0.02 / math.sqrt(2 * depth) if is_residual else 0.02, generator=generator)
