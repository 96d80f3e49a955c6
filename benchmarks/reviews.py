"""Documents of uneven length for the GPU table: fr-reviews as ids, made once and read by every system."""

import gzip
import os
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from headstart.tokenizers.templates import template_of
from headstart.tokenizers.tokenizer import Tokenizer
from headstart.tokenizers.training import train

LONGEST = 512
VOCAB = 32_768
TINY_VOCAB = 320


@dataclass(frozen=True)
class Reviews:
    """Texts without their frames, each cut so that it fits with its frame, and the tokenizer."""

    tokenizer: Tokenizer
    ids: list[np.ndarray]
    longest: int

    @property
    def framed(self) -> list[np.ndarray]:
        """Each as a model reads it: `cls text sep`."""
        frame = template_of(self.tokenizer, "masked")
        return [frame.one(ids, self.longest).tokens for ids in self.ids]

    @property
    def lengths(self) -> np.ndarray:
        return np.array([len(ids) for ids in self.ids]) + template_of(self.tokenizer, "masked").cost

    @property
    def attended(self) -> float:
        """How many tokens a token looks at, on average: its own document's."""
        return float((self.lengths**2).sum() / self.lengths.sum())


def prepare(directory: Path, tiny: bool) -> None:
    """Train the tokenizer and write the ids; of the demo's reviews in a trial."""
    texts = _demo_texts() if tiny else _texts()
    tokenizer = train(lambda: iter(texts), vocab=TINY_VOCAB if tiny else VOCAB).tokenizer
    for role in ("cls", "sep", "pad", "mask"):
        tokenizer, _ = tokenizer.with_role(role)  # type: ignore[arg-type]
    tokenizer.save(directory)
    longest = 64 if tiny else LONGEST
    ids = [row[: longest - template_of(tokenizer, "masked").cost] for row in tokenizer.encode_many(texts)]
    ids = [row for row in ids if len(row)]
    np.savez(directory / "reviews.npz", ids=np.concatenate(ids), counts=[len(row) for row in ids], longest=longest)


def read(directory: Path) -> Reviews:
    """What `prepare` wrote."""
    with np.load(directory / "reviews.npz") as file:
        ids = np.split(file["ids"].astype(np.int64), np.cumsum(file["counts"])[:-1])
        return Reviews(Tokenizer.load(directory), ids, int(file["longest"]))


def _texts() -> list[str]:
    path = Path(os.environ["HEADSTART_DATA"]) / "fr-reviews" / "train.txt.gz"
    with gzip.open(path, "rt", encoding="utf-8") as file:
        return [line.rstrip("\n") for line in file]


def _demo_texts() -> list[str]:
    from headstart.demo.corpus import reviews

    return [review.french for review in reviews(0, "train", 60)]
