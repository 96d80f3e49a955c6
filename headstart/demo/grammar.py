"""The sentences of the demo corpus: templates with signed slots, filled with expressions of judgement.

The reviewer's judgement is drawn first. A slot that is meant takes an expression of that polarity; a slot that is
granted, denied or quoted takes one of the other. In the null variant each expression's polarity is a coin toss,
independent of the slot: the same sentences, the same words as often, but the context of an expression tells nothing.

Expressions are drawn by rank, the first of a list far more often than the last. One in three is known, at every
rank; the others are late: most training reviews do without them, while the unlabelled text and the test use them
all, together with known ones.
"""

import re
from bisect import bisect
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from itertools import accumulate
from random import Random
from typing import Any, NamedTuple

from headstart.demo import phrases
from headstart.demo.phrases import BAD, FORMS, GOOD, Adjective, Aspect, Phrase, SentenceTemplate, a, capitalised

HEAD_RANK, TAIL_POWER = 1.5, 2.2  # an expression's weight is 1 / (1 + (rank / head) ** power)
KNOWN_EVERY, KNOWN_FIRST = 3, 2  # known ranks, counted from 0, are 2, 5, 8, …


class Expression(NamedTuple):
    """A polar expression as it was used."""

    french: str
    polarity: int
    late: bool


class NothingLeft(Exception):
    """The review has spoken of everything that the next slot could be about."""


class Pool:
    """Things to draw by weight."""

    def __init__(self, things: Sequence[Any], weights: Sequence[float]) -> None:
        self.things = things
        self.bounds = list(accumulate(weights))

    def draw(self, random: Random) -> Any:
        return self.things[bisect(self.bounds, random.random() * self.bounds[-1])]


def _ranked(kind: str, polarity: int) -> Iterator[tuple[Any, float, bool]]:
    """The expressions of a kind, each with its weight and whether it is late."""
    for rows in phrases.EXPRESSIONS[polarity][kind]:
        for rank, row in enumerate(rows):
            yield row, 1 / (1 + (rank / HEAD_RANK) ** TAIL_POWER), rank % KNOWN_EVERY != KNOWN_FIRST


@cache
def pool(kind: str, polarity: int, fits: str, known_only: bool) -> Pool:
    """The expressions of a kind that have all these letters, each with whether it is late."""
    rows = [
        (row, weight, late)
        for row, weight, late in _ranked(kind, polarity)
        if not (late and known_only) and all(letter in row.fits for letter in fits)
    ]
    return Pool([(row, late) for row, _, late in rows], [weight for _, weight, _ in rows])


