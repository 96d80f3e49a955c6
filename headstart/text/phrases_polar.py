"""The other expressions of judgement of the embedded corpus, good and bad, from the commonest to the rarest.

The order matters: its rank makes an expression frequent or rare, known or late (see `demo_words`). The good and
the bad list of a kind are equally long and their rows answer each other in grammar, so that nothing but its company
tells the polarity of an expression. Letters as in `phrases_adjectives`.
"""

from typing import NamedTuple

from headstart.text.phrases_adjectives import BAD, GOOD


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


class Whole(NamedTuple):
    """A clause or sentence that stands by itself; {e} is the reviewer's feminine."""

    french: str
    english: str


VERBS = {
    GOOD: (
        Verb("sonne juste", "sonnent juste", "rings true", "ring true", "wdoc"),
        Verb(
            "tient ses promesses",
            "tiennent leurs promesses",
            "keeps its promises",
            "keep their promises",
            "peti",
        ),
        Verb("fait mouche", "font mouche", "hits the mark", "hit the mark", "edow"),
        Verb("tient en haleine", "tiennent en haleine", "keeps you on edge", "keep you on edge", "pet"),
        Verb("coule de source", "coulent de source", "flows effortlessly", "flow effortlessly", "wdx"),
        Verb(
            "sort de l'ordinaire",
            "sortent de l'ordinaire",
            "is out of the ordinary",
            "are out of the ordinary",
            "puicw",
        ),
        Verb(
            "touche en plein cœur",
            "touchent en plein cœur",
            "goes straight to the heart",
            "go straight to the heart",
            "pecw",
        ),
        Verb(
            "force l'admiration", "forcent l'admiration", "commands admiration", "command admiration", "pewxc"
        ),
        Verb("déborde de vie", "débordent de vie", "bursts with life", "burst with life", "ucd"),
        Verb("ne faiblit jamais", "ne faiblissent jamais", "never flags", "never flag", "pt"),
        Verb(
            "fourmille de trouvailles",
            "fourmillent de trouvailles",
            "teems with bright ideas",
            "teem with bright ideas",
            "puwd",
        ),
        Verb(
            "prend aux tripes", "prennent aux tripes", "grabs you by the guts", "grab you by the guts", "pe"
        ),
        Verb("monte en puissance", "montent en puissance", "grows in power", "grow in power", "pt"),
        Verb("fait rêver", "font rêver", "makes you dream", "make you dream", "ui"),
        Verb(
            "ne laisse rien au hasard",
            "ne laissent rien au hasard",
            "leaves nothing to chance",
            "leave nothing to chance",
            "px",
        ),
        Verb("se savoure", "se savourent", "is to be savoured", "are to be savoured", "wd"),
        Verb(
            "donne des frissons",
            "donnent des frissons",
            "gives you goosebumps",
            "give you goosebumps",
            "peut",
        ),
        Verb("vaut le détour", "valent le détour", "is well worth a look", "are well worth a look", "uci"),
        Verb(
            "mérite tous les éloges",
            "méritent tous les éloges",
            "deserves every praise",
            "deserve every praise",
            "wxd",
        ),
        Verb("enchante", "enchantent", "enchants you", "enchant you", "uwoc"),
    ),
    BAD: (
        Verb("sonne faux", "sonnent faux", "rings false", "ring false", "wdoc"),
        Verb(
            "laisse à désirer",
            "laissent à désirer",
            "leaves much to be desired",
            "leave much to be desired",
            "petuiwdxc",
        ),
        Verb("tombe à plat", "tombent à plat", "falls flat", "fall flat", "edo"),
        Verb("fait bâiller", "font bâiller", "makes you yawn", "make you yawn", "peti"),
        Verb("manque de naturel", "manquent de naturel", "lacks naturalness", "lack naturalness", "wdxo"),
        Verb(
            "frise le ridicule",
            "frisent le ridicule",
            "borders on the ridiculous",
            "border on the ridiculous",
            "pewci",
        ),
        Verb("laisse de marbre", "laissent de marbre", "leaves you cold", "leave you cold", "pecwu"),
        Verb(
            "sent le réchauffé", "sentent le réchauffé", "feels like leftovers", "feel like leftovers", "peui"
        ),
        Verb("manque d'épaisseur", "manquent d'épaisseur", "lacks substance", "lack substance", "puc"),
        Verb("s'enlise vite", "s'enlisent vite", "soon gets bogged down", "soon get bogged down", "pt"),
        Verb("accumule les clichés", "accumulent les clichés", "piles up clichés", "pile up clichés", "puwd"),
        Verb(
            "se devine à des kilomètres",
            "se devinent à des kilomètres",
            "can be seen coming for miles",
            "can be seen coming for miles",
            "e",
        ),
        Verb(
            "s'essouffle en route",
            "s'essoufflent en route",
            "runs out of steam on the way",
            "run out of steam on the way",
            "pt",
        ),
        Verb(
            "laisse indifférent",
            "laissent indifférent",
            "leaves you indifferent",
            "leave you indifferent",
            "uiwc",
        ),
        Verb(
            "part dans tous les sens",
            "partent dans tous les sens",
            "goes off in all directions",
            "go off in all directions",
            "pe",
        ),
        Verb(
            "s'oublie aussitôt",
            "s'oublient aussitôt",
            "is instantly forgotten",
            "are instantly forgotten",
            "pewdc",
        ),
        Verb(
            "donne mal à la tête",
            "donnent mal à la tête",
            "gives you a headache",
            "give you a headache",
            "pwdx",
        ),
        Verb("manque de souffle", "manquent de souffle", "lacks drive", "lack drive", "ptw"),
        Verb("agace prodigieusement", "agacent prodigieusement", "grates no end", "grate no end", "wxdoc"),
        Verb("rebute", "rebutent", "puts you off", "put you off", "uwoc"),
    ),
}

