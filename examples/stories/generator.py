"""Makes stories about people who walk about and carry things, with questions about them.

An endless supply, in which one, two or three sentences decide a question.
"""

import random

from examples.stories.reading import Question

PEOPLE = ("Ines", "Olaf", "Priya", "Tomasz")
PLACES = ("harbour", "library", "market", "orchard", "station", "workshop")
THINGS = ("lantern", "parcel", "violin")
WALKS = ("{who} walked to the {place}.", "{who} went over to the {place}.")
TAKES = ("{who} picked up the {thing}.", "{who} took the {thing} along.")
LEAVES = ("{who} put down the {thing}.", "{who} left the {thing} there.")
# Questions that one, two and three sentences decide.
ASKED = "Where is {who}?", "Where is the {thing}?", "Where was the {thing} before the {place}?"


class World:
    """Where everybody is and what they carry, and the sentences that say so."""

    def __init__(self, rng):
        self.rng, self.story = rng, []
        self.walked = {}  # person: (place, sentence)
        self.carried = {}  # thing: (person, sentence)
        # For each thing the places that it came to, with the deciding sentences.
        self.trail = {thing: [] for thing in THINGS}

    def tell(self, text, **names):
        self.story.append(self.rng.choice(text).format(**names))
        return len(self.story) - 1

    def step(self):
        """Lets one thing happen."""
        rng, who = self.rng, self.rng.choice(PEOPLE)
        holds = [thing for thing, (person, _) in self.carried.items() if person == who]
        here = self.walked.get(who, (None, None))[0]
        # Things that nobody carries and that are in the same place.
        lie = {thing: trail[-1][0] if trail else here for thing, trail in self.trail.items()}
        free = [x for x in THINGS if here and x not in self.carried and lie[x] == here]
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
        """Makes a question that `facts` sentences decide, or None if there is none yet."""
        rng = self.rng
        if facts == 1:
            if not self.walked:
                return None
            who = rng.choice(list(self.walked))
            place, told = self.walked[who]
            return self._question(ASKED[0].format(who=who), place, {told})
        wanted = [thing for thing in THINGS if len(self.trail[thing]) >= facts - 1]
        if not wanted:
            return None
        thing = rng.choice(wanted)
        trail = self.trail[thing]
        if facts == 2:
            place, told = trail[-1]
            return self._question(ASKED[1].format(thing=thing), place, set(told))
        # The last time that it came to a place, and the place before that.
        at = rng.randrange(1, len(trail))
        place = trail[at][0]
        at = max(n for n in range(1, len(trail)) if trail[n][0] == place)
        before, told = trail[at - 1]
        text = ASKED[2].format(thing=thing, place=place)
        return self._question(text, before, {*told, *trail[at][1]})

    def _question(self, text, answer, facts):
        return Question(tuple(self.story), text, answer, tuple(sorted(facts)))


def make(size, facts, seed=0):
    """Makes questions that 1, 2 or 3 sentences (`facts`) decide, up to five for each story."""
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