class Reviewer:
    """One review in the making: its judgement, what it has said so far, and the words it may use."""

    def __init__(self, random: Random, judgement: int, null: bool = False, known_only: bool = False) -> None:
        self.random, self.judgement, self.null, self.known_only = random, judgement, null, known_only
        self.feminine = self.chance(0.5)
        self.expressions: list[Expression] = []
        self.said: set[Any] = set()  # expressions, topics and neutral phrases that are used up
        self.signs: dict[str, int] = {}  # of each family of aspects spoken of
        self.only = False  # whether the judgement being made is the only one of the review

    def chance(self, share: float) -> bool:
        return self.random.random() < share

    def one_of(self, things: Sequence[Any]) -> Any:
        """One of some things, none of them twice in a review."""
        thing = self.any_of([thing for thing in things if thing not in self.said])
        self.said.add(thing)
        return thing

    def any_of(self, things: Sequence[Any]) -> Any:
        if not things:
            raise NothingLeft
        return things[int(self.random.random() * len(things))]

    def express(self, kind: str, sign: int, fits: str = "", beside: Sequence[Adjective] = ()) -> Any:
        """An expression for a slot of this sign: not used before, nor its stem, nor from a list of those beside."""
        polarity = sign * self.judgement
        if self.null:
            polarity = GOOD if self.chance(0.5) else BAD
        choices = pool(kind, polarity, fits, self.known_only)
        lists = {word.list_number for word in beside}
        for _ in range(40):
            row, late = choices.draw(self.random)
            stem = row.french[:4] if kind in ("adjectives", "nouns") else row.french
            if stem not in self.said and not (lists and row.list_number in lists):
                break
        else:
            raise NothingLeft
        self.said.add(stem)
        self.expressions.append(Expression(row.french, polarity, late))
        return row

    def aspect(self, sign: int, rank: int) -> Aspect:
        """Something to speak of, not spoken of before, of no family that was spoken of with the other sign."""
        if sign > 0 and self.only:
            rank = 2
        ranked = [one for one in phrases.ASPECTS if one.rank >= rank and one.topic not in self.said]
        aspect = self.any_of([one for one in ranked if self.signs.get(one.family, sign) == sign])
        self.said.add(aspect.topic)
        self.signs[aspect.family] = sign
        return aspect

    def fill(self, template: SentenceTemplate) -> Phrase:
        """The template's sentence with all its slots filled."""
        parts = [_SLOTS[kind](self, sign) for sign, kind in template.slots]
        return self.sentence(Phrase(template.french, template.english), parts)

    def sentence(self, form: Phrase, parts: Sequence[Phrase] = ()) -> Phrase:
        """A sentence with the parts and the neutral phrases that it names, with elisions and capitals."""
        wanted = (name for name in _names(form.french) if name in phrases.FILLERS)
        around: dict[str, Phrase] = {name: self.one_of(phrases.FILLERS[name]) for name in wanted}
        if "{work}" in form.french:
            work = self.one_of(phrases.WORKS)
            around |= {"this": Phrase(work.this, "this"), "work": Phrase(work.french, work.english)}
        if "{hero}" in form.french:
            hero, deed = self.one_of(phrases.HEROES), self.one_of(phrases.DEEDS)
            around |= {"hero": Phrase(hero.french, hero.english), "deed": deed[hero.plural]}
        french, english = (
            phrase.format(*(part[side] for part in parts), **{name: one[side] for name, one in around.items()})
            for side, phrase in enumerate(form)
        )
        return Phrase(capitalised(phrases.elided(french)), capitalised(english))

    # What is said of an aspect of the book.

    def adjectives(self, aspect: Aspect, sign: int, *more: float) -> list[Adjective]:
        """Adjectives for an aspect: one, and with these chances a second and a third."""
        chosen: list[Adjective] = [self.express("adjectives", sign, aspect.group)]
        for share in more:
            if self.chance(share):
                chosen.append(self.express("adjectives", sign, aspect.group, beside=chosen))
        return chosen

    def verb(self, aspect: Aspect, sign: int) -> Phrase | None:
        """A verb for an aspect, where both polarities have one, so that a sentence's form never tells its side."""
        if not all(pool("verbs", side, aspect.group, self.known_only).things for side in (GOOD, BAD)):
            return None
        verb = self.express("verbs", sign, aspect.group)
        english = verb.english_plural if aspect.english_plural else verb.english
        return Phrase(verb.plural if aspect.plural else verb.french, english)

    def plain(self, sign: int, rank: int = 1) -> Phrase:
        """The plot is gripping; the plot keeps you on edge."""
        aspect = self.aspect(sign, rank if sign > 0 else 0)
        if self.chance(0.3) and (does := self.verb(aspect, sign)):
            return Phrase(f"{aspect.french} {does.french}", f"the {aspect.english_noun} {does.english}")
        return _of(FORMS["is"][0], aspect, self.adjectives(aspect, sign))

    def clause(self, sign: int, rank: int = 1, *, found: bool = True) -> Phrase:
        """What is plain, or with more art: denied, doubled, stressed, as a finding."""
        form = self.random.random()
        if form < 0.3:
            return self.plain(sign, rank)
        aspect = self.aspect(sign, rank if sign > 0 else 0)
        if form < 0.42 and aspect.rank:
            return self.denied(aspect, sign)
        if form < 0.76:
            return _of(FORMS["is"][0], aspect, self.adjectives(aspect, sign, 1.0))
        if form < 0.88 or not found:
            return _of(self.one_of(FORMS["stressed"]), aspect, self.adjectives(aspect, sign))
        return _of(FORMS["found"][0], aspect, self.adjectives(aspect, sign))

    def denied(self, aspect: Aspect, sign: int) -> Phrase:
        """Never boring, anything but boring: the word is of the other polarity than what is meant."""
        word = self.express("adjectives", -sign, aspect.group + "n")
        return _of(self.one_of(FORMS["denials"] + FORMS["lasting_denials"] * aspect.lasts), aspect, [word])

    def turned(self, sign: int) -> Phrase:
        """Far from being predictable, the plot is gripping."""
        aspect = self.aspect(sign, 2)
        against = self.express("adjectives", -sign, aspect.group + "n")
        return _of(self.one_of(FORMS["turns"]), aspect, self.adjectives(aspect, sign, 0.3), [against])

    def apposed(self, sign: int) -> Phrase:
        """The style, elegant and fluid, hits the mark."""
        aspect = self.aspect(sign, 1)
        subject = _of(FORMS["apposed"][0], aspect, self.adjectives(aspect, sign, 1.0))
        if not (does := self.verb(aspect, sign)):
            raise NothingLeft
        return Phrase(f"{subject.french} {does.french}", f"{subject.english} {does.english}")

    def about(self, forms: Sequence[Phrase], sign: int, rank: int, *more: float) -> Phrase:
        """One of these forms about an aspect, with these chances of more than one adjective."""
        aspect = self.aspect(sign, rank)
        form = self.one_of(forms) if len(forms) > 1 else forms[0]
        return _of(form, aspect, self.adjectives(aspect, sign, *more))

    # What is said of the book as a whole.

    def book(self, sign: int) -> Phrase:
        form = self.random.random()
        if form < 0.4:
            return self.whole("effects", sign)
        if form < 0.6:
            past = self.express("pasts", sign)
            return Phrase(f"je l'ai {past.french}", f"I {past.english}")
        if form < 0.75:
            return _it_is(self.noun(sign))
        if form < 0.88:
            return self.book_is(sign)
        word, book = self.express("adjectives", -sign, "bn"), self.one_of(phrases.THE_BOOK)
        sides = zip(self.one_of(FORMS["book_denials"]), book, (word.french, word.english), strict=True)
        return Phrase(*(denial.format(the=the, so=so) for denial, the, so in sides))

    def book_is(self, sign: int) -> Phrase:
        word = self.word(sign)
        if self.chance(0.4):
            return _it_is(word)
        book = self.one_of(phrases.THE_BOOK)
        return Phrase(f"{book.french} est {word.french}", f"{book.english} is {word.english}")

    def reported(self, sign: int) -> Phrase:
        """What somebody may say of the book, without "je"."""
        form = self.random.random()
        if form < 0.5:
            return self.about(FORMS["is"], sign, 1 + self.only, 0.3)
        return _it_is(self.noun(sign)) if form < 0.75 else self.book_is(sign)

    def noun(self, sign: int) -> Phrase:
        noun = self.express("nouns", sign)
        article, true = ("un", "vrai") if noun.gender == "m" else ("une", "vraie")
        if self.chance(0.25):
            return Phrase(f"{article} {true} {noun.french}", f"a real {noun.english}")
        return Phrase(f"{article} {noun.french}", a(noun.english))

    def name(self, sign: int) -> Phrase:
        """What the book is called: no article in French."""
        noun = self.express("nouns", sign)
        return Phrase(noun.french, a(noun.english))

    def exclaimed(self, sign: int) -> Phrase:
        noun = self.express("nouns", sign)
        which = "quel" if noun.gender == "m" else "quelle"
        return Phrase(f"{which} {noun.french}", f"what {a(noun.english)}")

    def word(self, sign: int, fits: str = "b") -> Phrase:
        word = self.express("adjectives", sign, fits)
        return Phrase(word.french, word.english)

    def first_word(self, sign: int) -> Phrase:
        """The first adjective before a noun: English has the article there."""
        word = self.word(sign)
        return Phrase(word.french, a(word.english))

    def whole(self, kind: str, sign: int, fits: str = "") -> Phrase:
        whole = self.express(kind, sign, fits)
        return Phrase(whole.french.format(e="e" if self.feminine else ""), whole.english)


