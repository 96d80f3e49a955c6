"""The sentences that judgements are put into, and what each place in them does to a judgement.

A place is a sign and a kind. "+" is said in earnest: it shares the reviewer's judgement. "-" is granted, denied,
compared or put in another's mouth: its words go against the judgement. The label of a review is therefore known
from its grammar, and no frame leans to one side: each serves praise and blame with the same words around them.

Kinds of places: `clause` says something of an aspect of the book, `plain` says it in the simplest form, `main` of
an aspect that can decide, `statement` so without "j'ai trouvé"; `subjunctive`, `thing`, `rich_thing` and `tag` are
an aspect after "bien que", as a noun phrase, and without an article; `as_for`, `apposed` and `turned` are sentences
around an aspect; `book` is about the book as a whole; `reported` can be somebody's opinion after "que"; the others
are single expressions.
"""

from typing import NamedTuple

from headstart.text.phrases import Phrase


class Slot(NamedTuple):
    """A place in a frame."""

    sign: int
    kind: str


class Frame(NamedTuple):
    """A sentence or two with numbered places; `alone` when it can be the only judgement of a review."""

    french: str
    english: str
    slots: tuple[Slot, ...]
    weight: float
    alone: bool


def _frame(french: str, english: str, slots: str, weight: float = 1.0, alone: bool = True) -> Frame:
    parsed = tuple(Slot(1 if slot[0] == "+" else -1, slot[1:]) for slot in slots.split())
    return Frame(french, english, parsed, weight, alone)


# Forms for an aspect of the book: {the} aspect, {so} its adjectives, what agrees with it (see `phrases.Aspect`).
IS = Phrase("{the} {be} {so}", "{the} {be} {so}")
FOUND = Phrase("j'ai trouvé {the} {so}", "I found {the} {so}")
SUBJUNCTIVE = Phrase("{the} {be_subjunctive} {so}", "{the} {be} {so}")
THING = Phrase("{a} {so}", "{a_so}")
TAG = Phrase("{noun} {so}", "{so} {noun}")
APPOSED = Phrase("{the}, {so},", "{the}, {so},")
STRESSED = (
    Phrase("{the} {be} vraiment {so}", "{the} {be} really {so}"),
    Phrase("{the} {be} franchement {so}", "{the} {be} frankly {so}"),
    Phrase("{the} {be} tout simplement {so}", "{the} {be} quite simply {so}"),
)
DENIALS = (
    Phrase("{the} {be} tout sauf {so}", "{the} {be} anything but {so}"),
    Phrase("{the} {not_have} rien de {so_neutral}", "there is nothing {so} about {the}"),
    Phrase("{the} {be} loin d'être {so}", "{the} {be} far from {so}"),
)
LASTING_DENIALS = (
    Phrase("{the} {not_be} jamais {so}", "{the} {be} never {so}"),
    Phrase("à aucun moment {the} {not_be} {so}", "at no point {be} {the} {so}"),
    Phrase("{the} {not_be} pas un instant {so}", "{the} {be} not {so} for one moment"),
)
BOOK_DENIALS = (
    Phrase("{the} est tout sauf {so}", "{the} is anything but {so}"),
    Phrase("{the} n'a rien de {so}", "there is nothing {so} about {the}"),
    Phrase("{the} n'est pas un instant {so}", "{the} is not {so} for one moment"),
    Phrase("{the} est loin d'être {so}", "{the} is far from {so}"),
)
TURNS = (
    Phrase("je m'attendais à {a} {against} : {it} {be} {so}", "I was expecting {a_against}: {it} {be} {so}"),
    Phrase("loin d'être {against}, {the} {be} {so}", "far from being {against}, {the} {be} {so}"),
    Phrase("on me disait {the} {against} : {it} {be} {so}", "people called {the} {against}: {it} {be} {so}"),
)
AS_FOR = (
    Phrase("quant {to}, {it} {be} {so}", "as for {the}, {it} {be} {so}"),
    Phrase("et que dire {of} ? {it} {be} {so}", "and what about {the}? {it} {be} {so}"),
    Phrase("{the} ? {so}", "{the}? {so}"),
)

