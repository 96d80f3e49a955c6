"""What the reviews of the embedded corpus say without judging: greetings, circumstances, what the book is about.

Authors and titles are invented. Nothing here may hint at the judgement that follows.
"""

from typing import NamedTuple

from headstart.text.phrases import Phrase

GREETINGS = (
    Phrase("Bonjour les amis lecteurs !", "Hello, fellow readers!"),
    Phrase("Bonjour à toutes et à tous.", "Hello, everyone."),
    Phrase("Bonsoir les dévoreurs de livres.", "Good evening, book devourers."),
    Phrase("Salut les rats de bibliothèque !", "Hi there, bookworms!"),
    Phrase("Chers lecteurs, bonjour.", "Dear readers, hello."),
    Phrase("Bonjour, voici mon avis.", "Hello, here is my opinion."),
    Phrase("Me revoici avec une nouvelle chronique.", "Here I am again with a new review."),
    Phrase("Coucou les lectrices et les lecteurs !", "Hello, readers one and all!"),
    Phrase("Un petit retour de lecture.", "A few notes on a book."),
    Phrase("Bonsoir, voici ma chronique du mois.", "Good evening, here is my review of the month."),
    Phrase("C'est mon premier commentaire ici.", "This is my first comment here."),
    Phrase("Avis aux curieux.", "A word to the curious."),
)

CLOSINGS = (
    Phrase("Ce n'est que mon avis.", "This is only my opinion."),
    Phrase("Et vous, qu'en avez-vous pensé ?", "And you, what did you make of it?"),
    Phrase("Voilà, c'est dit.", "There, I have said it."),
    Phrase("À vous de vous faire une idée.", "It is up to you to make up your mind."),
    Phrase("Bonnes lectures à tous.", "Happy reading to you all."),
    Phrase("À bientôt pour une autre chronique !", "See you soon for another review!"),
    Phrase("Chacun se fera son opinion.", "Everyone will form their own view."),
    Phrase("Répondez-moi en commentaire, si vous voulez.", "Answer me in the comments, if you like."),
    Phrase("Je lirai vos réponses avec attention.", "I will read your answers carefully."),
    Phrase("Les goûts et les couleurs ne se discutent pas.", "There is no accounting for taste."),
    Phrase("Sur ce, je retourne à ma pile de livres.", "With that, I am going back to my pile of books."),
    Phrase("Rendez-vous le mois prochain.", "See you next month."),
)

# Said before a judgement, good or bad.
LEADS = (
    Phrase("à vrai dire, ", "actually, "),
    Phrase("à mon avis, ", "in my opinion, "),
    Phrase("bref, ", "in short, "),
    Phrase("soyons clairs : ", "let us be clear: "),
    Phrase("une chose est sûre : ", "one thing is certain: "),
    Phrase("pour tout dire, ", "to tell the truth, "),
    Phrase("au bout du compte, ", "in the end, "),
    Phrase("autant le dire d'emblée : ", "I may as well say it at once: "),
    Phrase("de mon point de vue, ", "from my point of view, "),
    Phrase("en deux mots : ", "in a nutshell: "),
    Phrase("je le dis sans détour : ", "I say it plainly: "),
    Phrase("après réflexion, ", "on reflection, "),
    Phrase("verdict : ", "verdict: "),
    Phrase("sincèrement, ", "honestly, "),
    Phrase("je ne vais pas tourner autour du pot : ", "I am not going to beat about the bush: "),
    Phrase("que dire ? ", "what can I say? "),
)

# Said after the clause that decides.
DECISIVE = (
    Phrase("et c'est ce que je retiens", "and that is what I will remember"),
    Phrase("et c'est ce qui compte", "and that is what counts"),
    Phrase("et cela change tout", "and that changes everything"),
    Phrase("et c'est bien l'essentiel", "and that is the main thing"),
    Phrase("et c'est là-dessus que je juge un livre", "and that is what I judge a book by"),
    Phrase("et c'est ce qui l'emporte", "and that is what tips the scales"),
    Phrase("et le reste passe au second plan", "and the rest fades into the background"),
    Phrase("et c'est ce qui a fait pencher la balance", "and that is what settled it for me"),
)


class Work(NamedTuple):
    """A kind of book, with "this" for it."""

    this: str
    french: str
    english: str


