"""Letters to a shop, each with one sentence that decides what the writer wants.

An endless supply in which no single word decides: other sentences tell, in the same words, what
somebody else wanted, or what the writer does not want.
"""

import random

from examples.common import dates
from examples.documents.data import Document

THINGS = ["kettle", "lamp", "radio", "clock", "toaster", "camera", "bicycle", "printer", "blender"]
THINGS += ["mirror", "suitcase", "tent", "heater", "fountain-pen", "typewriter", "telescope"]
THINGS += ["lawnmower"]
FAULTS = ["rattles", "leaks", "squeaks", "buzzes", "overheats", "wobbles", "flickers", "smokes"]
PEOPLE = ["brother", "sister", "neighbour", "cousin", "uncle", "aunt", "colleague", "landlord"]
PARTS = {
    "person": [*PEOPLE, "grandmother", "teacher"],
    "day": dates.WEEKDAYS[:6],
    "month": dates.MONTHS[:8] + dates.MONTHS[9:11],
    "town": "Ardvik Bellmoor Corvale Drumlin Elmscott Forsund Hexwold Jolmar".split(),  # noqa: SIM905
}

# What the writer wants, in words that fit after "I want to" and "she wanted to".
WISHES = {
    "exchange": (
        "exchange the {thing} for another one",
        "have a new {thing} sent instead",
        "swap the {thing} for a larger model",
    ),
    "refund": (
        "get the money back",
        "be paid back what the {thing} cost",
        "return the {thing} for a refund",
    ),
    "repair": (
        "have the {thing} repaired",
        "let a mechanic mend the {thing}",
        "get the {thing} working again",
    ),
}
DECISIVE = (
    "I want to {wish}",
    "I would like to {wish}",
    "I hope to {wish}",
    "All I ask is to {wish}",
    "Now I ask you to let me {wish}",
    "This time I would rather {wish}",
)
# These use the same words, so that no word tells.
OTHERS = (
    "My {person} wanted to {wish}",
    "I know people who want to {wish}",
    "Last year my {person} asked to {wish}",
    "Your assistant asked whether I want to {wish}",
    "I do not want to {wish}",
    "I would not like to {wish}",
    "I hope nobody else has to {wish}",
    "All my {person} could do is {wish}",
    "All the others ask you to let them {wish}",
    "Now my {person} has to {wish}",
    "This time my {person} would rather {wish}",
    "You let me {wish} last year",
    "In {month} I was happy to {wish}",
)
PLAIN = (
    "I bought the {thing} in your shop on {day}",
    "The {thing} {fault} whenever it is used",
    "My {person} was with me when I bought it",
    "It was a present for my {person}",
    "On {day} I wrote to your office in {town}",
    "The parcel came from {town} in {month}",
    "Since {month} the {thing} {fault} and {fault2}",
    "I have been a customer of yours since {month}",
    "Your shop in {town} was closed on {day}",
    "The receipt is in the envelope",
    "My {person} in {town} has the same {thing}",
    "It stood on a shelf all through {month}",
    "Nobody in {town} could tell me why it {fault}",
    "The man at the counter was very kind",
)


def make(size, seed=0):
    """Makes letters, and the number of each deciding sentence. A seed gives the same letters."""
    rng = random.Random(seed)
    documents, deciding = [], []
    for number in range(size):
        label, thing = rng.choice(list(WISHES)), rng.choice(THINGS)
        sentences = [_fill(text, rng, thing) for text in rng.sample(PLAIN, rng.randint(3, 8))]
        for _ in range(rng.randint(1, 3)):
            other = rng.choice(list(WISHES))
            sentences.append(_fill(rng.choice(OTHERS), rng, rng.choice(THINGS), other))
        rng.shuffle(sentences)
        place = rng.randint(0, len(sentences))
        sentences.insert(place, _fill(rng.choice(DECISIVE), rng, thing, label))
        text = " ".join(f"{sentence}." for sentence in sentences)
        documents.append(Document(f"letter {number}", text, label))
        deciding.append(place)
    return documents, deciding


def _fill(text, rng, thing, label=None):
    if label:
        text = text.replace("{wish}", rng.choice(WISHES[label]))
    fault, fault2 = rng.sample(FAULTS, 2)
    chosen = {name: rng.choice(words) for name, words in PARTS.items()}
    return text.format(thing=thing, fault=fault, fault2=fault2, **chosen)