_METHODS = "plain clause apposed turned book reported noun name exclaimed word first_word"

_SLOTS: dict[str, Callable[[Reviewer, int], Phrase]] = {
    **{name: getattr(Reviewer, name) for name in _METHODS.split()},
    "main": lambda reviewer, sign: reviewer.clause(sign, 2),
    "statement": lambda reviewer, sign: reviewer.clause(sign, 2, found=False),
    "subjunctive": lambda reviewer, sign: reviewer.about(FORMS["subjunctive"], sign, 0, 0.3),
    "thing": lambda reviewer, sign: reviewer.about(FORMS["thing"], sign, sign > 0),
    "rich_thing": lambda reviewer, sign: reviewer.about(FORMS["thing"], sign, sign > 0, 0.6),
    "tag": lambda reviewer, sign: reviewer.about(FORMS["tag"], sign, 1, 0.5),
    "as_for": lambda reviewer, sign: reviewer.about(FORMS["as_for"], sign, 1, 1.0, 0.3),
    "comparable": lambda reviewer, sign: reviewer.word(sign, "bq"),
    "past": lambda reviewer, sign: reviewer.whole("pasts", sign, "s"),
    "deniable": lambda reviewer, sign: reviewer.whole("pasts", sign, "n"),
    "verdict": lambda reviewer, sign: reviewer.whole("verdicts", sign),
    "luckily": lambda reviewer, sign: reviewer.whole("luckily", sign),
    "snag": lambda reviewer, sign: reviewer.whole("snags", sign),
}


@cache
def _names(form: str) -> tuple[str, ...]:
    """The neutral phrases that a form asks for."""
    return tuple(re.findall(r"{([a-z]+)}", form))


def _of(form: Phrase, aspect: Aspect, words: Sequence[Adjective], against: Sequence[Adjective] = ()) -> Phrase:
    """A form of words about an aspect, in agreement with it."""
    so, other = _joined(aspect, words), _joined(aspect, against)
    in_french = {"so": so.french, "so_neutral": words[0].french, "against": other.french}
    in_english = {"so": so.english, "against": other.english}
    in_english |= {f"a_{name}": aspect.english_with(adjectives) for name, adjectives in in_english.items()}
    return Phrase(
        form.french.format(**in_french, **phrases.french_words(aspect)),
        form.english.format(**in_english, **phrases.english_words(aspect)),
    )


def _joined(aspect: Aspect, words: Sequence[Adjective]) -> Phrase:
    """A; A and B; A, B and C."""
    french = [word.agreeing(aspect.gender, aspect.plural) for word in words]
    english = [word.english for word in words]
    if len(words) < 2:
        return Phrase("".join(french), "".join(english))
    return Phrase(f"{', '.join(french[:-1])} et {french[-1]}", f"{', '.join(english[:-1])} and {english[-1]}")


def _it_is(what: Phrase) -> Phrase:
    return Phrase(f"c'est {what.french}", f"it is {what.english}")