WORKS = (
    Work("ce", "roman", "novel"),
    Work("ce", "livre", "book"),
    Work("ce", "polar", "crime novel"),
    Work("ce", "thriller", "thriller"),
    Work("ce", "roman historique", "historical novel"),
    Work("ce", "roman d'aventures", "adventure novel"),
    Work("ce", "roman d'espionnage", "spy novel"),
    Work("cet", "ouvrage", "work"),
    Work("cette", "saga familiale", "family saga"),
    Work("ce", "roman épistolaire", "epistolary novel"),
    Work("cette", "romance", "romance"),
    Work("ce", "roman noir", "noir novel"),
    Work("cette", "fiction", "work of fiction"),
    Work("ce", "petit volume", "slim volume"),
)

TITLES = (
    Phrase("La Lampe du quai nord", "The Lamp on the North Quay"),
    Phrase("Trois hivers à Montaubrac", "Three Winters in Montaubrac"),
    Phrase("Le Dernier Bac", "The Last Ferry"),
    Phrase("Les Gens de la digue", "The People of the Dyke"),
    Phrase("Une clé pour Armance", "A Key for Armance"),
    Phrase("Le Carnet vert-de-gris", "The Verdigris Notebook"),
    Phrase("Sous la halle aux grains", "Under the Corn Hall"),
    Phrase("La Fille du cadastre", "The Surveyor's Daughter"),
    Phrase("Nuit blanche à Port-Sablier", "Sleepless in Port-Sablier"),
    Phrase("Le Verger des absents", "The Orchard of the Absent"),
    Phrase("Quatre valises", "Four Suitcases"),
    Phrase("L'Horloger de Vernissac", "The Clockmaker of Vernissac"),
    Phrase("Les Cloches de Brume-sur-Aisne", "The Bells of Brume-sur-Aisne"),
    Phrase("Le Tiroir du milieu", "The Middle Drawer"),
    Phrase("Un été chez les Delaroche-Pic", "A Summer with the Delaroche-Pics"),
    Phrase("La Carte muette", "The Blank Map"),
    Phrase("Ceux du septième étage", "The Seventh-Floor People"),
    Phrase("Le Sel et la Craie", "Salt and Chalk"),
    Phrase("Mademoiselle Quintefeuille", "Miss Quintefeuille"),
    Phrase("Le Passage à niveau", "The Level Crossing"),
    Phrase("Six lettres pour Orsane", "Six Letters for Orsane"),
    Phrase("Le Bruit des persiennes", "The Sound of Shutters"),
    Phrase("Les Oies de la Saint-Lambert", "The Geese of Saint Lambert's Day"),
    Phrase("Retour à la scierie", "Back to the Sawmill"),
)

AUTHORS = tuple(
    Phrase(name, name)
    for name in (
        "Solène Tavernac",
        "Bastien Ormeval",
        "Maud Keravel-Lys",
        "Anselme Rouvière-Dax",
        "Judith Pommeraye",
        "Octave Lestrugeon",
        "Irène Valcombe",
        "Thibault Marsanne-Roc",
        "Ombeline Garrigou",
        "Firmin Escoublac",
        "Léonie Brassevert",
        "Gaspard Ternoy",
        "Edwige Montclarin",
        "Hippolyte Sauvejoie",
        "Nour Delabastide",
        "Ulysse Quernadec",
    )
)

WHEN = (
    Phrase("pendant les vacances", "during the holidays"),
    Phrase("dans le train", "on the train"),
    Phrase("un dimanche de pluie", "one rainy Sunday"),
    Phrase("au fil de l'été", "over the summer"),
    Phrase("le mois dernier", "last month"),
    Phrase("en deux soirées", "over two evenings"),
    Phrase("entre deux correspondances", "between two connections"),
    Phrase("sur la plage", "on the beach"),
    Phrase("pendant une grippe", "while I had the flu"),
    Phrase("à la pause de midi", "in my lunch breaks"),
    Phrase("au lit, le soir", "in bed, at night"),
    Phrase("en version poche", "in paperback"),
    Phrase("pour un prix de lecteurs", "for a readers' prize"),
    Phrase("pour mon club de lecture", "for my book club"),
    Phrase("en une semaine", "in a week"),
    Phrase("sur ma liseuse", "on my e-reader"),
)

