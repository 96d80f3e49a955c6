"""The phrases of the demo corpus agree with each other."""

import itertools

import pytest

from headstart.demo.grammar import Expression, _ranked, pool
from headstart.demo.phrases import ASPECTS, BAD, EXPRESSIONS, GOOD, french_words


@pytest.mark.parametrize(
    ("masculine", "forms"),
    [
        ("captivant", ("captivant", "captivante", "captivants", "captivantes")),
        ("original", ("original", "originale", "originaux", "originales")),
        ("banal", ("banal", "banale", "banals", "banales")),
        ("creux", ("creux", "creuse", "creux", "creuses")),
        ("poétique", ("poétique", "poétique", "poétiques", "poétiques")),
        ("mou", ("mou", "molle", "mous", "molles")),
        ("haut en couleur", ("haut en couleur", "haute en couleur", "hauts en couleur", "hautes en couleur")),
        ("bien mené", ("bien mené", "bien menée", "bien menés", "bien menées")),
        ("sans âme", ("sans âme",) * 4),
    ],
)
def test_adjectives_have_their_forms(masculine, forms):
    found = [
        word
        for side in EXPRESSIONS.values()
        for rows in side["adjectives"]
        for word in rows
        if word.french == masculine
    ]
    assert [word.forms for word in found] == [forms]


def test_what_goes_with_an_aspect_agrees_with_it():
    words = {aspect.french: french_words(aspect) for aspect in ASPECTS}
    plot, style, people = words["l'intrigue"], words["le style"], words["les personnages"]
    assert [plot[key] for key in ("a", "to", "of", "it")] == [
        "une intrigue",
        "à l'intrigue",
        "de l'intrigue",
        "elle",
    ]
    assert [style[key] for key in ("a", "to", "of", "it")] == ["un style", "au style", "du style", "il"]
    assert [people[key] for key in ("a", "to", "of", "it", "not_be")] == [
        "des personnages", "aux personnages", "des personnages", "ils", "ne sont"
    ]  # fmt: skip


def expressions():
    """All polar expressions there are."""
    return [
        Expression(row.french, polarity, late)
        for kind in EXPRESSIONS[GOOD]
        for polarity in (GOOD, BAD)
        for row, _, late in _ranked(kind, polarity)
    ]


def test_good_and_bad_expressions_answer_each_other():
    sides = {side: [e for e in expressions() if e.polarity == side] for side in (GOOD, BAD)}
    assert len(sides[GOOD]) == len(sides[BAD]) > 180
    assert len({e.french for e in expressions()}) == len(expressions())
    assert [e.late for e in sides[GOOD]] == [e.late for e in sides[BAD]]
    for aspect, known_only in itertools.product(ASPECTS, (False, True)):
        for side, fits in itertools.product((GOOD, BAD), (aspect.group, aspect.group + "n" * (aspect.rank > 0))):
            assert len(pool("adjectives", side, fits, known_only).things) >= 3, (aspect, side, fits)
