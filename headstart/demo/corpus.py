"""The demo corpus: French book reviews with their English, made by a grammar that knows each judgement.

It is the default data of classification, generation and translation, and the right answer is known by construction.
The unlabelled text shows what a few labels cannot: rare expressions next to known ones, so pretraining can help. In
the null variant the same words stand next to each other by chance, so pretraining cannot help.

`reviews` and `pairs` give it as Python objects, `write` as ordinary files. No text is in two splits. Most training
reviews lack the late expressions; the null variant differs in the unlabelled split only.

A review has a greeting perhaps, how the book came, what it is about, what it is worth. Reviewers have two manners.
Most say what they think, sentence after sentence: there an expression's company tells its polarity. The others weigh:
they grant, deny, compare and contradict, and whoever counts words is lost.
"""

import contextlib
import hashlib
import json
import os
from collections.abc import Callable, Iterable, Iterator
from functools import lru_cache
from pathlib import Path
from random import Random
from typing import Any, Literal, NamedTuple

from headstart.data.leakage.text_key import text_key
from headstart.demo.grammar import Expression, NothingLeft, Pool, Reviewer
from headstart.demo.phrases import BAD, GOOD, NEUTRAL, TEMPLATES, Phrase, SentenceTemplate, capitalised
from headstart.errors import UserError
from headstart.randomness import seed_of
from headstart.storage.atomic import atomic_file, flush

DemoSplit = Literal["train", "valid", "test", "unlabelled"]
PairSplit = Literal["train", "valid", "test"]
Make = Callable[[int, Any], list[Any]]  # reviews or pairs, of a seed and a split

# In the order in which they are made: a split has no text of those before it.
SIZES: dict[DemoSplit, int] = {"train": 1_600, "valid": 400, "test": 2_000, "unlabelled": 20_000}
PAIR_SIZES: dict[PairSplit, int] = {"train": 10_000, "valid": 500, "test": 1_000}
LATE_SHARE_IN_TRAIN = 0.05  # of the training reviews that may use late expressions; elsewhere all may
SENTENCE_SHARE = 0.6  # of the pairs; the others are whole reviews
PAIR_CHARACTERS = 200  # longer reviews are no pairs

WEIGHING_SHARE = 0.34
STRAIGHT_SHARE_IN_WEIGHING = 0.25  # of the sentences after the first
COUNTS = {  # sentences of judgement
    "straight": Pool((1, 2, 3, 4), (0.08, 0.22, 0.34, 0.36)),
    "weighing": Pool((1, 2, 3), (0.25, 0.55, 0.20)),
}
VERDICT_SHARE = {"straight": 0.30, "weighing": 0.15}
_POOLS = {name: Pool(group, [template.weight for template in group]) for name, group in TEMPLATES.items()}
_STRAIGHT = _POOLS["straight"]
_WEIGHING = Pool([_POOLS[name] for name in ("contrasts", "rejections", "comparisons")], (0.55, 0.28, 0.17))


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


def reviews(seed: int, split: DemoSplit, count: int | None = None, null: bool = False) -> list[Review]:
    """The first reviews of a split: no text twice, none of an earlier split, the labels in balance."""
    count = SIZES[split] if count is None else count
    taken = {text_key(review.french) for review in _earlier(reviews, SIZES, seed, split)}
    random = Random(seed_of(seed, "demo reviews", split))
    null = null and split == "unlabelled"  # the labelled splits stay as they are
    made: list[Review] = []
    for judgement in _in_balance(random, count):
        known_only = split == "train" and random.random() >= LATE_SHARE_IN_TRAIN
        key = ""
        while not key or key in taken:
            text, used = _written(write_review, random, judgement, null, known_only)
            key = text_key(text.french)
        taken.add(key)
        label = None if null else "positive" if judgement == GOOD else "negative"
        made.append(Review(text.french, text.english, label, tuple(used)))
    return made


