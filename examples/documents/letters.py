"""Letters to a shop, each with one sentence that decides what the writer wants.

An endless supply in which no single word decides: other sentences tell, in the same words, what
somebody else wanted, or what the writer does not want.
"""

import configparser
import pathlib
import random

from examples.common import dates
from examples.documents.data import Document

TEXTS = configparser.ConfigParser(interpolation=None)
TEXTS.read(pathlib.Path(__file__).with_name("letters.ini"), encoding="utf-8")
THINGS, FAULTS, PEOPLE, TOWNS = (text.split() for text in TEXTS["words"].values())
WISHES = {label: text.strip().split("\n") for label, text in TEXTS["wishes"].items()}
DECISIVE, OTHERS, PLAIN = (x.strip().split("\n") for x in TEXTS["sentences"].values())
MONTHS = dates.MONTHS[:8] + dates.MONTHS[9:11]
PARTS = {"person": PEOPLE, "day": dates.WEEKDAYS[:6], "month": MONTHS, "town": TOWNS}


def make(size, seed=0):
    """Makes letters, and the number of each deciding sentence. A seed gives the same letters."""
    rng, documents, deciding = random.Random(seed), [], []
    for number in range(size):
        label, thing = rng.choice(list(WISHES)), rng.choice(THINGS)
        sentences = [_fill(text, rng, thing) for text in rng.sample(PLAIN, rng.randint(3, 8))]
        for _ in range(rng.randint(1, 3)):
            other = rng.choice(list(WISHES))
            sentences.append(_fill(rng.choice(OTHERS), rng, rng.choice(THINGS), other))
        rng.shuffle(sentences)
        place = rng.randint(0, len(sentences))
        sentences.insert(place, _fill(rng.choice(DECISIVE), rng, thing, label))
        documents.append(Document(f"letter {number}", ". ".join(sentences) + ".", label))
        deciding.append(place)
    return documents, deciding


def _fill(text, rng, thing, label=None):
    if label:
        text = text.replace("{wish}", rng.choice(WISHES[label]))
    fault, fault2 = rng.sample(FAULTS, 2)
    chosen = {name: rng.choice(words) for name, words in PARTS.items()}
    return text.format(thing=thing, fault=fault, fault2=fault2, **chosen)
