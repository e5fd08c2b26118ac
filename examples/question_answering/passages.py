"""Short passages about invented people, and questions that they answer.

An endless supply in which the question decides: the passage tells the same kind of thing about
several people. `facts.ini` holds the names and the sentences.
"""

import configparser
import pathlib
import random
from typing import NamedTuple

from examples.question_answering.squad import Example

ROLES = ("who", "place", "year", "thing")
FACTS = configparser.ConfigParser(interpolation=None)
FACTS.read(pathlib.Path(__file__).with_name("facts.ini"), encoding="utf-8")
FIRST_NAMES, SURNAMES = (FACTS["names"][name].split() for name in ("first", "surnames"))
TOWNS = FACTS["names"]["towns"].replace("\n", " ").strip().split(", ")
KINDS = {  # of facts about a person: texts by their names
    name: {key: text.split(" | ") for key, text in FACTS[name].items()}
    for name in FACTS.sections()
    if name != "names"
}


class Fact(NamedTuple):
    kind: dict
    values: dict  # by role
    age: int

    def fill(self, text, who=None):
        """Fills the values into a text of a kind, and `who` for the person."""
        return text.format(**{**self.values, "who": who})


def make_sets(sizes, seed=0):
    """Makes a list of `Example` for each size, about four for each passage.

    No passage is in two lists. The same seed gives the same lists.
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
                name, start = f"{len(seen)}-{number}", passage.index(answer)
                examples.append(Example(name, passage, question, (answer,), start))
            seen.add(passage)
        sets.append(examples[:size])
    return sets


def _make_passage(rng):
    """Makes a passage of 50 to 80 words and four pairs of a question and its answer."""
    while True:
        facts = _make_facts(rng)
        if facts is None:
            continue
        groups = _group(facts, rng)
        passage = _write(groups, rng)
        if not 50 <= len(passage.split()) <= 80:
            continue
        candidates = _ask(groups, passage, rng)
        questions = [candidates[x].pop() for x in rng.choices(ROLES, k=4) if candidates[x]]
        if len(questions) == 4:
            return passage, questions


def _make_facts(rng):
    """Makes a list of facts for each person, or returns None if a draw did not fit.

    Each kind of fact is told about at least two people, with different values. So the type of the
    answer and the verb alone never decide.
    """
    size = rng.choice((3, 4))
    names = zip(rng.sample(FIRST_NAMES, size), rng.sample(SURNAMES, size), strict=True)
    people = [f"{first} {surname}" for first, surname in names]
    births = [rng.randint(1700, 1914) for _ in people]
    kinds = rng.sample(list(KINDS.values()), 3)
    if any(all(role not in kind for kind in kinds) for role in ROLES):
        return None
    places = iter(rng.sample(TOWNS, size * len(kinds)))
    years, facts = set(), [[] for _ in people]
    for kind in kinds:
        told = rng.sample(range(size), rng.randint(2, size))
        things = rng.sample(kind["things"], len(told)) if "things" in kind else [None] * len(told)
        for person, thing in zip(told, things, strict=True):
            age = rng.randint(*map(int, kind["ages"][0].split()))
            year = str(births[person] + age)
            values = {"who": people[person], "thing": thing, "year": year}
            if "place" in kind:
                values["place"] = next(places)
            if "year" in kind:
                if year in years:
                    return None
                years.add(year)
            values = {role: value for role, value in values.items() if role in kind}
            facts[person].append(Fact(kind, values, age))
    return facts if all(facts) else None


def _group(facts, rng):
    """Groups facts about one person that share a sentence; the groups are in random order."""
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
        name = group[0].values["who"]
        # Later mentions often give the surname alone, as in any text about people.
        who = name.split()[1] if name in named and rng.random() < 0.5 else name
        named.add(name)
        predicates = [fact.fill(rng.choice(fact.kind["predicates"])) for fact in group]
        plain = len(group) == 1 and rng.random() < 0.5
        if plain:
            text = f"{who} {predicates[0]}"
        elif len(group) == 1:
            text = group[0].fill(rng.choice(group[0].kind["sentences"]), who)
        elif rng.random() < 0.5:
            text = f"{who}, who {predicates[0]}, {predicates[1]}"
        else:
            # Events follow the order of a life: nobody dies and then sells cheese.
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
    """Makes pairs of a question and its answer, in random order, for each role of an answer."""
    candidates = {role: [] for role in ROLES}
    for fact, together in ((fact, group) for group in groups for fact in group):
        name = fact.values["who"]
        surname = name.split()[1]
        # The other fact of the sentence can stand for the person: "the seller of cheese".
        others = [x.fill(y) for x in together if x is not fact for y in x.kind["descriptions"]]
        for role in ROLES:
            if role not in fact.kind:
                continue
            who = rng.choice((name, name, name, surname, *others))
            question, answer = fact.fill(rng.choice(fact.kind[role]), who), fact.values[role]
            # A person who is mentioned twice is no answer: two places would be right.
            unclear = passage.count(surname if role == "who" else answer) != 1
            # Question and answer may share a word: both may be called Port something.
            if not unclear and not set(question.rstrip("?").split()) & set(answer.split()):
                candidates[role].append((question, answer))
    for pairs in candidates.values():
        rng.shuffle(pairs)
    return candidates
