"""The names, and the kinds of facts, of the generated passages."""

from typing import NamedTuple

# No name is part of another name or of a word in the sentences below: an answer must occur once.
FIRST_NAMES = """
    Adela Åsa Bertil Brisa Cormac Čedo Dagmar Davor Edwina Eskil Fenna Florin Gaspard Greta Hanno
    Hedvig Ilko Imre Jarmila Jorun Kaspar Kirsi Lennox Lucja Mira Márton Nadir Nuria Ottmar Oksana
    Pavle Petra Quirin Rafaela René Rosalba Sanna Søren Tamsin Tibor Ulrike Urho Valentin Vesna
    Wanda Wilmot Xaver Xenia Yannick Yvette Zbigniew Zoë Anselm Birte Clovis Dunja Emeric Fjodor
    Gundel Henrike
""".split()  # noqa: SIM905
SURNAMES = """
    Abelson Aubrac Barsky Bjørnstad Castellan Cvetko Dvorak Duclos Eklund Escher Farkas Fontane
    Grünwald Galanis Hartog Holloway Ivarsson Iglesias Janáček Jurgens Kowalik Kestrel Laurier
    Lindqvist Mazur Montalvo Nyström Novello Olsen Ormond Pashley Pettersen Quist Quennell Rybak
    Rousset Solberg Szabó Tolnai Thorne Ustinov Ulvaeus Varga Villard Wexford Wolski Xanthis
    Ximenes Yardley Yildiz Zander Zorić Ackroyd Bellini Corrigan Delacroix Ferrante Hruska Kjeldsen
    Mortensen
""".split()  # noqa: SIM905
TOWNS = """
    Ardvik Almonte Brackwater Bellmoor Corvale Caldros Drumlin Dunmere Elmscott Érdvar Fallowby
    Forsund Gravenholt Glimmersea Hexwold Hollinge Isenfell Inverlach Jaspergate Jolmar Kettlewick
    Krasnik Lorvessa Lüneck Marnhull Myrefoss Netherby Nordhavn Oakmere Orvieste Palehurst
    Pradel Quarrydown Quillmoor Ravensea Rødvig Sedgemouth Silverrun Tarnow Thistledon Umberlow
    Uppergate Velbrück Vintermark Wyckham Westerlo Yarrowdale Zellwig
""".split()  # noqa: SIM905
TOWNS += ["Port Kesk", "Port Tavish", "Saint Orban", "Saint Mawgan", "North Stell", "Upper Dray"]
TOWNS += ["New Fennick", "Fort Anholt", "Cape Lisse", "Mount Ashby", "Château Brun", "Lake Ostrin"]

WHO, PLACE, YEAR, THING = "who", "place", "year", "thing"
ROLES = (WHO, PLACE, YEAR, THING)


class Kind(NamedTuple):
    """A kind of fact about a person: how it is told and asked.

    Attributes:
        ages: the lowest and the highest age of the person.
        things: the things it may be about, if any.
        predicates: texts that follow the name, alone or beside another predicate.
        sentences: whole sentences, with another order of words.
        descriptions: texts that name the person by this fact.
        questions: for each part of the fact, the questions that ask for it.
    """

    ages: tuple[int, int]
    things: tuple[str, ...]
    predicates: tuple[str, ...]
    sentences: tuple[str, ...]
    descriptions: tuple[str, ...]
    questions: dict[str, tuple[str, ...]]

    @property
    def roles(self):
        return self.questions.keys()