def _earlier(make: Make, sizes: dict[Any, int], seed: int, split: str) -> list[Any]:
    """All of the splits that are made before this one."""
    order = list(sizes)
    return [one for name in order[: order.index(split)] for one in _whole_split(make, seed, name)]


@lru_cache(maxsize=8)
def _whole_split(make: Make, seed: int, split: str) -> list[Any]:
    return make(seed, split)


def _in_balance(random: Random, count: int) -> Iterator[int]:
    """Good and bad judgements in equal parts: of each two one, the first by chance."""
    for number in range(count):
        if number % 2 == 0:
            judgement = GOOD if random.random() < 0.5 else BAD
        yield judgement if number % 2 == 0 else -judgement


def _written(
    write: Callable[[Reviewer], Phrase], random: Random, judgement: int, null: bool, known_only: bool
) -> tuple[Phrase, list[Expression]]:
    """A text and its expressions; a reviewer who runs out of things to say is replaced."""
    while True:
        reviewer = Reviewer(random, judgement, null, known_only)
        try:
            return write(reviewer), reviewer.expressions
        except NothingLeft:
            continue


def pairs(seed: int, split: PairSplit, count: int | None = None) -> list[Pair]:
    """The first pairs of a split: no sentence twice and none of an earlier split, on either side."""
    count = PAIR_SIZES[split] if count is None else count
    earlier = _earlier(pairs, PAIR_SIZES, seed, split)
    taken_english = {text_key(pair.english) for pair in earlier}
    taken_french = {text_key(pair.french) for pair in earlier}
    random = Random(seed_of(seed, "demo pairs", split))
    made: list[Pair] = []
    while len(made) < count:
        judgement = GOOD if random.random() < 0.5 else BAD
        write = write_sentence if random.random() < SENTENCE_SHARE else write_review
        text, _ = _written(write, random, judgement, False, False)
        english, french = text_key(text.english), text_key(text.french)
        is_new = english not in taken_english and french not in taken_french
        if is_new and len(text.french) <= PAIR_CHARACTERS:
            taken_english.add(english)
            taken_french.add(french)
            made.append(Pair(text.english, text.french))
    return made


# ---- texts


def write_review(reviewer: Reviewer) -> Phrase:
    """The reviewer's text in both languages; `NothingLeft` when the reviewer has run out of things to say."""
    manner = "weighing" if reviewer.chance(WEIGHING_SHARE) else "straight"
    count = COUNTS[manner].draw(reviewer.random)
    reviewer.only = count == 1
    parts = _opening(reviewer) if count > 1 else []
    parts += [reviewer.fill(template) for template in _templates(reviewer, manner, count)]
    if reviewer.chance(VERDICT_SHARE[manner]):
        parts.append(_verdict(reviewer))
    if count > 1 and reviewer.chance(0.12):
        parts.append(reviewer.one_of(NEUTRAL["closings"]))
    return Phrase(" ".join(part.french for part in parts), " ".join(part.english for part in parts))


def write_sentence(reviewer: Reviewer) -> Phrase:
    """A single sentence, for translation: most with a judgement, some without."""
    if reviewer.chance(0.25):
        return _neutral(reviewer, "contexts" if reviewer.chance(0.4) else "summaries")
    group = _STRAIGHT if reviewer.chance(0.5) else _WEIGHING.draw(reviewer.random)
    return reviewer.fill(group.draw(reviewer.random))


def _templates(reviewer: Reviewer, manner: str, count: int) -> list[SentenceTemplate]:
    """The templates of the judgements; of those that weigh, each kind once."""
    chosen: list[SentenceTemplate] = []
    kinds_chosen: list[Pool] = []
    while len(chosen) < count:
        straight = manner == "straight" or (len(chosen) > 0 and reviewer.chance(STRAIGHT_SHARE_IN_WEIGHING))
        kind = _STRAIGHT if straight else _WEIGHING.draw(reviewer.random)
        template = kind.draw(reviewer.random)
        if template in chosen or kind in kinds_chosen or (count == 1 and not template.alone):
            continue
        chosen.append(template)
        if not straight:
            kinds_chosen.append(kind)
    return chosen