PAGES = (
    Phrase("deux cents", "two hundred"),
    Phrase("trois cent vingt", "three hundred and twenty"),
    Phrase("quatre cents", "four hundred"),
    Phrase("cinq cent dix", "five hundred and ten"),
    Phrase("six cents", "six hundred"),
    Phrase("cent quarante", "a hundred and forty"),
    Phrase("huit cents", "eight hundred"),
)

ORDINALS = (
    Phrase("deuxième", "second"),
    Phrase("troisième", "third"),
    Phrase("quatrième", "fourth"),
    Phrase("dernier", "latest"),
)

# How the book came to the reviewer. {this} agrees with {work}.
CONTEXTS = (
    Phrase("j'ai lu « {title} » {when}.", "I read “{title}” {when}."),
    Phrase("j'ai lu {this} {work} {when}.", "I read this {work} {when}."),
    Phrase("« {title} » m'a été offert par {someone}.", "“{title}” was given to me by {someone}."),
    Phrase("{someone} m'a prêté « {title} ».", "{someone} lent me “{title}”."),
    Phrase("{someone} m'avait parlé de {this} {work}.", "{someone} had told me about this {work}."),
    Phrase("{someone} m'a mis {this} {work} entre les mains.", "{someone} put this {work} in my hands."),
    Phrase("c'est {someone} qui m'a fait lire {author}.", "it was {someone} who got me to read {author}."),
    Phrase(
        "je connaissais déjà {author} par ses nouvelles.", "I already knew the short stories of {author}."
    ),
    Phrase(
        "« {title} » est le {ordinal} roman de {author}.", "“{title}” is the {ordinal} novel by {author}."
    ),
    Phrase("j'ai acheté {this} {work} à la gare.", "I bought this {work} at the station."),
    Phrase("j'ai emprunté {this} {work} à la médiathèque.", "I borrowed this {work} from the library."),
    Phrase(
        "j'ai déniché {this} {work} dans une boîte à livres.", "I picked up this {work} in a book-swap box."
    ),
    Phrase("{this} {work} compte {pages} pages.", "this {work} runs to {pages} pages."),
    Phrase("je lis rarement ce genre de livres.", "I rarely read this kind of book."),
    Phrase(
        "{this} {work} attendait dans ma bibliothèque depuis des mois.",
        "this {work} had been waiting on my shelves for months.",
    ),
    Phrase("reçu à Noël, ouvert en février.", "received at Christmas, opened in February."),
    Phrase("je lis {author} depuis des années.", "I have been reading {author} for years."),
    Phrase(
        "je parle aujourd'hui de « {title} », de {author}.",
        "today I am talking about “{title}”, by {author}.",
    ),
    Phrase(
        "tout le monde parle de « {title} » en ce moment.",
        "everyone is talking about “{title}” at the moment.",
    ),
    Phrase("lu {when}.", "read {when}."),
)

PLACES = (
    Phrase("dans un village du Jura", "in a village in the Jura"),
    Phrase("sur une île bretonne", "on a Breton island"),
    Phrase("à Marseille", "in Marseille"),
    Phrase("au bord de la Loire", "on the banks of the Loire"),
    Phrase("dans une vallée reculée", "in a remote valley"),
    Phrase("dans un port du Nord", "in a northern port"),
    Phrase("au fond des Cévennes", "deep in the Cévennes"),
    Phrase("à Bruxelles", "in Brussels"),
    Phrase("à Montréal", "in Montreal"),
    Phrase("dans une petite ville de province", "in a small provincial town"),
    Phrase("quelque part en Auvergne", "somewhere in Auvergne"),
    Phrase("sur la côte normande", "on the Norman coast"),
    Phrase("près de la frontière suisse", "near the Swiss border"),
    Phrase("dans un faubourg de Lyon", "in a suburb of Lyon"),
)

TIMES = (
    Phrase("au début du siècle dernier", "at the start of the last century"),
    Phrase("pendant l'hiver 1956", "during the winter of 1956"),
    Phrase("dans les années soixante", "in the nineteen-sixties"),
    Phrase("à la veille de la guerre", "on the eve of the war"),
    Phrase("juste après la guerre", "just after the war"),
    Phrase("en pleine canicule", "in the middle of a heatwave"),
    Phrase("un soir de crue", "one night of flooding"),
    Phrase("un matin de neige", "one snowy morning"),
    Phrase("à l'automne 1931", "in the autumn of 1931"),
    Phrase("le jour de la rentrée", "on the first day of school"),
)