STRAIGHT = (
    _frame("{0}.", "{0}.", "+main", 4),
    _frame("{0} !", "{0}!", "+main", 1),
    _frame("{0}.", "{0}.", "+book", 2),
    _frame("{0} !", "{0}!", "+book", 1),
    _frame("{lead}{0}.", "{lead}{0}.", "+statement", 3),
    _frame("{0} et {1}.", "{0} and {1}.", "+plain +plain", 4),
    _frame("{0}, {1} et {2}.", "{0}, {1} and {2}.", "+plain +plain +plain", 3),
    _frame("{0} : {1}.", "{0}: {1}.", "+book +clause", 2),
    _frame("{0} : {1} et {2}.", "{0}: {1} and {2}.", "+book +plain +plain", 2),
    _frame("{0}, {1} : {2}.", "{0}, {1}: {2}.", "+thing +thing +book", 3),
    _frame("{0}, {1}, {2} !", "{0}, {1}, {2}!", "+thing +thing +thing", 1),
    _frame("{0}, {1}, {2}.", "{0}, {1}, {2}.", "+tag +tag +tag", 5),
    _frame("{0}, {1} : {2}.", "{0}, {1}: {2}.", "+tag +tag +verdict", 4),
    _frame("{0}, {1}, {2} !", "{0}, {1}, {2}!", "+word +word +word", 5),
    _frame("un livre {0}, {1}, bref, {2}.", "{0}, {1} book, in short, {2}.", "+first_word +word +noun", 1),
    _frame("j'y ai trouvé {0} et {1}.", "in it I found {0} and {1}.", "+thing +thing", 2),
    _frame("c'est {0} : {1}.", "it is {0}: {1}.", "+noun +clause", 2),
    _frame("je dois dire que {0}.", "I must say that {0}.", "+plain", 1),
    _frame("non seulement {0}, mais en plus {1}.", "{0}, and what is more, {1}.", "+plain +plain", 2),
    _frame("je retiens {0}.", "I remember {0}.", "+rich_thing", 1),
    _frame("j'y ai surtout vu {0}.", "above all, I saw {0} in it.", "+rich_thing", 1),
    _frame("{0}.", "{0}.", "+as_for", 5),
    _frame("{0}.", "{0}.", "+apposed", 4),
    _frame("{0}.", "{0}.", "+noun", 1),
    _frame("{0}, ni plus ni moins.", "{0}, no more, no less.", "+noun", 1),
    _frame("{0} !", "{0}!", "+exclaimed", 1),
)

# One side is granted, the other decides.
CONTRASTS = (
    _frame("{0}, mais {1}, {decisive}.", "{0}, but {1}, {decisive}.", "-clause +main", 5),
    _frame("{0}, mais {1}.", "{0}, but {1}.", "-clause +book", 4),
    _frame("certes, {0}, mais {1}, {decisive}.", "admittedly, {0}, but {1}, {decisive}.", "-clause +main", 2),
    _frame("certes, {0}, mais {1}.", "admittedly, {0}, but {1}.", "-clause +book", 2),
    _frame("{0}, je le reconnais, mais {1}.", "{0}, I admit it, but {1}.", "-clause +book", 1),
    _frame("{0}. Et pourtant, {1} !", "{0}. And yet, {1}!", "-clause +book", 2),
    _frame("{0}. Pourtant, {1}, {decisive}.", "{0}. Yet {1}, {decisive}.", "-clause +main", 1),
    _frame("{0}, même si {1}.", "{0}, even though {1}.", "+book -clause", 4),
    _frame("même si {0}, {1}.", "even though {0}, {1}.", "-clause +book", 2),
    _frame("même si {0}, {1}, {decisive}.", "even though {0}, {1}, {decisive}.", "-clause +main", 2),
    _frame("malgré {0}, {1}.", "despite {0}, {1}.", "-rich_thing +book", 3),
    _frame("malgré {0}, {1}, {decisive}.", "despite {0}, {1}, {decisive}.", "-rich_thing +main", 2),
    _frame("{0}, malgré {1}.", "{0}, despite {1}.", "+book -rich_thing", 3),
    _frame("malgré {0} et {1}, {2}.", "despite {0} and {1}, {2}.", "-thing -thing +book", 3),
    _frame("bien que {0}, {1}.", "although {0}, {1}.", "-subjunctive +book", 3),
    _frame("{0}, bien que {1}.", "{0}, although {1}.", "+book -subjunctive", 2),
    _frame("{0} et {1}, mais {2}.", "{0} and {1}, but {2}.", "-plain -plain +book", 3),
    _frame("{0}, {1}, et malgré cela {2}.", "{0}, {1}, and in spite of that {2}.", "-plain -plain +book", 2),
    _frame("si {0}, {1}, {decisive}.", "while {0}, {1}, {decisive}.", "-plain +main", 2),
    _frame("{0}. {1}, {2}, {decisive}.", "{0}. {1}, {2}, {decisive}.", "-clause +luckily +main", 3),
    _frame("{0}. {1} : {2}.", "{0}. {1}: {2}.", "+book +snag -thing", 3),
    _frame(
        "je m'attendais à {0}. En fait, {1}.", "I was expecting {0}. In fact, {1}.", "-rich_thing +book", 2
    ),
)