def _opening(reviewer: Reviewer) -> list[Phrase]:
    parts: list[Phrase] = []
    if reviewer.chance(0.12):
        parts.append(reviewer.one_of(NEUTRAL["greetings"]))
    if reviewer.chance(0.3):
        parts.append(_neutral(reviewer, "contexts"))
    if reviewer.chance(0.15):
        parts.append(_neutral(reviewer, "summaries"))
    return parts


def _verdict(reviewer: Reviewer) -> Phrase:
    verdict = reviewer.whole("verdicts", 1)
    mark = Phrase(" !", "!") if reviewer.chance(0.35) else Phrase(".", ".")
    return Phrase(capitalised(verdict.french) + mark.french, capitalised(verdict.english) + mark.english)


def _neutral(reviewer: Reviewer, kind: str) -> Phrase:
    return reviewer.sentence(reviewer.one_of(NEUTRAL[kind]))


# ---- files


class WrittenFile(NamedTuple):
    """A file of the corpus."""

    name: str
    rows: int
    size_bytes: int
    sha256: str
    fresh: bool  # written now; otherwise it was there already, with these bytes


def write_demo(directory: str | Path, seed: int = 0, null: bool = False) -> list[WrittenFile]:
    """Write the corpus into a directory; files that are there already must be the same, to the byte."""
    folder = Path(directory)
    files = {name: (rows, text.encode("utf-8")) for name, (rows, text) in _contents(seed, null).items()}
    existing = {name for name in files if os.path.lexists(folder / name)}
    for name in sorted(existing):
        if not (folder / name).is_file() or (folder / name).read_bytes() != files[name][1]:
            what, fix = "is there already, with other content", "give another --out, or move it away"
            raise UserError(what, where=folder / name, fix=fix, code="exists")
    size = sum(len(data) for _, data in files.values())
    with contextlib.ExitStack() as stack:  # all are on the disk before the first gets its name
        for name in files.keys() - existing:
            file = stack.enter_context(atomic_file(folder / name, size))
            file.write(files[name][1])
            file.flush()
            flush(Path(file.name))
    return [
        WrittenFile(name, rows, len(data), hashlib.sha256(data).hexdigest(), name not in existing)
        for name, (rows, data) in files.items()
    ]


def _contents(seed: int, null: bool) -> dict[str, tuple[int, str]]:
    """For each file its number of rows and its text."""
    contents = {"unlabelled.txt": _lines(r.french for r in reviews(seed, "unlabelled", null=null))}
    for split in SIZES:
        if split != "unlabelled":
            rows = ({"text": review.french, "label": review.label} for review in reviews(seed, split))
            contents[f"{split}.jsonl"] = _lines(json.dumps(row, ensure_ascii=False) for row in rows)
    for pair_split in PAIR_SIZES:
        contents[f"pairs.{pair_split}.tsv"] = _lines(map("\t".join, pairs(seed, pair_split)))
    contents["README.md"] = _lines(_readme(seed, null))
    return contents


def _lines(rows: Iterable[str]) -> tuple[int, str]:
    lines = list(rows)
    return len(lines), "".join(f"{line}\n" for line in lines)


def _readme(seed: int, null: bool) -> list[str]:
    facts = {"seed": seed, "variant": "null variant, " if null else "", "rows": SIZES, "pairs": PAIR_SIZES}
    template = Path(__file__).with_name("readme.md").read_text("utf-8")
    return template.format(**facts, unlabelled=_UNLABELLED[null]).splitlines()


_UNLABELLED = (
    "one a line, in the manner of the labelled ones",
    "the same words as often, but each expression good or bad by a coin of its own: it teaches nothing of sentiment",
)
