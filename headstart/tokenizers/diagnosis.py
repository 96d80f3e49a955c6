"""The diagnosis of a tokenizer: numbers that show whether it fits the text and the model, counted on a sample."""

import operator
import unicodedata
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import islice

import numpy as np

from headstart.errors import UserError
from headstart.randomness import stream
from headstart.tokenizers.tokenizer import Tokenizer

SAMPLE_BYTES = 8 << 20
BATCH_TEXTS = 512
SHOWN = 12  # of the most frequent and of the longest tokens

# The lab's model (width 200, 4 layers, feed-forward 200) has these parameters beside what the vocabulary sizes.
LAB_WIDTH = 200
LAB_REST = 968_000

PROBES: dict[str, str] = {
    "accents": "Où ça ? À l’été, là-bas : être, naïf, aiguë",
    "straight apostrophe": "L'auteur n'a pas aujourd'hui",
    "curly apostrophe": "L’auteur n’a pas aujourd’hui",
    "œ and æ": "Œuvre, cœur, sœur, ex æquo",
    "guillemets": "« Bonjour », dit-elle – puis — plus rien…",
    "no-break spaces": "Vraiment\u00a0? Oui\u202f!",
    "euro and degree": "12,50 € à 20 °C, n° 3",
    "emoji": "Génial 😀👍🏽 👩‍👩‍👧 ❤️",
    "decomposed (NFD)": unicodedata.normalize("NFD", "été à Noël"),
    "Windows line ends": "une ligne\r\nune autre\r\n",
    "tabs and runs of spaces": "a\tb   c  \n\n d",
    "other scripts": "Ελληνικά, русский, العربية, 中文",
    "digits": "1984, 3.14, 20 000",
    "spelled special token": "<mask> [MASK] </s> <pad>",
}


@dataclass(frozen=True)
class Diagnosis:
    """The numbers of the report."""

    vocabulary: int
    text_bytes: int  # of the sample
    words: int
    tokens: int
    unknown: int  # tokens of the sample that stand for something the vocabulary does not have
    texts: int
    texts_changed: int  # those that decoding does not give back, as the tokenizer normalises them
    normalise: tuple[str, ...]  # normalised on purpose, so not counted as a change
    probes: dict[str, str]  # for each probe what decoding gave, where it differs; empty where it survived
    single_byte_share: float  # of the sample's tokens: those of one byte or one character, the last resort
    unused: int  # ordinary tokens that the sample does not use
    most_frequent: list[tuple[str, int]]
    longest: list[tuple[str, int]]  # with how often each is used in the sample
    bytes_per_token: float
    tokens_per_word: float
    embedding_parameters: int
    embedding_share: float  # of all parameters of the lab-size language model

    @property
    def is_of_characters(self) -> bool:
        """Whether no token is longer than one character."""
        return all(len(piece) == 1 for piece, _ in self.longest)


def diagnose(
    tokenizer: Tokenizer, texts: Iterable[str], *, text_bytes: int | None = None, sample_bytes: int = SAMPLE_BYTES
) -> Diagnosis:
    """Examine a tokenizer on a sample of the texts; `text_bytes`, their size if known, spreads it evenly."""
    counts = np.zeros(tokenizer.size, np.int64)
    size = words = text_count = changed = 0
    source = _sample(texts, sample_bytes, text_bytes)
    while batch := list(islice(source, BATCH_TEXTS)):
        encoded = tokenizer.encode_many(batch)
        counts += np.bincount(np.concatenate(encoded), minlength=tokenizer.size)
        size += sum(len(text.encode("utf-8", "replace")) for text in batch)
        words += sum(len(text.split()) for text in batch)
        text_count += len(batch)
        decoded = [tokenizer.decode(ids) for ids in encoded]
        changed += sum(map(operator.ne, decoded, map(tokenizer.normalised, batch)))
    if not counts.any():
        fix = "give a file with some text"
        raise UserError("there is no text to examine the tokenizer on", fix=fix, code="too-few")
    ordinary = np.ones(tokenizer.size, bool)
    ordinary[sorted(tokenizer.special_ids)] = False
    pieces = tokenizer.pieces_of(range(tokenizer.size))
    unknown = tokenizer.roles["unknown"]
    tokens, embedding = int(counts.sum()), tokenizer.size * LAB_WIDTH
    frequent = np.argsort(-counts, kind="stable")
    longest = sorted(np.flatnonzero(ordinary).tolist(), key=lambda i: (-len(pieces[i]), i))
    singles = np.array([len(piece) == 1 for piece in tokenizer.pieces])
    return Diagnosis(
        vocabulary=tokenizer.size,
        text_bytes=size, words=words, tokens=tokens,
        unknown=0 if unknown is None else int(counts[unknown]),
        texts=text_count, texts_changed=changed, normalise=tokenizer.normalise, probes=probed(tokenizer),
        single_byte_share=float(counts[singles & ordinary].sum() / counts.sum()),
        unused=int((ordinary & (counts == 0)).sum()),
        most_frequent=[(pieces[i], int(counts[i])) for i in frequent[:SHOWN] if counts[i]],
        longest=[(pieces[i], int(counts[i])) for i in longest[:SHOWN]],
        bytes_per_token=size / tokens, tokens_per_word=tokens / max(1, words),
        embedding_parameters=embedding, embedding_share=embedding / (LAB_REST + 2 * embedding + tokenizer.size),
    )  # fmt: skip


def probed(tokenizer: Tokenizer) -> dict[str, str]:
    """What decoding gives for each probe; empty where it is unchanged."""
    decoded = {name: tokenizer.decode(tokenizer.encode(text)) for name, text in PROBES.items()}
    return {name: "" if decoded[name] == tokenizer.normalised(PROBES[name]) else decoded[name] for name in PROBES}


def _sample(texts: Iterable[str], sample_bytes: int, text_bytes: int | None) -> Iterator[str]:
    """A fixed random share of the texts where their size is known, else the beginning."""
    share = 1.0 if text_bytes is None else min(1.0, sample_bytes / max(1, text_bytes))
    draws = stream(0, "doctor sample")
    taken = 0
    for text in texts:
        if share == 1 or draws.random() < share:
            taken += len(text.encode("utf-8", "replace"))
            yield text
        if share == 1 and taken >= sample_bytes:
            return
