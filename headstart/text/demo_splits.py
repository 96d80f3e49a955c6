"""The splits of the embedded corpus: which reviews and pairs are in which, none of them twice.

Train alone lacks most of the late expressions; the null variant differs in the unlabelled split alone.
"""

from collections.abc import Callable, Iterator
from functools import lru_cache
from random import Random
from typing import Literal, NamedTuple

from headstart.randomness import seed_of
from headstart.text.demo_grammar import Reviewer
from headstart.text.demo_review import write_review, write_sentence
from headstart.text.demo_words import Expression, NothingLeft
from headstart.text.folding import fold_key
from headstart.text.phrases import Phrase
from headstart.text.phrases_adjectives import BAD, GOOD

Split = Literal["train", "valid", "test", "unlabelled"]
PairSplit = Literal["train", "valid", "test"]
# In the order in which they are made: a split has no text of those before it.
SIZES: dict[Split, int] = {"train": 1_600, "valid": 400, "test": 2_000, "unlabelled": 20_000}
PAIR_SIZES: dict[PairSplit, int] = {"train": 10_000, "valid": 500, "test": 1_000}

LATE_SHARE_IN_TRAIN = 0.05  # of the training reviews that may use late expressions; elsewhere all may
SENTENCE_SHARE = 0.6  # of the pairs; the others are whole reviews
PAIR_CHARACTERS = 200  # longer reviews are no pairs


class Review(NamedTuple):
    """A review. Its label follows from its grammar; the unlabelled text of the null variant has none."""

    french: str
    english: str
    label: str | None
    expressions: tuple[Expression, ...]


class Pair(NamedTuple):
    """A sentence or a short review in both languages."""

    english: str
    french: str


def reviews(seed: int, split: Split, count: int | None = None, null: bool = False) -> list[Review]:
    """The first reviews of a split: no text twice, none of an earlier split, the labels in balance.

    Only the unlabelled split has a null variant; the labelled ones stay as they are.
    """
    count = SIZES[split] if count is None else count
    order = list(SIZES)
    earlier = [review for name in order[: order.index(split)] for review in _labelled(seed, name)]
    taken = {fold_key(review.french) for review in earlier}
    random = Random(seed_of(seed, "demo reviews", split))
    null = null and split == "unlabelled"
    made: list[Review] = []
    for judgement in _in_balance(random, count):
        known_only = split == "train" and random.random() >= LATE_SHARE_IN_TRAIN
        key = ""
        while not key or key in taken:
            text, used = _written(write_review, random, judgement, null, known_only)
            key = fold_key(text.french)
        taken.add(key)
        label = None if null else "positive" if judgement == GOOD else "negative"
        made.append(Review(text.french, text.english, label, tuple(used)))
    return made


@lru_cache(maxsize=len(SIZES))
def _labelled(seed: int, split: Split) -> list[Review]:
    return reviews(seed, split)


def _in_balance(random: Random, count: int) -> Iterator[int]:
    """Good and bad judgements in equal parts: of each two one, the first by chance."""
    for number in range(count):
        if number % 2 == 0:
            judgement = GOOD if random.random() < 0.5 else BAD
        yield judgement if number % 2 == 0 else -judgement


def _written(
    write: Callable[[Reviewer], Phrase],
    random: Random,
    judgement: int,
    null: bool = False,
    known_only: bool = False,
) -> tuple[Phrase, list[Expression]]:
    """A text and its expressions; a reviewer who runs out of things to say is replaced."""
    while True:
        reviewer = Reviewer(random, judgement, null=null, known_only=known_only)
        try:
            return write(reviewer), reviewer.expressions
        except NothingLeft:
            continue


def pairs(seed: int, split: PairSplit, count: int | None = None) -> list[Pair]:
    """The first pairs of a split: no sentence twice and none of an earlier split, on either side."""
    count = PAIR_SIZES[split] if count is None else count
    order = list(PAIR_SIZES)
    earlier = [pair for name in order[: order.index(split)] for pair in _earlier_pairs(seed, name)]
    taken_english = {fold_key(pair.english) for pair in earlier}
    taken_french = {fold_key(pair.french) for pair in earlier}
    random = Random(seed_of(seed, "demo pairs", split))
    made: list[Pair] = []
    while len(made) < count:
        judgement = GOOD if random.random() < 0.5 else BAD
        write = write_sentence if random.random() < SENTENCE_SHARE else write_review
        text, _ = _written(write, random, judgement)
        english, french = fold_key(text.english), fold_key(text.french)
        if (
            len(text.french) <= PAIR_CHARACTERS
            and english not in taken_english
            and french not in taken_french
        ):
            taken_english.add(english)
            taken_french.add(french)
            made.append(Pair(text.english, text.french))
    return made


@lru_cache(maxsize=len(PAIR_SIZES))
def _earlier_pairs(seed: int, split: PairSplit) -> list[Pair]:
    return pairs(seed, split)
