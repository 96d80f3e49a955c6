"""The phrases of the demo corpus, and how French and English are put together.

The phrases are data: `expressions.toml` holds the expressions of judgement, `sentences.toml` the aspects of a book,
the templates of sentences and the sentences without a judgement. Every phrase has its French, its English, and what
French needs to agree: gender, number, elision.
"""

import re
import tomllib
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

GOOD, BAD = 1, -1
_VOWELS = "aeiouyàâéèêëîïôöùûœAEIOUYÀÂÉÈÊËÎÏÔÖÙÛŒ"
_MUTE_H = ("humain", "horripilant", "histoire", "hôtel", "hiver")
_ELISION = re.compile(rf"\b([Qq]u|[Dd]|[Nn]|[Jj])e (?=[{_VOWELS}]|{'|'.join(_MUTE_H)})")
_SENTENCE_START = re.compile(r"(^|[.!?] )(« |“)?(\w)")


def elided(french: str) -> str:
    """The sentence with que, de, ne and je elided where a vowel or a mute h follows, and no "des" after "de"."""
    return _ELISION.sub(r"\1'", french.replace(" de des ", " de "))


def capitalised(text: str) -> str:
    """The text with a capital at the start of each sentence."""
    return _SENTENCE_START.sub(lambda match: match[1] + (match[2] or "") + match[3].upper(), text)


def a(english: str) -> str:
    """The English noun phrase with its indefinite article."""
    return f"an {english}" if english[0] in "aeiou" and not english.startswith("one-") else f"a {english}"


class Phrase(NamedTuple):
    """A stretch of French and its English."""

    french: str
    english: str


class Aspect(NamedTuple):
    """Something of a book that can be good or bad."""

    french: str  # with its definite article, which shows number and elision
    gender: str
    english: str  # with "a" where it can be counted; a plural ends in s
    group: str  # one letter: which adjectives and verbs fit
    topic: str
    family: str
    rank: int = 2  # 2: can decide the judgement, 1: one remark among others, 0: can only be granted

    @property
    def plural(self) -> bool:
        return self.french.startswith("les ")

    @property
    def english_plural(self) -> bool:
        return not self.english.startswith(("a ", "an ")) and self.english.endswith("s")

    @property
    def english_noun(self) -> str:
        return re.sub(r"^an? ", "", self.english)

    @property
    def lasts(self) -> bool:
        """Whether it can be so "at a moment": an ending or a cover cannot."""
        return self.group in "ptuwdoc"

    def english_with(self, adjectives: str) -> str:
        """The indefinite noun phrase: a gripping plot, gripping suspense, gripping characters."""
        phrase = f"{adjectives} {self.english_noun}"
        return a(phrase) if self.english.startswith(("a ", "an ")) else phrase


@cache
def french_words(aspect: Aspect) -> dict[str, str]:
    """The words around an aspect that agree with it; `to` and `of` are contracted: au style, des personnages."""
    article, noun = re.fullmatch(r"(l'|le |la |les )(.*)", aspect.french).groups()  # type: ignore[union-attr]
    masculine, many = aspect.gender == "m", aspect.plural
    return {
        "the": aspect.french,
        "noun": noun,
        "a": f"{'des' if many else 'un' if masculine else 'une'} {noun}",
        "to": {"le ": f"au {noun}", "les ": f"aux {noun}"}.get(article, f"à {aspect.french}"),
        "of": {"le ": f"du {noun}", "les ": f"des {noun}"}.get(article, f"de {aspect.french}"),
        "it": ("il" if masculine else "elle") + ("s" if many else ""),
        "be": "sont" if many else "est",
        "be_subjunctive": "soient" if many else "soit",
        "not_be": "ne sont" if many else "n'est",
        "not_have": "n'ont" if many else "n'a",
    }


@cache
def english_words(aspect: Aspect) -> dict[str, str]:
    many = aspect.english_plural
    return {
        "the": f"the {aspect.english_noun}",
        "noun": aspect.english_noun,
        "it": "they" if many else "he" if aspect.english_noun.endswith("character") else "it",
        "be": "are" if many else "is",
    }


