"""The adjectives of the embedded corpus, good and bad, from the commonest to the rarest.

Four lists a side; the good and the bad list of the same number are equally long. An adjective that agrees in one
form only is written once ("" repeats the masculine). The letters name what it fits: p plot, e events and ending,
t pace and suspense, u world, i premise, w writing, d dialogue and descriptions, o tone, x translation,
c characters, v cover, b the book as a whole; q: "plus" and "moins" can stand before it; n: it can be denied, as all
adjectives of one word can that have no "!" (to deny an extreme is no praise: "rien de catastrophique").
"""

from typing import NamedTuple

GOOD, BAD = 1, -1


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
    """A dot shows where the plural goes when that is not the end; "=" is the same in all forms."""
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


_ADJECTIVES = {
    GOOD: (
        (  # anything
            ("remarquable", "", "remarkable", "petuiwdoxcb"),
            ("formidable", "", "terrific", "petuiwdcb"),
            ("magnifique", "", "magnificent", "peuwdcbv"),
            ("excellent", "excellente", "excellent", "petuiwdoxcb"),
            ("superbe", "", "superb", "peuiwdoxcbv"),
            ("réussi", "réussie", "well-crafted", "petuiwdoxcbv q"),
            ("original", "originale", "original", "peuiwdocbv q"),
            ("convaincant", "convaincante", "convincing", "petuiwdoxcb q"),
            ("merveilleux", "merveilleuse", "wonderful", "peuwdcb"),
            ("brillant", "brillante", "brilliant", "peiwdoxb q"),
            ("admirable", "", "admirable", "peuwdoxcb"),
            ("séduisant", "séduisante", "appealing", "peuiwdocbv q"),
            ("sublime", "", "sublime", "peuwdb"),
            ("réjouissant", "réjouissante", "delightful", "petuiwdocb q"),
            ("impeccable", "", "impeccable", "petwdx!"),
            ("exceptionnel", "exceptionnelle", "exceptional", "petuiwdcb"),
            ("enthousiasmant", "enthousiasmante", "exhilarating", "petuiwdob q"),
            ("irréprochable", "", "flawless", "petwdx!"),
            ("épatant", "épatante", "amazing", "peuiwdcb"),
            ("époustouflant", "époustouflante", "breathtaking", "petuwdb"),
            ("magistral", "magistrale", "masterly", "pewdxb"),
            ("splendide", "", "splendid", "peuwdbv"),
            ("extraordinaire", "", "extraordinary", "petuiwdcb"),
            ("délectable", "", "delectable", "puwdocb"),
            ("éblouissant", "éblouissante", "dazzling", "peuwdob"),
        ),
        (  # story and world
            ("captivant", "captivante", "gripping", "petuib q"),
            ("passionnant", "passionnante", "enthralling", "petuib q"),
            ("prenant", "prenante", "absorbing", "petub q"),
            ("palpitant", "palpitante", "thrilling", "petb q"),
            ("surprenant", "surprenante", "surprising", "peiu q"),
            ("haletant", "haletante", "breathless", "petb"),
            ("envoûtant", "envoûtante", "spellbinding", "puwob q"),
            ("bien mené", "bien menée", "well-handled", "pet"),
            ("ingénieux", "ingénieuse", "ingenious", "peib q"),
            ("inventif", "inventive", "inventive", "peuwdb q"),
            ("bien construit", "bien construite", "well-constructed", "peb"),
            ("bien ficelé", "bien ficelée", "tightly woven", "peb"),
            ("addictif", "addictive", "addictive", "ptb q"),
            ("trépidant", "trépidante", "fast-moving", "petb"),
            ("habile", "", "skilful", "peib q"),
            ("dépaysant", "dépaysante", "transporting", "ub q"),
            ("inattendu", "inattendue", "unexpected", "ei"),
            ("magique", "", "magical", "uwb"),
            ("électrisant", "électrisante", "electrifying", "petdob"),
            ("vertigineux", "vertigineuse", "dizzying", "petub"),
            ("ensorcelant", "ensorcelante", "bewitching", "puwb"),
        ),
        (  # writing
            ("fluide", "", "fluid", "pwdx q"),
            ("poétique", "", "poetic", "uwdo q"),
            ("élégant", "élégante", "elegant", "wdoxv q"),
            ("vif", "vive", "lively", "wdo"),
            ("savoureux", "savoureuse", "delicious", "wdocb q"),
            ("limpide", "", "crystal-clear", "pwdx"),
            ("soigné", "soignée", "polished", "wdxv"),
            ("subtil", "subtile", "subtle", "pewdob q"),
            ("percutant", "percutante", "punchy", "wdo"),
            ("incisif", "incisive", "incisive", "wdo"),
            ("délicat", "délicate", "delicate", "wdo"),
            ("ciselé", "ciselée", "finely honed", "wd"),
            ("raffiné", "raffinée", "refined", "wduv"),
            ("lumineux", "lumineuse", "luminous", "wuocb"),
            ("imagé", "imagée", "vivid", "wd!"),
            ("pétillant", "pétillante", "sparkling", "wdocb"),
            ("spirituel", "spirituelle", "witty", "wdo"),
            ("musical", "musicale", "musical", "w!"),
            ("gracieux", "gracieuse", "graceful", "wv"),
            ("harmonieux", "harmonieuse", "harmonious", "wxvu"),
        ),
        (  # characters
            ("attachant", "attachante", "endearing", "c"),
            ("crédible", "", "believable", "peuic"),
            ("drôle", "", "funny", "dob"),
            ("touchant", "touchante", "touching", "pecdb q"),
            ("émouvant", "émouvante", "moving", "peocb q"),
            ("fascinant", "fascinante", "fascinating", "puicb q"),
            ("vivant", "vivante", "lifelike", "dc"),
            ("bouleversant", "bouleversante", "deeply moving", "pecb"),
            ("nuancé", "nuancée", "nuanced", "oc"),
            ("profond", "profonde", "deep", "pic"),
            ("humain", "humaine", "human", "oc!"),
            ("inoubliable", "", "unforgettable", "peucb"),
            ("bien campé", "bien campée", "well-drawn", "uc"),
            ("authentique", "", "authentic", "uoc"),
            ("haut· en couleur", "haute· en couleur", "colourful", "uc"),
            ("charismatique", "", "charismatic", "c"),
            ("charmant", "charmante", "charming", "uocdb q"),
            ("irrésistible", "", "irresistible", "docb"),
            ("truculent", "truculente", "larger-than-life", "c!"),
            ("solaire", "", "radiant", "uoc!"),
        ),
    ),
    BAD: (
        (  # anything
            ("médiocre", "", "mediocre", "petuiwdoxcbv"),
            ("pénible", "", "tiresome", "petwdocb q"),
            ("faible", "", "weak", "petuiwdcb"),
            ("décevant", "décevante", "disappointing", "petuiwdoxcb"),
            ("ennuyeux", "ennuyeuse", "boring", "petuiwdocb q"),
            ("insipide", "", "insipid", "petuiwdoxcbv"),
            ("raté", "ratée", "botched", "petuiwdxcbv!"),
            ("bâclé", "bâclée", "slapdash", "petuiwdxcbv"),
            ("quelconque", "", "unremarkable", "petuiwdoxcbv"),
            ("navrant", "navrante", "pitiful", "peuiwdocb!"),
            ("poussif", "poussive", "plodding", "petwdob q"),
            ("fastidieux", "fastidieuse", "tedious", "pewdb q"),
            ("lamentable", "", "woeful", "petuiwdxcb!"),
            ("irritant", "irritante", "irritating", "petuiwdocb!"),
            ("consternant", "consternante", "appalling", "peuiwdoxcb!"),
            ("désolant", "désolante", "dismal", "peuiwdoxcb!"),
            ("inintéressant", "inintéressante", "uninteresting", "peuiwdcb"),
            ("affligeant", "affligeante", "dire", "peuiwdoxcb!"),
            ("pitoyable", "", "pathetic", "petuiwdxcb!"),
            ("exécrable", "", "atrocious", "petuwdoxcb!"),
            ("catastrophique", "", "disastrous", "petwdxcb!"),
            ("indigent", "indigente", "threadbare", "ptuiwdxb!"),
            ("calamiteux", "calamiteuse", "calamitous", "petuwdxcb!"),
            ("assommant", "assommante", "mind-numbing", "petuiwdocb q"),
            ("rébarbatif", "rébarbative", "off-putting", "petuiwdoxb q"),
        ),
        (  # story and world
            ("prévisible", "", "predictable", "pei q"),
            ("interminable", "", "interminable", "pedb"),
            ("décousu", "décousue", "disjointed", "pedb q"),
            ("confus", "confuse", "muddled", "peuwdb q"),
            ("convenu", "convenue", "conventional", "peuiocb q"),
            ("invraisemblable", "", "implausible", "peuc q"),
            ("soporifique", "", "soporific", "petuwob q"),
            ("répétitif", "répétitive", "repetitive", "petdb q"),
            ("mou", "molle", "sluggish", "ptwe"),
            ("tiré· par les cheveux", "tirée· par les cheveux", "far-fetched", "pei"),
            ("artificiel", "artificielle", "artificial", "petuwdocb q"),
            ("brouillon", "brouillonne", "jumbled", "pewb q"),
            ("mal ficelé", "mal ficelée", "badly put together", "peb"),
            ("banal", "banale", "run-of-the-mill", "peuiwdcbv"),
            ("languissant", "languissante", "listless", "ptwb"),
            ("bancal", "bancale", "wobbly", "peb"),
            ("cousu· de fil blanc", "cousue· de fil blanc", "painfully obvious", "pe"),
            ("incohérent", "incohérente", "incoherent", "peub q"),
            ("téléphoné", "téléphonée", "contrived", "ped"),
            ("inexistant", "inexistante", "non-existent", "tu!"),
            ("usé· jusqu'à la corde", "usée· jusqu'à la corde", "worn-out", "piu"),
        ),
        (  # writing
            ("lourd", "lourde", "heavy-handed", "wdox"),
            ("terne", "", "drab", "wduocv"),
            ("plat", "plate", "flat", "ptuwdox q"),
            ("pauvre", "", "poor", "puwdx"),
            ("maladroit", "maladroite", "clumsy", "pewdoxb q"),
            ("prétentieux", "prétentieuse", "pretentious", "wdocbv q"),
            ("ampoulé", "ampoulée", "bombastic", "wdo"),
            ("scolaire", "", "unimaginative", "wdox"),
            ("froid", "froide", "cold", "wouc"),
            ("indigeste", "", "stodgy", "pwdb q"),
            ("verbeux", "verbeuse", "wordy", "wdb q"),
            ("laborieux", "laborieuse", "laboured", "pewdxb q"),
            ("pompeux", "pompeuse", "pompous", "wdo"),
            ("alambiqué", "alambiquée", "convoluted", "pewdb q"),
            ("pesant", "pesante", "ponderous", "wdotu"),
            ("mièvre", "", "mawkish", "pewdob q"),
            ("approximatif", "approximative", "shaky", "wx"),
            ("relâché", "relâchée", "slack", "wxt"),
            ("boursouflé", "boursouflée", "overblown", "wdb"),
            ("vieillot", "vieillotte", "fusty", "wdoxuvb"),
        ),
        (  # characters
            ("fade", "", "bland", "puwdocbv q"),
            ("creux", "creuse", "hollow", "pdicb q"),
            ("caricatural", "caricaturale", "cartoonish", "pudc"),
            ("agaçant", "agaçante", "annoying", "wdocb!"),
            ("superficiel", "superficielle", "shallow", "pidcb q"),
            ("peu crédible", "", "unconvincing", "peuic"),
            ("antipathique", "", "unlikeable", "oc!"),
            ("stéréotypé", "stéréotypée", "stereotyped", "pdc"),
            ("insupportable", "", "unbearable", "tdocb!"),
            ("sans relief", "=", "one-dimensional", "pc"),
            ("sans âme", "=", "soulless", "uwdcb"),
            ("horripilant", "horripilante", "infuriating", "dcb!"),
            ("figé", "figée", "wooden", "wdc!"),
            ("niais", "niaise", "inane", "pedocb"),
            ("exaspérant", "exaspérante", "exasperating", "petdocb!"),
            ("inconsistant", "inconsistante", "insubstantial", "ptuc"),
            ("falot", "falote", "colourless", "c!"),
            ("schématique", "", "sketchy", "puc"),
            ("oubliable", "", "forgettable", "dcb"),
            ("pleurnichard", "pleurnicharde", "whiny", "oc!"),
        ),
    ),
}
# Four lists a side, each with ranks of its own.
ADJECTIVES = {
    side: tuple(tuple(_adjective(number, *row) for row in rows) for number, rows in enumerate(lists))
    for side, lists in _ADJECTIVES.items()
}
