"""The peers of the GPU table: whole training steps, written anew the way each of them is used.

Every step is forward, backward, clip at 1.0 and AdamW with weights in fp32 and products in bf16 (autocast). Random
tokens are on the device before the clock starts, as they were when the peers' own figures were taken; so are a peer's
padded batches of documents. Dropout is off unless the shape has some.
"""

import importlib.util
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

from headstart.randomness import stream

POOL = 8  # batches of random tokens, taken in turn
IGNORED = -100
MASKED_SHARE = 0.15
PAD_TO = 64


@dataclass(frozen=True)
class Shape:
    """A Transformer and the batches it is trained on."""

    depth: int
    width: int
    heads: int
    ffn: int
    vocab: int
    rows: int
    length: int
    dropout: float = 0.0

    @property
    def tokens(self) -> int:
        return self.rows * self.length

    def operations(self, mean_length: float | None = None) -> float:
        """6N + 12·L·d·T for each token; N are the matrices, the tied one over the vocabulary once, no positions."""
        matrices = self.depth * (4 * self.width**2 + 2 * self.width * self.ffn) + self.vocab * self.width
        return 6 * matrices + 12 * self.depth * self.width * (mean_length or self.length)


@dataclass
class Work:
    """A training step that can be timed, and how many useful tokens each one has."""

    update: Callable[[int], None]
    tokens: Callable[[int], int]
    warmup: int = 10
    """Steps before the clock starts: all that is compiled is compiled by then."""

    notes: list[str] = field(default_factory=list)


Batch = dict[str, Tensor]


def is_installed(system: str) -> bool:
    """Whether the library that a system needs is there."""
    needed = {"hf": "transformers", "x": "x_transformers"}.get(system.split("-")[0])
    return needed is None or importlib.util.find_spec(needed) is not None


# ---- a step, the same for every peer ------------------------------------------------------------------------


