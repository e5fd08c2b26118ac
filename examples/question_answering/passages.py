"""Short passages about invented people, and questions that they answer.

An endless supply in which the question decides: what it asks about one person, the passage also
tells about another. Run it to see some: `python examples/passages.py`.
"""

import random
from typing import NamedTuple

from squad import Example

# No name is part of another one or of a word in the sentences below: an answer must occur once.
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
    """What can be told about a person, and asked.

    Attributes:
        ages: the youngest and the oldest somebody may be at it.
        things: what the thing may be, if there is one.
        predicates: what follows the name, alone or beside another predicate.
        sentences: whole ones, in another order.
        descriptions: ways to mean the person without the name.
        questions: for each part of the fact, the questions that it answers.
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


class Fact(NamedTuple):
    kind: Kind
    values: dict[str, str]  # by role
    age: int

    def fill(self, text, who=None):
        """A text of `KINDS` with the values in it, and `who` for the person."""
        return text.format(**{**self.values, WHO: who})


def make_examples(size, seed=0):
    """A list of `Example`, about four to a passage; the same seed gives the same ones."""
    return split([size], seed)[0]


def split(sizes, seed=0):
    """Disjoint sets: no passage is in two of them.

    Args:
        sizes: how many examples in each set.
        seed: the same seed gives the same sets.

    Returns:
        For each size a list of `Example`.
    """
    rng = random.Random(seed)
    seen, sets = set(), []
    for size in sizes:
        examples = []
        while len(examples) < size:
            passage, questions = _make_passage(rng)
            if passage in seen:
                continue
            for number, (question, answer) in enumerate(questions):
                name = f"{len(seen)}-{number}"
                start = passage.index(answer)
                examples.append(Example(name, passage, question, (answer,), start))
            seen.add(passage)
        sets.append(examples[:size])
    return sets


def _make_passage(rng):
    """A passage of 50 to 80 words and four pairs of a question and its answer."""
    while True:
        facts = _make_facts(rng)
        if facts is None:
            continue
        groups = _group(facts, rng)
        passage = _write(groups, rng)
        if not 50 <= len(passage.split()) <= 80:
            continue
        candidates = _ask(groups, passage, rng)
        questions = []
        for role in rng.choices(ROLES, k=4):
            if candidates[role]:
                questions.append(candidates[role].pop())
        if len(questions) == 4:
            return passage, questions


def _make_facts(rng):
    """A list of facts for each person, or None if a draw did not fit.

    Each kind of fact is told about two people or more, with different values, so that the type of
    the answer and the verb alone never decide.
    """
    size = rng.choice((3, 4))
    names = zip(rng.sample(FIRST_NAMES, size), rng.sample(SURNAMES, size), strict=True)
    people = [f"{first} {surname}" for first, surname in names]
    births = [rng.randint(1700, 1914) for _ in people]
    kinds = rng.sample(list(KINDS.values()), 3)
    if any(all(role not in kind.roles for kind in kinds) for role in ROLES):
        return None
    places = iter(rng.sample(TOWNS, size * len(kinds)))
    years, facts = set(), [[] for _ in people]
    for kind in kinds:
        told = rng.sample(range(size), rng.randint(2, size))
        things = rng.sample(kind.things, len(told)) if kind.things else [None] * len(told)
        for person, thing in zip(told, things, strict=True):
            values = {WHO: people[person]}
            if THING in kind.roles:
                values[THING] = thing
            if PLACE in kind.roles:
                values[PLACE] = next(places)
            age = rng.randint(*kind.ages)
            if YEAR in kind.roles:
                year = births[person] + age
                if year in years:
                    return None
                years.add(year)
                values[YEAR] = str(year)
            facts[person].append(Fact(kind, values, age))
    return facts if all(facts) else None


def _group(facts, rng):
    """The facts in random order, in lists of those of one person that share a sentence."""
    groups = []
    for told in facts:
        rng.shuffle(told)
        while told:
            size = 2 if len(told) > 1 and rng.random() < 0.6 else 1
            groups.append([told.pop() for _ in range(size)])
    rng.shuffle(groups)
    return groups


def _write(groups, rng):
    sentences, named, joinable = [], set(), None
    for group in groups:
        name = group[0].values[WHO]
        # Later mentions are often the surname alone, as in any text about people.
        who = name.split()[1] if name in named and rng.random() < 0.5 else name
        named.add(name)
        predicates = [fact.fill(rng.choice(fact.kind.predicates)) for fact in group]
        plain = len(group) == 1 and rng.random() < 0.5
        if plain:
            text = f"{who} {predicates[0]}"
        elif len(group) == 1:
            text = group[0].fill(rng.choice(group[0].kind.sentences), who)
        elif rng.random() < 0.5:
            text = f"{who}, who {predicates[0]}, {predicates[1]}"
        else:
            # In the order of a life: nobody dies and then sells cheese.
            if group[0].age > group[1].age:
                predicates.reverse()
            text = f"{who} {predicates[0]} and {predicates[1]}"
        if plain and joinable not in (None, name) and rng.random() < 0.6:
            sentences[-1] += f", while {text}"
            joinable = None
        else:
            sentences.append(text)
            joinable = name if plain else None
    return " ".join(f"{sentence}." for sentence in sentences)


def _ask(groups, passage, rng):
    """For each role of an answer, pairs of a question and its answer in random order."""
    candidates = {role: [] for role in ROLES}
    for group in groups:
        for fact in group:
            name = fact.values[WHO]
            surname = name.split()[1]
            # The other fact of the sentence can stand for the person: "the seller of cheese".
            others = [
                other.fill(text)
                for other in group
                if other is not fact
                for text in other.kind.descriptions
            ]
            for role, texts in fact.kind.questions.items():
                who = rng.choice((name, name, name, surname, *others))
                question, answer = fact.fill(rng.choice(texts), who), fact.values[role]
                # A person mentioned twice is no answer: there would be two places to point at.
                unclear = passage.count(surname if role == WHO else answer) != 1
                # Both may be called Port something.
                if unclear or set(question.rstrip("?").split()) & set(answer.split()):
                    continue
                candidates[role].append((question, answer))
    for pairs in candidates.values():
        rng.shuffle(pairs)
    return candidates


if __name__ == "__main__":
    shown = None
    for example in make_examples(12):
        if example.passage != shown:
            shown = example.passage
            print(f"\n{shown}")
        print(f"  {example.question}  {example.answers[0]}")
