"""The cases of the GPU table: shapes, who trains them, what the peers reached before, and what is asked for."""

import dataclasses
from dataclasses import dataclass

import reviews
from peers import Shape

GPT2 = Shape(depth=12, width=768, heads=12, ffn=3072, vocab=50_304, rows=32, length=1024)
SMALL = Shape(depth=4, width=200, heads=2, ffn=800, vocab=50_304, rows=64, length=256)
CHARACTERS = Shape(depth=6, width=384, heads=6, ffn=1536, vocab=65, rows=64, length=256)
BERT = Shape(depth=12, width=768, heads=12, ffn=3072, vocab=32_768, rows=256, length=128)


@dataclass(frozen=True)
class Case:
    """One shape, and who trains it."""

    name: str
    shape: Shape
    systems: tuple[str, ...]
    of_documents: bool = False


HEADSTART = "headstart"
PLAIN = ("plain compiled", "plain eager")
HF_GPT2 = ("hf-gpt2 compiled", "hf-gpt2 eager")
CASES: dict[str, list[Case]] = {
    "gpt2": [
        Case(
            "GPT-2 124M, 32 × 1024",
            GPT2,
            (HEADSTART, *PLAIN, *HF_GPT2, "x-transformers compiled"),
        ),
        Case("GPT-2 124M, 64 × 1024", dataclasses.replace(GPT2, rows=64), (HEADSTART, "plain compiled")),
    ],
    "small": [
        Case(
            "4 layers, width 200, vocabulary 50,304, 64 × 256",
            SMALL,
            (HEADSTART, "plain compiled", "hf-gpt2 eager", "hf-bert eager"),
        ),
        Case(
            "4 layers, width 200, vocabulary 8,192, 64 × 256",
            dataclasses.replace(SMALL, vocab=8192),
            (HEADSTART, *PLAIN, *HF_GPT2, "x-transformers compiled"),
        ),
    ],
    "shakespeare": [
        Case("6 layers, width 384, characters, 64 × 256", CHARACTERS, (HEADSTART, "plain compiled")),
        Case(
            "6 layers, width 384, characters, 64 × 256, dropout 0.2",
            dataclasses.replace(CHARACTERS, dropout=0.2),
            (HEADSTART, "plain compiled"),
        ),
    ],
    "bert": [
        Case("BERT-base, 256 × 128, random tokens", BERT, ("hf-bert compiled", "hf-bert eager")),
        Case(
            "BERT-base, fr-reviews cut at 512, 256 documents",
            dataclasses.replace(BERT, length=reviews.LONGEST),
            (HEADSTART, "hf-bert compiled"),
            of_documents=True,
        ),
    ],
    "memory": [Case("GPT-2 124M, 32 × 1024, memory", GPT2, (HEADSTART, "plain compiled"))],
}  # fmt: skip

# Tokens a second on one H200 with torch 2.11: what a peer has to reach, by case and system.
ANCHORS: dict[tuple[str, str], float] = {
    ("GPT-2 124M, 64 × 1024", "plain compiled"): 530e3,
    ("GPT-2 124M, 32 × 1024", "plain compiled"): 513e3,
    ("GPT-2 124M, 32 × 1024, memory", "plain compiled"): 513e3,
    ("GPT-2 124M, 32 × 1024", "plain eager"): 408e3,
    ("GPT-2 124M, 32 × 1024", "hf-gpt2 compiled"): 413e3,
    ("GPT-2 124M, 32 × 1024", "hf-gpt2 eager"): 212e3,
    ("BERT-base, 256 × 128, random tokens", "hf-bert compiled"): 475e3,
    ("BERT-base, 256 × 128, random tokens", "hf-bert eager"): 417e3,
    ("4 layers, width 200, vocabulary 50,304, 64 × 256", "plain compiled"): 2.27e6,
    ("4 layers, width 200, vocabulary 50,304, 64 × 256", "hf-gpt2 eager"): 0.80e6,
    ("4 layers, width 200, vocabulary 50,304, 64 × 256", "hf-bert eager"): 1.07e6,
    ("4 layers, width 200, vocabulary 8,192, 64 × 256", "plain compiled"): 2.95e6,
    ("4 layers, width 200, vocabulary 8,192, 64 × 256", "plain eager"): 2.46e6,
    ("4 layers, width 200, vocabulary 8,192, 64 × 256", "hf-gpt2 eager"): 1.02e6,
    ("6 layers, width 384, characters, 64 × 256", "plain compiled"): 1.78e6,
}
# How many times a peer's tokens a second Headstart is to reach.
GOALS: dict[tuple[str, str], float] = {
    ("GPT-2 124M, 32 × 1024", "plain compiled"): 1.10,
    ("GPT-2 124M, 64 × 1024", "plain compiled"): 1.10,
    ("4 layers, width 200, vocabulary 8,192, 64 × 256", "plain compiled"): 2.5,
    ("4 layers, width 200, vocabulary 8,192, 64 × 256", "hf-gpt2 eager"): 7.0,
    ("BERT-base, fr-reviews cut at 512, 256 documents", "hf-bert compiled"): 2.0,
}


def tiny(shape: Shape, of_documents: bool) -> Shape:
    """The same work at a size that a CPU does in no time."""
    sizes = {"depth": 2, "width": 16, "heads": 2, "ffn": 32, "vocab": 97, "rows": 4, "length": 16}
    return dataclasses.replace(shape, **(sizes | ({"length": 64, "vocab": 0} if of_documents else {})))
