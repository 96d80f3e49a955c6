"""How the sentences of the embedded corpus are made: frames with signed places, filled with polar expressions.

The reviewer's judgement is drawn first. A place that is said in earnest takes an expression of that polarity, a
place that is granted, denied or put in another's mouth takes one of the other. In the null variant each
expression's polarity is a coin of its own, whatever the place: the same sentences, the same words as often, but
the company of an expression tells nothing about it.
"""

import re
from collections.abc import Callable, Sequence
from functools import cache
from random import Random
from typing import Any

from headstart.text import phrases_frames as frames
from headstart.text import phrases_neutral as neutral
from headstart.text.demo_words import Expression, NothingLeft, pool
from headstart.text.phrases import ASPECTS, SOMEONE, THE_BOOK, Aspect, Phrase, a, capitalised, elided
from headstart.text.phrases_adjectives import BAD, GOOD, Adjective


class Reviewer:
    """One review in the making: its judgement, what it has said so far, and the words it may use."""

    def __init__(
        self, random: Random, judgement: int, *, null: bool = False, known_only: bool = False
    ) -> None:
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
        fresh = [thing for thing in things if thing not in self.said]
        if not fresh:
            raise NothingLeft
        thing = fresh[int(self.random.random() * len(fresh))]
        self.said.add(thing)
        return thing

    def express(self, kind: str, sign: int, fits: str = "", beside: Sequence[Adjective] = ()) -> Any:
        """An expression for a place of this sign: not used before, nor its stem, nor from a list of those beside."""
        polarity = sign * self.judgement
        if self.null:
            polarity = GOOD if self.chance(0.5) else BAD
        words = pool(kind, polarity, fits, self.known_only)
        lists = {word.list_number for word in beside}
        for _ in range(40):
            row, late = words.draw(self.random)
            stem = row.french[:4] if kind in ("adjective", "noun") else row.french
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
        free = [
            aspect
            for aspect in ASPECTS
            if aspect.rank >= rank
            and aspect.topic not in self.said
            and self.signs.get(aspect.family, sign) == sign
        ]
        if not free:
            raise NothingLeft
        aspect = free[int(self.random.random() * len(free))]
        self.said.add(aspect.topic)
        self.signs[aspect.family] = sign
        return aspect

    def fill(self, frame: frames.Frame) -> Phrase:
        """The frame's sentence with all its places filled."""
        parts = [_PLACES[slot.kind](self, slot.sign) for slot in frame.slots]
        return self.told(Phrase(frame.french, frame.english), parts)

    def told(self, form: Phrase, parts: Sequence[Phrase] = ()) -> Phrase:
        """A sentence with the parts and whatever neutral phrases it names, with elisions and capitals."""
        around: dict[str, Phrase] = {}
        for name in _names(form.french):
            if name in _AROUND:
                around[name] = self.one_of(_AROUND[name])
        if "{work}" in form.french:
            work = self.one_of(neutral.WORKS)
            around |= {"this": Phrase(work.this, "this"), "work": Phrase(work.french, work.english)}
        if "{hero}" in form.french:
            hero, deed = self.one_of(neutral.HEROES), self.one_of(neutral.DEEDS)
            does = deed.plural if hero.plural else deed.singular
            around |= {"hero": Phrase(hero.french, hero.english), "deed": does}
        french = form.french.format(
            *(part.french for part in parts), **{n: p.french for n, p in around.items()}
        )
        english = form.english.format(
            *(part.english for part in parts), **{n: p.english for n, p in around.items()}
        )
        return Phrase(capitalised(elided(french)), capitalised(english))

    # What is said of an aspect of the book.

    def words(self, aspect: Aspect, sign: int, *more: float) -> list[Adjective]:
        """Adjectives for an aspect: one, and with these chances a second and a third."""
        words: list[Adjective] = [self.express("adjective", sign, aspect.group)]
        for share in more:
            if self.chance(share):
                words.append(self.express("adjective", sign, aspect.group, beside=words))
        return words

    def verb(self, aspect: Aspect, sign: int) -> Phrase | None:
        """A verb for an aspect, where both polarities have one, so that a sentence's form never tells its side."""
        if not all(pool("verb", side, aspect.group, self.known_only).things for side in (GOOD, BAD)):
            return None
        verb = self.express("verb", sign, aspect.group)
        return Phrase(
            verb.plural if aspect.plural else verb.french,
            verb.english_plural if aspect.english_plural else verb.english,
        )

    def plain(self, sign: int, rank: int = 1) -> Phrase:
        """The plot is gripping; the plot keeps you on edge."""
        aspect = self.aspect(sign, rank if sign > 0 else 0)
        if self.chance(0.3) and (does := self.verb(aspect, sign)):
            return Phrase(f"{aspect.french} {does.french}", f"the {aspect.english_noun} {does.english}")
        return _of(frames.IS, aspect, self.words(aspect, sign))

    def clause(self, sign: int, rank: int = 1, *, found: bool = True) -> Phrase:
        """What is plain, or with more art: denied, doubled, stressed, as a finding."""
        form = self.random.random()
        if form < 0.3:
            return self.plain(sign, rank)
        aspect = self.aspect(sign, rank if sign > 0 else 0)
        if form < 0.42 and aspect.rank:
            return self.denied(aspect, sign)
        if form < 0.76:
            return _of(frames.IS, aspect, self.words(aspect, sign, 1.0))
        if form < 0.88 or not found:
            return _of(self.one_of(frames.STRESSED), aspect, self.words(aspect, sign))
        return _of(frames.FOUND, aspect, self.words(aspect, sign))

    def denied(self, aspect: Aspect, sign: int) -> Phrase:
        """Never boring, anything but boring: the word is of the other polarity than what is meant."""
        word = self.express("adjective", -sign, aspect.group + "n")
        return _of(self.one_of(frames.DENIALS + frames.LASTING_DENIALS * aspect.lasts), aspect, [word])

    def turned(self, sign: int) -> Phrase:
        """Far from being predictable, the plot is gripping."""
        aspect = self.aspect(sign, 2)
        against = self.express("adjective", -sign, aspect.group + "n")
        return _of(self.one_of(frames.TURNS), aspect, self.words(aspect, sign, 0.3), [against])

    def as_for(self, sign: int) -> Phrase:
        """As for the style, it is elegant and fluid."""
        aspect = self.aspect(sign, 1)
        return _of(self.one_of(frames.AS_FOR), aspect, self.words(aspect, sign, 1.0, 0.3))

    def apposed(self, sign: int) -> Phrase:
        """The style, elegant and fluid, hits the mark."""
        aspect = self.aspect(sign, 1)
        subject = _of(frames.APPOSED, aspect, self.words(aspect, sign, 1.0))
        if not (does := self.verb(aspect, sign)):
            raise NothingLeft
        return Phrase(f"{subject.french} {does.french}", f"{subject.english} {does.english}")

    def subjunctive(self, sign: int) -> Phrase:
        aspect = self.aspect(sign, 0)
        return _of(frames.SUBJUNCTIVE, aspect, self.words(aspect, sign, 0.3))

    def thing(self, sign: int, *more: float) -> Phrase:
        """A gripping plot."""
        aspect = self.aspect(sign, 1 if sign > 0 else 0)
        return _of(frames.THING, aspect, self.words(aspect, sign, *more))

    def tag(self, sign: int) -> Phrase:
        """Gripping plot."""
        aspect = self.aspect(sign, 1)
        return _of(frames.TAG, aspect, self.words(aspect, sign, 0.5))

    # What is said of the book as a whole.

    def book(self, sign: int) -> Phrase:
        form = self.random.random()
        if form < 0.4:
            return self.whole("effect", sign)
        if form < 0.6:
            past = self.express("past", sign)
            return Phrase(f"je l'ai {past.french}", f"I {past.english}")
        if form < 0.75:
            return _it_is(self.noun(sign))
        if form < 0.88:
            return self.book_is(sign)
        word, book = self.express("adjective", -sign, "bn"), self.one_of(THE_BOOK)
        denial = self.one_of(frames.BOOK_DENIALS)
        return Phrase(
            denial.french.format(the=book.french, so=word.french),
            denial.english.format(the=book.english, so=word.english),
        )

    def book_is(self, sign: int) -> Phrase:
        word = self.word(sign)
        if self.chance(0.4):
            return _it_is(word)
        book = self.one_of(THE_BOOK)
        return Phrase(f"{book.french} est {word.french}", f"{book.english} is {word.english}")

    def reported(self, sign: int) -> Phrase:
        """What somebody may say of the book, without "je"."""
        form = self.random.random()
        if form < 0.5:
            aspect = self.aspect(sign, 1 + self.only)
            return _of(frames.IS, aspect, self.words(aspect, sign, 0.3))
        return _it_is(self.noun(sign)) if form < 0.75 else self.book_is(sign)

    def noun(self, sign: int) -> Phrase:
        noun = self.express("noun", sign)
        article, true = ("un", "vrai") if noun.gender == "m" else ("une", "vraie")
        if self.chance(0.25):
            return Phrase(f"{article} {true} {noun.french}", f"a real {noun.english}")
        return Phrase(f"{article} {noun.french}", a(noun.english))

    def name(self, sign: int) -> Phrase:
        """What the book is called: no article in French."""
        noun = self.express("noun", sign)
        return Phrase(noun.french, a(noun.english))

    def exclaimed(self, sign: int) -> Phrase:
        noun = self.express("noun", sign)
        return Phrase(
            f"{'quel' if noun.gender == 'm' else 'quelle'} {noun.french}", f"what {a(noun.english)}"
        )

    def word(self, sign: int, fits: str = "b") -> Phrase:
        word = self.express("adjective", sign, fits)
        return Phrase(word.french, word.english)

    def first_word(self, sign: int) -> Phrase:
        """The first adjective before a noun: English has the article there."""
        word = self.word(sign)
        return Phrase(word.french, a(word.english))

    def whole(self, kind: str, sign: int, fits: str = "") -> Phrase:
        whole = self.express(kind, sign, fits)
        return Phrase(whole.french.format(e="e" if self.feminine else ""), whole.english)


