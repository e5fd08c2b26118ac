"""Stories with questions in the format of bAbI: read from its files, or made up here.

An endless supply of stories of people who walk about and carry things, with questions that one,
two or three sentences decide. Run it to see some: `python examples/stories.py`.
"""

import pathlib
import random
import re
from typing import NamedTuple

ARCHIVE = "https://s3.amazonaws.com/text-datasets/babi_tasks_1-20_v1-2.tar.gz"
FOLDERS = {"1k": "en", "10k": "en-10k"}
# Of tasks 1 to 20, as the files have it.
NAMES = """
    single-supporting-fact two-supporting-facts three-supporting-facts two-arg-relations
    three-arg-relations yes-no-questions counting lists-sets simple-negation indefinite-knowledge
    basic-coreference conjunction compound-coreference time-reasoning basic-deduction
    basic-induction positional-reasoning size-reasoning path-finding agents-motivations
""".split()  # noqa: SIM905


class Question(NamedTuple):
    """A question about the sentences before it.

    facts: the numbers, from 0, of the sentences of the story that decide.
    """

    story: tuple
    text: str
    answer: str
    facts: tuple


# --- reading -------------------------------------------------------------------------------------


def find_files(folder, size):
    """The training and test file of each task: `{number: (path, path)}`, in their order.

    Args:
        folder: with the files of all tasks, or with the folders "en" and "en-10k".
        size: "1k" or "10k".
    """
    folder = pathlib.Path(folder)
    if not folder.is_dir():
        raise SystemExit(
            f"{folder}: not a folder. Give the one with the files qa1_..._train.txt, or the "
            "archive's, with its folders en and en-10k. Nothing was written."
        )
    inner = folder / FOLDERS[size]
    if inner.is_dir():
        folder = inner
    found = {}
    for path in sorted(folder.iterdir()):
        match = re.fullmatch(r"qa([1-9]\d*)_.*_(train|test)\.txt", path.name)
        if match:
            paths = found.setdefault(int(match[1]), {})
            if match[2] in paths:
                raise SystemExit(
                    f"{path} and {paths[match[2]].name}: both are of task {match[1]}. Take one "
                    "away. Nothing was written."
                )
            paths[match[2]] = path
    if not found:
        raise SystemExit(
            f"{folder}: holds no file such as qa1_single-supporting-fact_train.txt, nor is there "
            f"a folder {FOLDERS[size]} in it with some. Nothing was written."
        )
    for number in sorted(found):
        for kind in {"train", "test"} - set(found[number]):
            print(f"{folder}: task {number} has no {kind} file, and is left out")
    pairs = {n: (found[n].get("train"), found[n].get("test")) for n in sorted(found)}
    pairs = {n: pair for n, pair in pairs.items() if all(pair)}
    if not pairs:
        raise SystemExit(f"{folder}: no task has a train and a test file. Nothing was written.")
    return pairs


def read(path):
    """The questions of a file."""
    try:
        text = path.read_bytes().decode().removeprefix("\ufeff")
    except OSError as error:
        raise SystemExit(f"{path}: {error.strerror}. Nothing was written.") from error
    except UnicodeDecodeError as error:
        raise SystemExit(
            f"{path}: not UTF-8 at byte {error.start} ({error.object[error.start]:#04x}). Convert "
            "it, for example: iconv -f latin1 -t utf-8. Nothing was written."
        ) from error
    questions, last, story, places = [], 0, [], {}
    for line, content in enumerate(text.split("\n"), 1):
        if not content.strip():
            continue
        try:
            number, content = _numbered(content, last)
            if number == 1:
                story, places = [], {}
            last = number
            if "\t" in content:
                questions.append(_question(content, story, places))
            else:
                places[number] = len(story)
                story.append(content.strip())
        except ValueError as error:
            raise SystemExit(f"{path}, line {line}: {error}. Nothing was written.") from error
    if not questions:
        raise SystemExit(f"{path}: holds no question. Nothing was written.")
    return questions


def _numbered(content, last):
    number, _, content = content.strip().partition(" ")
    if not number.isascii() or not number.isdigit() or not content.strip():
        raise ValueError(
            f"expected a number, a space and a sentence, found {(number + ' ' + content)[:80]!r}"
        )
    if int(number) not in (1, last + 1):
        wanted = f"{last + 1}, or 1 for a new story" if last else "1"
        raise ValueError(f"expected the number {wanted}, found {number}")
    return int(number), content