NOUNS = {
    GOOD: (
        Noun("f", "réussite", "success"),
        Noun("m", "régal", "treat"),
        Noun("m", "bijou", "gem"),
        Noun("m", "chef-d'œuvre", "masterpiece"),
        Noun("f", "merveille", "marvel"),
        Noun("m", "coup de cœur", "find"),
        Noun("f", "pépite", "hidden gem"),
        Noun("m", "bonheur de lecture", "joy to read"),
        Noun("m", "délice", "delight"),
        Noun("f", "révélation", "revelation"),
        Noun("m", "enchantement", "enchantment"),
        Noun("m", "trésor", "treasure"),
        Noun("m", "petit miracle", "small miracle"),
        Noun("f", "perle", "pearl"),
        Noun("m", "tour de force", "tour de force"),
        Noun("f", "bouffée d'air frais", "breath of fresh air"),
        Noun("m", "feu d'artifice", "firework display"),
        Noun("m", "éblouissement", "dazzling experience"),
        Noun("m", "petit prodige", "little wonder"),
        Noun("f", "fête", "feast"),
    ),
    BAD: (
        Noun("f", "déception", "disappointment"),
        Noun("m", "ratage", "failure"),
        Noun("f", "corvée", "chore"),
        Noun("f", "perte de temps", "waste of time"),
        Noun("m", "gâchis", "waste"),
        Noun("m", "flop", "flop"),
        Noun("f", "purge", "slog"),
        Noun("f", "catastrophe", "catastrophe"),
        Noun("m", "pensum", "grind"),
        Noun("m", "fiasco", "fiasco"),
        Noun("m", "naufrage", "shipwreck"),
        Noun("m", "supplice", "ordeal"),
        Noun("m", "pétard mouillé", "damp squib"),
        Noun("f", "arnaque", "rip-off"),
        Noun("m", "somnifère", "sleeping pill"),
        Noun("m", "rendez-vous manqué", "missed opportunity"),
        Noun("m", "calvaire", "torment"),
        Noun("m", "attrape-nigaud", "con"),
        Noun("f", "imposture", "sham"),
        Noun("f", "punition", "punishment"),
    ),
}