# The words are not the reviewer's own, or are denied.
REJECTIONS = (
    _frame(
        "je ne dirais pas que {0}, bien au contraire.",
        "I would not say that {0}, quite the opposite.",
        "-reported",
        3,
        alone=False,
    ),
    _frame(
        "certains prétendent que {0} : ce n'est pas du tout mon avis.",
        "some claim that {0}: I do not think so at all.",
        "-reported",
        2,
        alone=False,
    ),
    _frame(
        "on répète partout que {0}. Je pense exactement l'inverse.",
        "they say everywhere that {0}. I think exactly the opposite.",
        "-reported",
        2,
        alone=False,
    ),
    _frame(
        "qu'on ne vienne pas me dire que {0} !", "let no one tell me that {0}!", "-reported", 2, alone=False
    ),
    _frame(
        "j'ai lu ici que {0}. Il n'en est rien !",
        "I read here that {0}. Not at all!",
        "-reported",
        1,
        alone=False,
    ),
    _frame(
        "je ne suis pas d'accord avec ceux qui trouvent que {0}.",
        "I do not agree with those who think that {0}.",
        "-reported",
        2,
        alone=False,
    ),
    _frame(
        "{someone} trouve que {0}. Moi, pas du tout.",
        "{someone} thinks that {0}. I do not, not in the least.",
        "-reported",
        2,
        alone=False,
    ),
    _frame("{someone} l'a {0}. Moi, non.", "{someone} {0}. Not me.", "-past", 1, alone=False),
    _frame("{someone} l'a {0}. Moi, je l'ai {1}.", "{someone} {0}. As for me, I {1}.", "-past +past", 2),
    _frame("je ne l'ai pas {0}, loin de là.", "I cannot say that I {0}, far from it.", "-deniable", 2),
    _frame("ce n'est pas {0}, loin s'en faut.", "it is not {0}, far from it.", "-noun", 2),
    _frame("tout sauf {0}.", "anything but {0}.", "-noun", 2),
    _frame(
        "qui parle de {0} n'a pas lu le même livre que moi.",
        "whoever calls it {0} has not read the same book as me.",
        "-name",
        2,
        alone=False,
    ),
    _frame("{0}.", "{0}.", "+turned", 4),
    _frame(
        "on m'avait annoncé {0}. Eh bien non : {1}.",
        "I had been told to expect {0}. Well, no: {1}.",
        "-noun +book",
        2,
        alone=False,
    ),
)

# Another book is judged too.
COMPARISONS = (
    _frame(
        "ce tome est bien moins {0} que le précédent, qui était {1}.",
        "this volume is far less {0} than the previous one, which was {1}.",
        "-comparable -noun",
        3,
        alone=False,
    ),
    _frame(
        "ce livre est bien plus {0} que le précédent, qui était {1}.",
        "this book is far more {0} than the previous one, which was {1}.",
        "+comparable -noun",
        2,
        alone=False,
    ),
    _frame(
        "encore plus {0} que le précédent, qui était déjà {1}.",
        "even more {0} than the previous one, which was already {1}.",
        "+comparable +noun",
        1,
        alone=False,
    ),
    _frame(
        "autant le tome précédent était {0}, autant celui-ci est {1}.",
        "the previous volume was {0}; this one is {1}.",
        "-noun +noun",
        3,
        alone=False,
    ),
    _frame(
        "rien à voir avec son livre précédent, {0} : {1}.",
        "nothing like the author's previous book, {0}: {1}.",
        "-noun +book",
        2,
        alone=False,
    ),
    _frame(
        "le premier tome était {0}. Celui-ci, c'est autre chose : {1}.",
        "the first volume was {0}. This one is another matter: {1}.",
        "-noun +book",
        2,
        alone=False,
    ),
    _frame(
        "comparé au précédent, {0}, ce tome est {1}.",
        "compared with the previous one, {0}, this volume is {1}.",
        "-noun +noun",
        1,
        alone=False,
    ),
)