def step_of(
    model: nn.Module,
    loss_of: Callable[[Batch], Tensor],
    batches: Sequence[Batch],
    device: torch.device,
    notes: list[str],
) -> Callable[[int], None]:
    """Forward, backward, clip, fused AdamW; a batch that memory does not hold is cut into micro-batches."""
    matrices = [p for p in model.parameters() if p.dim() >= 2]
    others = [p for p in model.parameters() if p.dim() < 2]
    groups = [{"params": matrices, "weight_decay": 0.1}, {"params": others, "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=6e-4, betas=(0.9, 0.95), fused=device.type == "cuda")
    parts = 1

    def backward(batch: Batch) -> None:
        for number in range(parts):
            part = {key: tensor.chunk(parts)[number] for key, tensor in batch.items()}
            with torch.autocast(device.type, torch.bfloat16, enabled=device.type == "cuda"):
                loss = loss_of(part)
            (loss / parts).backward()

    def update(step: int) -> None:
        nonlocal parts
        batch = batches[step % len(batches)]
        while True:
            try:
                backward(batch)
                break
            except torch.OutOfMemoryError:
                if 2 * parts > min(map(len, batch.values())):
                    raise
            parts *= 2
            notes[:] = [f"out of memory: {parts} micro-batches"]
            optimizer.zero_grad(set_to_none=True)
            torch.cuda.empty_cache()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad(set_to_none=True)

    return update


def prepare_torch() -> None:
    """Matrix products that are not in bf16 are in TF32, as nanoGPT and most scripts have it."""
    torch.manual_seed(0)
    torch.set_float32_matmul_precision("high")


def compiled_or_not(model: nn.Module, device: torch.device, compiled: bool) -> Any:
    """The whole model through torch.compile; away from a GPU it is traced only, which is enough to try it."""
    if not compiled:
        return model
    return torch.compile(model, backend="inductor" if device.type == "cuda" else "eager", dynamic=False)


def random_blocks(shape: Shape, device: torch.device) -> list[Tensor]:
    """Blocks of random tokens with the one that follows, (rows, length + 1)."""
    draws = stream(0, "peers' tokens")
    blocks = draws.integers(2, shape.vocab, (POOL, shape.rows, shape.length + 1))
    return [torch.from_numpy(block).to(device) for block in blocks]


def next_token_batches(shape: Shape, device: torch.device) -> list[Batch]:
    return [
        {"tokens": block[:, :-1].contiguous(), "targets": block[:, 1:].contiguous()}
        for block in random_blocks(shape, device)
    ]


# ---- GPT-2, plainly: the way nanoGPT writes it ----------------------------------------------------------------


class PlainBlock(nn.Module):
    """Attention and a feed-forward layer, each behind its norm and beside its residual."""

    def __init__(self, shape: Shape, bias: bool) -> None:
        super().__init__()
        self.heads, self.dropout = shape.heads, shape.dropout
        self.attention_norm = nn.LayerNorm(shape.width, bias=bias)
        self.qkv = nn.Linear(shape.width, 3 * shape.width, bias=bias)
        self.output = nn.Linear(shape.width, shape.width, bias=bias)
        self.ffn_norm = nn.LayerNorm(shape.width, bias=bias)
        self.inner = nn.Linear(shape.width, shape.ffn, bias=bias)
        self.outer = nn.Linear(shape.ffn, shape.width, bias=bias)
        self.drop = nn.Dropout(shape.dropout)

    def forward(self, x: Tensor) -> Tensor:
        rows, length, width = x.shape
        split = self.qkv(self.attention_norm(x)).split(width, dim=2)
        query, key, value = (part.view(rows, length, self.heads, -1).transpose(1, 2) for part in split)
        mixed = F.scaled_dot_product_attention(
            query, key, value, is_causal=True, dropout_p=self.dropout if self.training else 0.0
        )
        x = x + self.drop(self.output(mixed.transpose(1, 2).reshape(rows, length, width)))
        return x + self.drop(self.outer(F.gelu(self.inner(self.ffn_norm(x)))))


class PlainGPT(nn.Module):
    """Learned positions, tied output, logits at every place, and their cross-entropy by the book."""

    def __init__(self, shape: Shape, bias: bool = False) -> None:
        super().__init__()
        self.tokens = nn.Embedding(shape.vocab, shape.width)
        self.positions = nn.Embedding(shape.length, shape.width)
        self.drop = nn.Dropout(shape.dropout)
        self.blocks = nn.ModuleList(PlainBlock(shape, bias) for _ in range(shape.depth))
        self.final_norm = nn.LayerNorm(shape.width, bias=bias)
        self.logits = nn.Linear(shape.width, shape.vocab, bias=False)
        self.logits.weight = self.tokens.weight
        for parameter in self.parameters():
            if parameter.dim() >= 2:
                nn.init.normal_(parameter, std=0.02)

    def forward(self, tokens: Tensor, targets: Tensor) -> Tensor:
        places = torch.arange(tokens.shape[1], device=tokens.device)
        x = self.drop(self.tokens(tokens) + self.positions(places))
        for block in self.blocks:
            x = block(x)
        logits = self.logits(self.final_norm(x))
        return F.cross_entropy(logits.flatten(0, 1), targets.flatten())


def plain_gpt(shape: Shape, device: torch.device, compiled: bool) -> Work:
    prepare_torch()
    model = PlainGPT(shape).to(device).train()
    called, notes = compiled_or_not(model, device, compiled), list[str]()
    update = step_of(
        model,
        lambda batch: called(batch["tokens"], batch["targets"]),
        next_token_batches(shape, device),
        device,
        notes,
    )
    return Work(update, lambda step: shape.tokens, notes=notes)


# ---- Hugging Face and x-transformers --------------------------------------------------------------------------


def hf_gpt2(shape: Shape, device: torch.device, compiled: bool) -> Work:
    from transformers import GPT2Config, GPT2LMHeadModel

    prepare_torch()
    config = GPT2Config(
        vocab_size=shape.vocab, n_positions=shape.length, n_embd=shape.width, n_layer=shape.depth,
        n_head=shape.heads, n_inner=shape.ffn, resid_pdrop=shape.dropout, embd_pdrop=shape.dropout,
        attn_pdrop=shape.dropout, bos_token_id=0, eos_token_id=0, use_cache=False,
    )  # fmt: skip
    model: nn.Module = GPT2LMHeadModel(config)
    model.to(device).train()
    called, notes = compiled_or_not(model, device, compiled), list[str]()
    batches = [{"tokens": block[:, :-1].contiguous()} for block in random_blocks(shape, device)]
    update = step_of(
        model,
        lambda batch: called(input_ids=batch["tokens"], labels=batch["tokens"]).loss,
        batches,
        device,
        notes,
    )
    return Work(update, lambda step: shape.tokens, notes=notes)


def hf_bert(
    shape: Shape, device: torch.device, compiled: bool, batches: Sequence[dict[str, np.ndarray]] | None = None
) -> Work:
    """BERT's masked language model over random rows of one length, or over given batches with their padding."""
    from transformers import BertConfig, BertForMaskedLM

    prepare_torch()
    config = BertConfig(
        vocab_size=shape.vocab, hidden_size=shape.width, num_hidden_layers=shape.depth,
        num_attention_heads=shape.heads, intermediate_size=shape.ffn,
        max_position_embeddings=max(512, shape.length), hidden_dropout_prob=shape.dropout,
        attention_probs_dropout_prob=shape.dropout,
    )  # fmt: skip
    model: nn.Module = BertForMaskedLM(config)
    model.to(device).train()
    called, notes = compiled_or_not(model, device, compiled), list[str]()
    if batches is None:
        draws = stream(0, "peers' masks")
        batches = [
            masked_batch(block[:, :-1].cpu().numpy(), None, 1, shape.vocab, draws)
            for block in random_blocks(shape, device)
        ]
    held = [{key: torch.from_numpy(array).to(device) for key, array in batch.items()} for batch in batches]
    useful = [int(batch.get("attention_mask", np.ones_like(batch["input_ids"])).sum()) for batch in batches]
    update = step_of(model, lambda batch: called(**batch).loss, held, device, notes)
    warmup = len(held) + 3  # every length comes up, and is compiled
    return Work(update, lambda step: useful[step % len(useful)], warmup, notes)


def padded_batches(
    documents: Sequence[np.ndarray],
    rows: int,
    longest: int,
    pad_id: int,
    mask_id: int,
    vocab: int,
    count: int,
) -> list[dict[str, np.ndarray]]:
    """Documents in random order, so many a batch, padded to the longest of them rounded up to 64, and masked."""
    order = stream(0, "peers' order").permutation(len(documents))
    draws = stream(0, "peers' masks")
    batches = []
    for first in range(0, min(count * rows, len(order) - rows + 1), rows):
        chosen = [documents[number] for number in order[first : first + rows]]
        length = min(longest, -(-max(map(len, chosen)) // PAD_TO) * PAD_TO)
        tokens = np.full((rows, length), pad_id, np.int64)
        for row, ids in enumerate(chosen):
            tokens[row, : len(ids)] = ids
        present = np.arange(length) < np.array([len(ids) for ids in chosen])[:, None]
        batches.append(masked_batch(tokens, present, mask_id, vocab, draws))
    return batches


def masked_batch(
    tokens: np.ndarray, present: np.ndarray | None, mask_id: int, vocab: int, draws: np.random.Generator
) -> dict[str, np.ndarray]:
    """BERT's corruption: of 15 % of the tokens 80 % are hidden, 10 % exchanged, 10 % stay; the loss is there alone."""
    chosen = draws.random(tokens.shape) < MASKED_SHARE
    if present is not None:
        chosen &= present
    fate = draws.random(tokens.shape)
    seen = np.where(chosen & (fate < 0.8), mask_id, tokens)
    seen = np.where(chosen & (fate >= 0.9), draws.integers(2, vocab, tokens.shape), seen)
    batch = {"input_ids": seen, "labels": np.where(chosen, tokens, IGNORED)}
    return batch if present is None else {**batch, "attention_mask": present.astype(np.int64)}


def x_transformers(shape: Shape, device: torch.device, compiled: bool) -> Work:
    from x_transformers import Decoder, TransformerWrapper

    prepare_torch()
    model = TransformerWrapper(
        num_tokens=shape.vocab, max_seq_len=shape.length, tie_embedding=True, emb_dropout=shape.dropout,
        attn_layers=Decoder(
            dim=shape.width, depth=shape.depth, heads=shape.heads, attn_dim_head=shape.width // shape.heads,
            ff_mult=shape.ffn / shape.width, attn_flash=True, attn_dropout=shape.dropout,
            ff_dropout=shape.dropout,
        ),
    ).to(device).train()  # fmt: skip
    called, notes = compiled_or_not(model, device, compiled), list[str]()

    def loss_of(batch: Batch) -> Tensor:
        return F.cross_entropy(called(batch["tokens"]).flatten(0, 1), batch["targets"].flatten())

    update = step_of(model, loss_of, next_token_batches(shape, device), device, notes)
    return Work(update, lambda step: shape.tokens, notes=notes)


PEERS: dict[str, Callable[..., Work]] = {
    "plain": plain_gpt,
    "hf-gpt2": hf_gpt2,
    "hf-bert": hf_bert,
    "x-transformers": x_transformers,
}