_PLACES: dict[str, Callable[[Reviewer, int], Phrase]] = {
    "plain": Reviewer.plain,
    "clause": Reviewer.clause,
    "main": lambda reviewer, sign: reviewer.clause(sign, 2),
    "statement": lambda reviewer, sign: reviewer.clause(sign, 2, found=False),
    "subjunctive": Reviewer.subjunctive,
    "thing": Reviewer.thing,
    "rich_thing": lambda reviewer, sign: reviewer.thing(sign, 0.6),
    "tag": Reviewer.tag,
    "as_for": Reviewer.as_for,
    "apposed": Reviewer.apposed,
    "turned": Reviewer.turned,
    "book": Reviewer.book,
    "reported": Reviewer.reported,
    "noun": Reviewer.noun,
    "name": Reviewer.name,
    "exclaimed": Reviewer.exclaimed,
    "word": Reviewer.word,
    "first_word": Reviewer.first_word,
    "comparable": lambda reviewer, sign: reviewer.word(sign, "bq"),
    "past": lambda reviewer, sign: reviewer.whole("past", sign, "s"),
    "deniable": lambda reviewer, sign: reviewer.whole("past", sign, "n"),
    "verdict": lambda reviewer, sign: reviewer.whole("verdict", sign),
    "luckily": lambda reviewer, sign: reviewer.whole("luckily", sign),
    "snag": lambda reviewer, sign: reviewer.whole("snag", sign),
}
_AROUND: dict[str, Sequence[Phrase]] = {
    "lead": neutral.LEADS,
    "decisive": neutral.DECISIVE,
    "someone": SOMEONE,
    "title": neutral.TITLES,
    "author": neutral.AUTHORS,
    "when": neutral.WHEN,
    "pages": neutral.PAGES,
    "ordinal": neutral.ORDINALS,
    "place": neutral.PLACES,
    "time": neutral.TIMES,
}


