"""A little French prose for tests: sentences made from parts, enough of them to learn a vocabulary from."""

from headstart.randomness import stream

PEOPLE = ["la libraire", "le vieux marin", "ma sœur", "l'auteur", "une voisine", "le facteur", "l’héroïne"]
DEEDS = ["raconte", "oublie", "relit", "cherche", "déchire", "invente", "achève", "recopie", "apprécie"]
THINGS = [
    "une lettre",
    "ce roman",
    "l'histoire du phare",
    "des contes d'hiver",
    "son œuvre",
    "un carnet bleu",
]
ENDS = [
    "sans se presser.", "au bord de la mer !", "chaque dimanche matin.", "où l’on n'entend que la pluie…",
    "et s'endort vers minuit.", "malgré le bruit des enfants.", "en 1984, à Brest.", "avec beaucoup de soin.",
]  # fmt: skip


def lines(count, seed=0):
    """Sentences, one a line."""
    draws = stream(seed, "prose")
    return [
        " ".join(parts[draws.integers(len(parts))] for parts in (PEOPLE, DEEDS, THINGS, ENDS)).capitalize()
        for _ in range(count)
    ]