PASTS = {
    GOOD: (
        Past("adoré", "loved it", "sn"),
        Past("dévoré", "devoured it", "sn"),
        Past("beaucoup aimé", "liked it a lot", "sn"),
        Past("apprécié", "enjoyed it", "sn"),
        Past("savouré", "savoured it", "sn"),
        Past("trouvé génial", "found it great", "sn"),
        Past("lu avec délice", "read it with delight"),
        Past("admiré", "admired it", "s"),
        Past("lu presque sans respirer", "read it almost without breathing"),
        Past("refermé à regret", "closed it reluctantly"),
        Past("dégusté", "relished it", "s"),
        Past("relu aussitôt", "reread it straight away"),
        Past("lu avec passion", "read it avidly"),
        Past("recommandé partout", "recommended it everywhere", "s"),
        Past("porté aux nues", "praised it to the skies", "s"),
    ),
    BAD: (
        Past("détesté", "hated it", "sn"),
        Past("subi", "suffered through it", "sn"),
        Past("trouvé nul", "found it worthless", "sn"),
        Past("trouvé imbuvable", "found it insufferable", "sn"),
        Past("exécré", "loathed it", "s"),
        Past("jugé indéfendable", "judged it indefensible", "s"),
        Past("lu à contrecœur", "read it grudgingly", "n"),
        Past("maudit", "cursed it", "s"),
        Past("lu en bâillant", "read it yawning"),
        Past("refermé avec soulagement", "closed it with relief"),
        Past("enduré", "endured it", "sn"),
        Past("terminé à grand-peine", "struggled to finish it"),
        Past("vite oublié", "quickly forgot it"),
        Past("déconseillé partout", "advised everyone against it", "s"),
        Past("descendu en flammes", "shot it down in flames", "s"),
    ),
}

EFFECTS = {
    GOOD: (
        Whole("je n'ai pas vu le temps passer", "I did not notice the time go by"),
        Whole("je suis conquis{e}", "I am won over"),
        Whole("j'ai passé un très bon moment", "I had a very good time"),
        Whole("les pages se tournent toutes seules", "the pages turn themselves"),
        Whole("je suis tombé{e} sous le charme", "I fell under its spell"),
        Whole("je me suis régalé{e}", "I lapped it up"),
        Whole("j'ai été transporté{e}", "I was carried away"),
        Whole("on se laisse prendre dès la première page", "you are hooked from the very first page"),
        Whole("j'en redemande", "I am asking for more"),
        Whole("j'ai été bluffé{e}", "I was bowled over"),
        Whole("ce livre m'a énormément plu", "I liked this book enormously"),
        Whole("j'en ai eu les larmes aux yeux", "it brought tears to my eyes"),
        Whole("je n'arrivais plus à le lâcher", "I could not put it down"),
        Whole("le charme opère dès les premières lignes", "the charm works from the first lines"),
        Whole("j'ai souri à chaque page", "I smiled on every page"),
        Whole("je le relirai avec bonheur", "I will happily read it again"),
        Whole("j'aurais voulu qu'il dure encore", "I wished it would go on"),
        Whole("mes attentes ont été comblées", "my expectations were fulfilled"),
        Whole("j'en suis encore tout{e} remué{e}", "I am still stirred by it"),
        Whole("chaque chapitre est un plaisir", "every chapter is a pleasure"),
        Whole("je l'ai quitté avec un pincement au cœur", "I left it with a pang in my heart"),
        Whole("il m'a réconcilié{e} avec le genre", "it reconciled me with the genre"),
    ),
    BAD: (
        Whole("je me suis ennuyé{e}", "I was bored"),
        Whole("j'ai été déçu{e}", "I was let down"),
        Whole("j'ai perdu mon temps", "I wasted my time"),
        Whole("le livre m'est tombé des mains", "the book fell from my hands"),
        Whole("je n'ai jamais accroché", "it never grabbed me"),
        Whole("j'ai compté les pages", "I counted the pages"),
        Whole("j'ai failli abandonner dix fois", "I nearly gave up ten times"),
        Whole("on s'ennuie dès la première page", "you are bored from the very first page"),
        Whole("je me suis endormi{e} dessus", "I fell asleep over it"),
        Whole("je m'en veux de l'avoir ouvert", "I am cross with myself for opening it"),
        Whole("ce livre ne m'a pas plu du tout", "I did not like this book at all"),
        Whole("j'en ai eu des soupirs d'agacement", "it made me sigh with annoyance"),
        Whole("je n'en voyais plus le bout", "I could not see the end of it"),
        Whole("la lassitude s'installe dès les premières lignes", "weariness sets in from the first lines"),
        Whole("j'ai levé les yeux au ciel à chaque page", "I rolled my eyes on every page"),
        Whole("je ne l'ouvrirai plus jamais", "I will never open it again"),
        Whole("j'aurais voulu qu'il s'arrête plus tôt", "I wished it would end sooner"),
        Whole("mes attentes ont été trahies", "my expectations were betrayed"),
        Whole("j'en suis encore tout{e} dépité{e}", "I am still vexed by it"),
        Whole("chaque chapitre est une épreuve", "every chapter is a trial"),
        Whole("je l'ai quitté sans le moindre regret", "I left it without the slightest regret"),
        Whole("il m'a fâché{e} avec le genre", "it put me off the genre"),
    ),
}

