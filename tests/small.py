"""Small things that several tests need: a tokenizer, a corpus, a store."""

from functools import cache

import numpy as np
import torch

from headstart.config.model import HeadConfig
from headstart.config.presets import preset
from headstart.config.training import LoopConfig, Masking, OptimizerConfig
from headstart.data.packing import PackedBlocks
from headstart.data.sentence_pairs import SentencePairs
from headstart.data.token_store import Header, TokenStore
from headstart.machine import Machine
from headstart.model.model import build
from headstart.objectives.classification import Classification
from headstart.objectives.pretraining import Causal, Corruptor, Masked, MaskedNextSentence
from headstart.randomness import stream
from headstart.runs.checkpoint import weights_digest
from headstart.tokenizers.templates import template_of
from headstart.tokenizers.training import train
from headstart.training.loop import Training

KINDS = ["causal", "masked", "masked-nsp", "classification"]

WORDS = [
    "le", "la", "un", "une", "livre", "roman", "fin", "style", "histoire", "est", "était", "belle", "long",
    "triste", "drôle", "très", "peu", "vraiment",
]  # fmt: skip


def sentences(count, seed=0):
    """Sentences of made-up words, the same for the same seed."""
    draws = stream(seed, "test sentences")
    return [" ".join(draws.choice(WORDS, size=int(draws.integers(3, 12)))) + "." for _ in range(count)]


@cache
def tokenizer(vocab=320):
    return train(lambda: iter(sentences(300)), vocab=vocab).tokenizer


@cache
def store(documents=40, sentences_each=3, seed=1):
    texts = sentences(documents * sentences_each, seed)
    ids = [list(map(int, row)) for row in tokenizer().encode_many(texts)]
    return store_of([ids[i : i + sentences_each] for i in range(0, len(ids), sentences_each)])


def store_of(documents):
    """A store in memory, from lists: documents of segments of ids."""
    segments = [[segment for segment in document if len(segment)] for document in documents]
    tokens = np.array([i for document in segments for segment in document for i in segment], np.uint32)
    totals = [total for document in segments if (total := sum(map(len, document)))]
    lengths = [len(segment) for document in segments for segment in document]
    starts = [np.cumsum([0, *sizes], dtype=np.int64) for sizes in (totals, lengths)]
    return TokenStore(tokens, *starts, Header("uint32", len(tokens), *(len(s) - 1 for s in starts)), None)


def objective(kind, batch=4, length=24):
    """A small objective of each kind."""
    frame = template_of(tokenizer(), "causal" if kind in ("causal", "classification") else "masked")
    if kind == "classification":
        texts = sentences(24, seed=4)
        examples = [frame.one(ids, length) for ids in tokenizer().encode_many(texts)]
        targets = np.array(["belle" in text for text in texts], np.int64)
        head = HeadConfig(kind=kind, pooling="mean")
        return Classification(examples, targets, head, batch, tokenizer().id_of("pad"))
    corruptor = Corruptor(tokenizer(), Masking())
    if kind == "masked-nsp":
        pairs = SentencePairs(store(), 2 * length, frame)
        return MaskedNextSentence(pairs, batch, corruptor, tokenizer().id_of("pad"))
    blocks = PackedBlocks(store(), length, frame)
    return Causal(blocks, batch) if kind == "causal" else Masked(blocks, batch, corruptor)


def training(directory, kind="causal", optimizer=None, model=None, **loop):
    """A small training of each kind, with dropout and two micro-batches."""
    fields = {"width": 16, "ffn": 24, "heads": 2, "segments": 2, "dropout": 0.1, "attention_dropout": 0.1}
    direction = "causal" if kind in ("causal", "classification") else "bidirectional"
    config = preset("tiny", vocab=tokenizer().size, **{**fields, "direction": direction, **(model or {})})
    goal = objective(kind)
    return Training(
        directory=directory,
        model=build(config, goal.head, seed=1),
        objective=goal,
        valid=objective(kind),
        optimizer=OptimizerConfig(**{"learning_rate": 3e-3, **(optimizer or {})}),
        loop=LoopConfig(**{"steps": 12, "accumulate": 2, "save_every": 3, "save_every_seconds": 1e9, **loop}),
        machine=Machine(torch.device("cpu"), "fp32", 1),
        facts={"machine": {"threads": "1"}},
        log=lambda line: None,
    )


def digest(found):
    return weights_digest(dict(found.model.named_parameters()))