def _question(content, story, places):
    text, answer, *facts = (part.strip() for part in content.split("\t"))
    if not text or not answer or len(facts) > 1:
        raise ValueError(
            "expected a question, a tab, its answer, and after another tab the numbers of the "
            f"sentences that decide; found {content[:80]!r}"
        )
    numbers = facts[0].split() if facts else []
    for number in numbers:
        if not number.isascii() or not number.isdigit() or int(number) not in places:
            raise ValueError(f"the deciding sentence {number!r} is none of the story before")
    return Question(tuple(story), text, answer, tuple(places[int(n)] for n in numbers))


# --- made up -------------------------------------------------------------------------------------

PEOPLE = ("Ines", "Olaf", "Priya", "Tomasz")
PLACES = ("harbour", "library", "market", "orchard", "station", "workshop")
THINGS = ("lantern", "parcel", "violin")
WALKS = ("{who} walked to the {place}.", "{who} went over to the {place}.")
TAKES = ("{who} picked up the {thing}.", "{who} took the {thing} along.")
LEAVES = ("{who} put down the {thing}.", "{who} left the {thing} there.")
# By the number of sentences that decide.
ASKED = {
    1: "Where is {who}?",
    2: "Where is the {thing}?",
    3: "Where was the {thing} before the {place}?",
}


class World:
    """Who is where with what, and the sentences that say so."""

    def __init__(self, rng):
        self.rng, self.story = rng, []
        self.walked = {}  # person: (place, sentence)
        self.carried = {}  # thing: (person, sentence)
        # Of each thing the places it has been seen to come to, with the sentences that decide.
        self.trail = {thing: [] for thing in THINGS}

    def tell(self, text, **names):
        self.story.append(self.rng.choice(text).format(**names))
        return len(self.story) - 1

    def step(self):
        """One thing happens."""
        rng, who = self.rng, self.rng.choice(PEOPLE)
        holds = [thing for thing, (person, _) in self.carried.items() if person == who]
        here = self.walked.get(who, (None, None))[0]
        # Not carried, and nowhere else.
        free = [
            thing
            for thing in THINGS
            if here
            and thing not in self.carried
            and (not self.trail[thing] or self.trail[thing][-1][0] == here)
        ]
        kind = rng.random()
        if free and kind < 0.45:
            thing = rng.choice(free)
            told = self.tell(TAKES, who=who, thing=thing)
            self.carried[thing] = who, told
            if not self.trail[thing]:
                self.trail[thing].append((here, (self.walked[who][1], told)))
        elif holds and kind < 0.6:
            thing = rng.choice(holds)
            self.tell(LEAVES, who=who, thing=thing)
            del self.carried[thing]
        else:
            place = rng.choice([place for place in PLACES if place != here])
            told = self.tell(WALKS, who=who, place=place)
            self.walked[who] = place, told
            for thing in holds:
                self.trail[thing].append((place, (self.carried[thing][1], told)))

    def ask(self, facts):
        """A question that so many sentences decide, or None while there is none."""
        rng = self.rng
        if facts == 1:
            who = rng.choice(list(self.walked)) if self.walked else None
            if who is None:
                return None
            place, told = self.walked[who]
            return self._question(ASKED[1].format(who=who), place, {told})
        wanted = [thing for thing in THINGS if len(self.trail[thing]) >= facts - 1]
        if not wanted:
            return None
        thing = rng.choice(wanted)
        trail = self.trail[thing]
        if facts == 2:
            place, told = trail[-1]
            return self._question(ASKED[2].format(thing=thing), place, set(told))
        # The last time it came to a place, and where it had been before.
        at = rng.randrange(1, len(trail))
        place = trail[at][0]
        at = max(n for n in range(1, len(trail)) if trail[n][0] == place)
        before, told = trail[at - 1]
        text = ASKED[3].format(thing=thing, place=place)
        return self._question(text, before, {*told, *trail[at][1]})

    def _question(self, text, answer, facts):
        return Question(tuple(self.story), text, answer, tuple(sorted(facts)))


def make(size, facts, seed=0):
    """Questions that `facts` sentences decide, 1, 2 or 3, up to five on a story."""
    rng = random.Random(f"{seed} {facts}")
    questions = []
    while len(questions) < size:
        world = World(rng)
        for _ in range(5):
            for _ in range(rng.randint(2, 2 + facts)):
                world.step()
            question = world.ask(facts)
            if question and len(questions) < size:
                questions.append(question)
    return questions


if __name__ == "__main__":
    for wanted in ASKED:
        question = make(5, wanted)[-1]
        for number, sentence in enumerate(question.story):
            print(f"{'*' if number in question.facts else ' '} {sentence}")
        print(f"  {question.text} {question.answer}\n")