class Hero(NamedTuple):
    """Who a book is about."""

    french: str
    english: str
    plural: bool = False


HEROES = (
    Hero("une institutrice", "a schoolteacher"),
    Hero("un facteur à la retraite", "a retired postman"),
    Hero("deux sœurs", "two sisters", True),
    Hero("un jeune notaire", "a young notary"),
    Hero("une cartographe", "a mapmaker"),
    Hero("trois cousins", "three cousins", True),
    Hero("un médecin", "a doctor"),
    Hero("une pianiste", "a pianist"),
    Hero("un horloger", "a clockmaker"),
    Hero("une inspectrice du fisc", "a tax inspector"),
    Hero("des jumeaux", "twins", True),
    Hero("une veuve", "a widow"),
    Hero("un apprenti boulanger", "an apprentice baker"),
    Hero("une couturière", "a seamstress"),
)


class Deed(NamedTuple):
    """What the hero does, or the heroes do."""

    singular: Phrase
    plural: Phrase


DEEDS = (
    Deed(Phrase("revient au pays", "comes home"), Phrase("reviennent au pays", "come home")),
    Deed(
        Phrase("découvre une lettre oubliée", "finds a forgotten letter"),
        Phrase("découvrent une lettre oubliée", "find a forgotten letter"),
    ),
    Deed(
        Phrase("hérite d'une librairie", "inherits a bookshop"),
        Phrase("héritent d'une librairie", "inherit a bookshop"),
    ),
    Deed(
        Phrase("enquête sur une disparition", "investigates a disappearance"),
        Phrase("enquêtent sur une disparition", "investigate a disappearance"),
    ),
    Deed(
        Phrase("doit vendre la maison familiale", "has to sell the family home"),
        Phrase("doivent vendre la maison familiale", "have to sell the family home"),
    ),
    Deed(
        Phrase("tient un journal secret", "keeps a secret diary"),
        Phrase("tiennent un journal secret", "keep a secret diary"),
    ),
    Deed(
        Phrase("cherche un père inconnu", "looks for an unknown father"),
        Phrase("cherchent un père inconnu", "look for an unknown father"),
    ),
    Deed(
        Phrase("reprend un café abandonné", "takes over an abandoned café"),
        Phrase("reprennent un café abandonné", "take over an abandoned café"),
    ),
    Deed(
        Phrase("apprend le violon", "learns the violin"), Phrase("apprennent le violon", "learn the violin")
    ),
    Deed(
        Phrase("recueille un enfant perdu", "takes in a lost child"),
        Phrase("recueillent un enfant perdu", "take in a lost child"),
    ),
    Deed(
        Phrase("témoigne dans un procès", "gives evidence at a trial"),
        Phrase("témoignent dans un procès", "give evidence at a trial"),
    ),
    Deed(
        Phrase("cache un inconnu au grenier", "hides a stranger in the attic"),
        Phrase("cachent un inconnu au grenier", "hide a stranger in the attic"),
    ),
    Deed(
        Phrase("quitte tout du jour au lendemain", "leaves everything overnight"),
        Phrase("quittent tout du jour au lendemain", "leave everything overnight"),
    ),
    Deed(Phrase("ouvre un atelier", "opens a workshop"), Phrase("ouvrent un atelier", "open a workshop")),
)

# What the book is about.
SUMMARIES = (
    Phrase("l'action se déroule {place}, {time}.", "the action takes place {place}, {time}."),
    Phrase("on y suit {hero} qui {deed}.", "it follows {hero} who {deed}."),
    Phrase("{place}, {time}, {hero} {deed}.", "{place}, {time}, {hero} {deed}."),
    Phrase(
        "c'est l'histoire de {hero} qui {deed}, {place}.", "it is the story of {hero} who {deed}, {place}."
    ),
    Phrase("tout commence {time}, quand {hero} {deed}.", "it all begins {time}, when {hero} {deed}."),
    Phrase(
        "{time}, {hero} {deed} : voilà le point de départ.",
        "{time}, {hero} {deed}: that is the starting point.",
    ),
    Phrase("le livre raconte comment {hero} {deed}.", "the book tells how {hero} {deed}."),
    Phrase("nous voilà {place}, {time}.", "here we are {place}, {time}."),
)
