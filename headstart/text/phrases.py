"""What the reviews of the embedded corpus talk about, and how French and English are put together.

Every phrase is given in French with its English, and with what French needs to agree: gender, number, elision.
Expressions of judgement are in `phrases_adjectives` and `phrases_polar`, the sentences that they are put into in
`phrases_frames`, and sentences without a judgement in `phrases_neutral`.
"""

import re
from functools import cache
from typing import NamedTuple

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
    """Something of a book that can be good or bad.

    A review speaks of each `topic` once, and never grants a fault in the same `family` where it sees a merit:
    "le rythme est mou, mais l'intrigue est haletante" would contradict itself.
    """

    french: str  # with its definite article, which shows number and elision
    gender: str
    english: str  # with "a" where it can be counted; a plural ends in s
    group: str  # one letter: which adjectives and verbs fit (see phrases_polar)
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

    @property
    def french_words(self) -> dict[str, str]:
        return _french_words(self)

    @property
    def english_words(self) -> dict[str, str]:
        return _english_words(self)

    def english_with(self, adjectives: str) -> str:
        """The indefinite noun phrase: a gripping plot, gripping suspense, gripping characters."""
        phrase = f"{adjectives} {self.english_noun}"
        return a(phrase) if self.english.startswith(("a ", "an ")) else phrase


@cache
def _french_words(aspect: Aspect) -> dict[str, str]:
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
def _english_words(aspect: Aspect) -> dict[str, str]:
    many = aspect.english_plural
    return {
        "the": f"the {aspect.english_noun}",
        "noun": aspect.english_noun,
        "it": "they" if many else "he" if aspect.english_noun.endswith("character") else "it",
        "be": "are" if many else "is",
    }


ASPECTS = (
    Aspect("l'intrigue", "f", "a plot", "p", "plot", "story"),
    Aspect("l'histoire", "f", "a story", "p", "plot", "story"),
    Aspect("le récit", "m", "a narrative", "p", "plot", "story"),
    Aspect("le scénario", "m", "a storyline", "p", "plot", "story"),
    Aspect("les rebondissements", "m", "plot twists", "e", "twists", "story", 1),
    Aspect("la fin", "f", "an ending", "e", "ending", "ending"),
    Aspect("le dénouement", "m", "a denouement", "e", "ending", "ending"),
    Aspect("la dernière partie", "f", "a last part", "e", "ending", "ending", 1),
    Aspect("les premiers chapitres", "m", "opening chapters", "e", "opening", "opening", 1),
    Aspect("le début", "m", "a beginning", "e", "opening", "opening", 1),
    Aspect("le rythme", "m", "a pace", "t", "pace", "story", 1),
    Aspect("le suspense", "m", "suspense", "t", "suspense", "story", 1),
    Aspect("l'univers", "m", "a world", "u", "world", "world"),
    Aspect("l'ambiance", "f", "a mood", "u", "world", "world"),
    Aspect("l'atmosphère", "f", "an atmosphere", "u", "world", "world"),
    Aspect("le décor", "m", "a setting", "u", "world", "world", 1),
    Aspect("l'idée de départ", "f", "a premise", "i", "premise", "premise", 1),
    Aspect("le sujet", "m", "a subject", "i", "premise", "premise", 1),
    Aspect("le style", "m", "a style", "w", "writing", "text"),
    Aspect("l'écriture", "f", "writing", "w", "writing", "text"),
    Aspect("la langue", "f", "language", "w", "writing", "text"),
    Aspect("la prose", "f", "prose", "w", "writing", "text"),
    Aspect("les dialogues", "m", "dialogue", "d", "dialogue", "text", 1),
    Aspect("les descriptions", "f", "descriptions", "d", "descriptions", "text", 1),
    Aspect("le ton", "m", "a tone", "o", "tone", "text", 1),
    Aspect("la traduction", "f", "a translation", "x", "translation", "translation", 1),
    Aspect("les personnages", "m", "characters", "c", "people", "people"),
    Aspect("les protagonistes", "m", "protagonists", "c", "people", "people"),
    Aspect("le personnage principal", "m", "a main character", "c", "people", "people"),
    Aspect("la galerie de personnages", "f", "a cast of characters", "c", "people", "people"),
    Aspect("les personnages secondaires", "m", "supporting characters", "c", "people", "people", 1),
    Aspect("la couverture", "f", "a cover", "v", "cover", "cover", 0),
    Aspect("la quatrième de couverture", "f", "a blurb", "v", "cover", "cover", 0),
    Aspect("la mise en page", "f", "a layout", "v", "layout", "cover", 0),
)

# The book itself, as the subject of an adjective in the masculine.
THE_BOOK = (
    Phrase("ce roman", "this novel"),
    Phrase("ce livre", "this book"),
    Phrase("l'ensemble", "the whole thing"),
    Phrase("le résultat", "the result"),
)

SOMEONE = (
    Phrase("ma sœur", "my sister"),
    Phrase("mon mari", "my husband"),
    Phrase("ma femme", "my wife"),
    Phrase("mon libraire", "my bookseller"),
    Phrase("une collègue", "a colleague"),
    Phrase("ma voisine", "my neighbour"),
    Phrase("mon beau-père", "my father-in-law"),
    Phrase("ma fille", "my daughter"),
    Phrase("mon fils", "my son"),
    Phrase("une amie de longue date", "an old friend"),
    Phrase("mon professeur de piano", "my piano teacher"),
    Phrase("ma grand-mère", "my grandmother"),
)