@cache
def _names(form: str) -> tuple[str, ...]:
    """The neutral phrases that a form asks for."""
    return tuple(re.findall(r"{([a-z]+)}", form))


def _of(
    form: Phrase, aspect: Aspect, words: Sequence[Adjective], against: Sequence[Adjective] = ()
) -> Phrase:
    """A form of words about an aspect, in agreement with it."""
    so, english_so = _joined(aspect, words)
    other, english_other = _joined(aspect, against)
    french = form.french.format(so=so, so_neutral=words[0].french, against=other, **aspect.french_words)
    english = form.english.format(
        so=english_so,
        against=english_other,
        a_so=aspect.english_with(english_so),
        a_against=aspect.english_with(english_other),
        **aspect.english_words,
    )
    return Phrase(french, english)


def _joined(aspect: Aspect, words: Sequence[Adjective]) -> Phrase:
    """A; A and B; A, B and C."""
    if not words:
        return Phrase("", "")
    french = [word.agreeing(aspect.gender, aspect.plural) for word in words]
    english = [word.english for word in words]
    if len(words) == 1:
        return Phrase(french[0], english[0])
    return Phrase(f"{', '.join(french[:-1])} et {french[-1]}", f"{', '.join(english[:-1])} and {english[-1]}")


def _it_is(what: Phrase) -> Phrase:
    return Phrase(f"c'est {what.french}", f"it is {what.english}")