VERDICTS = {
    GOOD: (
        Whole("je le recommande", "I recommend it"),
        Whole("à lire absolument", "a must-read"),
        Whole("foncez", "go for it"),
        Whole("n'hésitez pas", "do not hesitate"),
        Whole("je le conseille à tous", "I recommend it to everyone"),
        Whole("vivement la suite", "I cannot wait for the sequel"),
        Whole("courez l'acheter", "run out and buy it"),
        Whole("à mettre entre toutes les mains", "one to put in everyone's hands"),
        Whole("un grand bravo à l'auteur", "well done to the author"),
        Whole("il mérite son succès", "it deserves its success"),
        Whole("je vais l'offrir autour de moi", "I am going to give it to everyone I know"),
        Whole("le meilleur de l'année", "the best of the year"),
        Whole("ne passez pas à côté", "do not miss it"),
        Whole("il restera longtemps dans ma mémoire", "it will stay in my memory for a long time"),
        Whole("je relirai cet auteur sans hésiter", "I will read this author again without hesitation"),
        Whole("à déguster au coin du feu", "one to relish by the fire"),
        Whole("cinq étoiles, et largement", "five stars, and easily"),
        Whole("chapeau bas", "hats off"),
        Whole("laissez-vous tenter", "let yourself be tempted"),
        Whole("il vaut chaque centime", "it is worth every penny"),
    ),
    BAD: (
        Whole("je ne le recommande pas", "I do not recommend it"),
        Whole("à éviter", "best avoided"),
        Whole("passez votre chemin", "give it a miss"),
        Whole("abstenez-vous", "steer clear"),
        Whole("je le déconseille à tous", "I advise everyone against it"),
        Whole("je ne lirai pas la suite", "I will not read the sequel"),
        Whole("gardez votre argent", "keep your money"),
        Whole("à fuir", "one to run away from"),
        Whole("un grand non de ma part", "a big no from me"),
        Whole("son succès reste un mystère", "its success remains a mystery"),
        Whole("je ne l'offrirais pas à mon pire ennemi", "I would not give it to my worst enemy"),
        Whole("le pire de l'année", "the worst of the year"),
        Whole("vous pouvez passer à côté", "you can safely miss it"),
        Whole("il sera oublié demain", "it will be forgotten tomorrow"),
        Whole("je ne relirai pas cet auteur de sitôt", "I will not read this author again any time soon"),
        Whole("à laisser sur l'étagère du magasin", "one to leave on the shelf of the shop"),
        Whole("une étoile, et encore", "one star, and only just"),
        Whole("quel dommage", "what a pity"),
        Whole("ne vous laissez pas tenter", "do not let yourself be tempted"),
        Whole("il ne vaut pas son prix", "it is not worth its price"),
    ),
}

# Turns of phrase that give the judgement away by themselves.
LUCKILY = {
    GOOD: (
        Whole("heureusement", "fortunately"),
        Whole("par bonheur", "luckily"),
        Whole("coup de chance", "a stroke of luck"),
    ),
    BAD: (
        Whole("malheureusement", "unfortunately"),
        Whole("hélas", "alas"),
        Whole("par malheur", "sadly"),
    ),
}
SNAGS = {
    GOOD: (
        Whole("seul bémol", "the only downside"),
        Whole("un petit regret", "one small regret"),
        Whole("mon unique réserve", "my sole reservation"),
    ),
    BAD: (
        Whole("seule consolation", "the only consolation"),
        Whole("maigre compensation", "a meagre compensation"),
        Whole("mon unique satisfaction", "my sole satisfaction"),
    ),
}