class Adjective(NamedTuple):
    """Forms in the order masculine, feminine, masculine plural, feminine plural."""

    french: str
    forms: tuple[str, str, str, str]
    english: str
    fits: str
    list_number: int

    def agreeing(self, gender: str, plural: bool) -> str:
        return self.forms[(gender == "f") + 2 * plural]


def _adjective(list_number: int, masculine: str, feminine: str, english: str, fits: str) -> Adjective:
    singular = masculine.replace("·", "")
    if " " not in singular and "!" not in fits:
        fits += "n"
    if feminine == "=":
        return Adjective(singular, (singular,) * 4, english, fits, list_number)
    feminine = feminine or masculine
    forms = (singular, feminine.replace("·", ""), _plural(masculine), _plural(feminine))
    return Adjective(singular, forms, english, fits, list_number)


def _plural(phrase: str) -> str:
    head, _, tail = phrase.partition("·")
    if head.endswith(("s", "x")):
        return head + tail
    if head.endswith("al") and head not in ("banal", "bancal"):
        return head[:-1] + "ux" + tail
    return head + "s" + tail


class Verb(NamedTuple):
    """What an aspect of the book does."""

    french: str
    plural: str
    english: str
    english_plural: str
    fits: str


class Noun(NamedTuple):
    """What the book is."""

    gender: str
    french: str
    english: str


class Past(NamedTuple):
    """What somebody did with the book: a past participle after "l'a", and the English after the subject."""

    french: str
    english: str
    fits: str = ""  # s: fit for others than the reviewer; n: to deny it is a judgement


class SentenceTemplate(NamedTuple):
    """A sentence or two with numbered slots; `alone` when it can be the only judgement of a review."""

    french: str
    english: str
    slots: tuple[tuple[int, str], ...]  # the sign (+1 shares the judgement of the review, -1 goes against it), the kind
    weight: float
    alone: bool


def _template(french: str, english: str, slots: str, weight: float, alone: bool = True) -> SentenceTemplate:
    parsed = tuple((1 if slot[0] == "+" else -1, slot[1:]) for slot in slots.split())
    return SentenceTemplate(french, english, parsed, weight, alone)


class LiteraryWork(NamedTuple):
    """A kind of book, with "this" for it."""

    this: str
    french: str
    english: str


class Hero(NamedTuple):
    """Who a book is about."""

    french: str
    english: str
    plural: bool = False


def _read(name: str) -> dict[str, Any]:
    return tomllib.loads(Path(__file__).with_name(name).read_text("utf-8"))


def _phrases(rows: list[list[str]]) -> tuple[Phrase, ...]:
    return tuple(Phrase(*row) for row in rows)


def _expressions(kind: str, rows: list[Any]) -> list[list[Any]]:
    """The lists of a kind, each with its own ranks: four of adjectives, one of everything else."""
    if kind == "adjectives":
        return [[_adjective(number, *row) for row in part] for number, part in enumerate(rows)]
    make = {"verbs": Verb, "nouns": Noun, "pasts": Past}.get(kind, Phrase)  # {e} is the reviewer's feminine
    return [[make(*row) for row in rows]]


_SENTENCES = _read("sentences.toml")

EXPRESSIONS: dict[int, dict[str, list[list[Any]]]] = {
    {"good": GOOD, "bad": BAD}[side]: {kind: _expressions(kind, rows) for kind, rows in kinds.items()}
    for side, kinds in _read("expressions.toml").items()
}

ASPECTS = tuple(Aspect(*row) for row in _SENTENCES["aspects"])
THE_BOOK = _phrases(_SENTENCES["the_book"])
FORMS = {name: _phrases(rows) for name, rows in _SENTENCES["forms"].items()}
TEMPLATES = {name: tuple(_template(*row) for row in rows) for name, rows in _SENTENCES["templates"].items()}
FILLERS = {name: _phrases(rows) for name, rows in _SENTENCES["fillers"].items()}
_NEUTRAL = _SENTENCES["neutral"]

NEUTRAL = {name: _phrases(_NEUTRAL[name]) for name in ("greetings", "closings", "contexts", "summaries")}
WORKS = tuple(LiteraryWork(*row) for row in _NEUTRAL["works"])
HEROES = tuple(Hero(*row) for row in _NEUTRAL["heroes"])
DEEDS = tuple(_phrases(forms) for forms in _NEUTRAL["deeds"])  # what the hero does, and what the heroes do