KINDS = {
    "birth": Kind(
        (0, 0),
        (),
        ("was born in {place} in {year}", "was born in {year} in {place}"),
        ("In {year} {who} was born in {place}", "{place} was where {who} was born in {year}"),
        ("the person born in {place}", "the person born in {year}"),
        {
            WHO: ("Who was born in {place}?", "Who was born in {year}?"),
            PLACE: ("Where was {who} born?", "Which town was {who} born in?"),
            YEAR: ("When was {who} born?", "In which year was {who} born?"),
        },
    ),
    "wedding": Kind(
        (20, 40),
        (),
        ("was married in {place} in {year}", "married in {year} in {place}"),
        ("In {year} {who} married in {place}", "{place} saw the wedding of {who} in {year}"),
        ("the person who married in {place}", "the person who married in {year}"),
        {
            WHO: ("Who was married in {place}?", "Who married in {year}?"),
            PLACE: ("Where was {who} married?", "In which town did {who} marry?"),
            YEAR: ("When did {who} marry?", "In which year was {who} married?"),
        },
    ),
    "move": Kind(
        (18, 54),
        (),
        ("moved to {place} in {year}", "settled in {place} in {year}"),
        ("In {year} {who} moved to {place}", "{place} became the home of {who} in {year}"),
        ("the person who moved to {place}", "the person who moved in {year}"),
        {
            WHO: ("Who moved to {place}?", "Who moved to another town in {year}?"),
            PLACE: ("Where did {who} move?", "Which town did {who} move to?"),
            YEAR: ("When did {who} move?", "In which year did {who} settle in another town?"),
        },
    ),
    "death": Kind(
        (55, 85),
        (),
        ("died in {place} in {year}", "died in {year} at {place}"),
        ("In {year} {who} died in {place}", "{place} was where {who} died in {year}"),
        ("the person who died in {place}", "the person who died in {year}"),
        {
            WHO: ("Who died in {place}?", "Who died in {year}?"),
            PLACE: ("Where did {who} die?", "In which town did {who} die?"),
            YEAR: ("When did {who} die?", "In which year did {who} die?"),
        },
    ),
    "shop": Kind(
        (20, 50),
        (
            "cheese",
            "candles",
            "ropes",
            "gloves",
            "saddles",
            "clocks",
            "pottery",
            "carpets",
            "paper",
        ),
        ("sold {thing} in {place}", "kept a shop in {place} and sold {thing}"),
        ("In {place} {who} sold {thing}", "The shop of {who} in {place} sold {thing}"),
        ("the seller of {thing}", "the person with a shop in {place}"),
        {
            WHO: ("Who sold {thing}?", "Who had a shop in {place}?"),
            PLACE: ("Where did {who} have a shop?", "In which town did {who} sell {thing}?"),
            THING: ("What did {who} sell?", "Which goods did {who} have in the shop?"),
        },
    ),
    "school": Kind(
        (20, 50),
        ("geometry", "botany", "dancing", "drawing", "Latin", "music", "surgery", "algebra"),
        ("taught {thing} in {place}", "gave lessons in {thing} at {place}"),
        ("In {place} {who} taught {thing}", "The {thing} teacher of {place} was {who}"),
        ("the teacher of {thing}", "the person who taught in {place}"),
        {
            WHO: ("Who taught {thing}?", "Who was a teacher in {place}?"),
            PLACE: ("Where did {who} teach?", "In which town did {who} teach {thing}?"),
            THING: ("What did {who} teach?", "In which subject did {who} give lessons?"),
        },
    ),
    "building": Kind(
        (25, 54),
        ("windmill", "lighthouse", "stone bridge", "chapel", "hospital", "granary", "theatre"),
        ("built the {thing} in {year}", "put up the {thing} in {year}"),
        ("In {year} {who} built the {thing}", "The {thing} was built by {who} in {year}"),
        ("the builder of the {thing}", "the person who built something in {year}"),
        {
            WHO: ("Who built the {thing}?", "Who put up a building in {year}?"),
            YEAR: ("When did {who} put up a building?", "In which year did {who} build something?"),
            THING: ("What did {who} build?", "Which building did {who} put up?"),
        },
    ),
    "book": Kind(
        (22, 54),
        ("owls", "comets", "chess", "whales", "glaciers", "mushrooms", "wild bees", "knots"),
        ("wrote a book about {thing} in {year}", "published a book on {thing} in {year}"),
        (
            "In {year} {who} published a book about {thing}",
            "The book about {thing} was written by {who} in {year}",
        ),
        ("the author of the book about {thing}", "the author of the book of {year}"),
        {
            WHO: ("Who wrote a book about {thing}?", "Who published a book in {year}?"),
            YEAR: ("When did {who} write a book?", "In which year did {who} publish a book?"),
            THING: ("What did {who} write about?", "What was the book by {who} about?"),
        },
    ),
}
