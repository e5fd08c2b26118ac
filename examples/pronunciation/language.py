"""An invented language whose spelling has rules, for runs without data."""

import random
import re

CONSONANT = "([^aeioux])"
# The first rule that fits at a place of the word. E is a silent e at the end.
RULES = [
    # Digraphs.
    *{"sh": "ʃ", "ch": "tʃ", "th": "θ", "ng": "ŋ", "ai": "e", "ou": "u", "ee": "iː"}.items(),
    # A silent e makes the vowel before one consonant long: tame is t aː m.
    ("E", ""),
    (rf"(?<![aeiou])[aeiou](?={CONSONANT}E)", r"\g<0>ː"),
    ("x", "k s"),
    # Silent are k and g before n at the start, h after g or r, and one of two equal consonants.
    ("^[kg](?=n)", ""),
    ("(?<=[gr])h", ""),
    (rf"{CONSONANT}(?=\1)", ""),
    # c and g are soft before e and i, and s is z between vowels.
    ("c(?=[eiE])", "s"),
    ("c", "k"),
    ("g(?=[eiE])", "dʒ"),
    ("g", "ɡ"),
    ("(?<=[aeiou])s(?=[aeiouE])", "z"),
    (".", r"\g<0>"),
]
RULES = [(re.compile(letters), phones) for letters, phones in RULES]
HARDENED = {"b": "p", "d": "t", "ɡ": "k", "v": "f", "z": "s", "dʒ": "tʃ"}  # at the end
ONSETS = [*"bcdfgklmnprstvz", "sh", "ch", "th", "kn", "gn", "gh", "rh", "st", "tr", "pl", "br"]
NUCLEI = [*"aeiou" * 3, "ai", "ou", "ee"]
CODAS = [*[""] * 14, *"nsrltdbgvxm", "ng", "sh", "th", "nt"]


def pronounce(word):
    """Returns the phones of a word, a list of strings. Every word has one right answer."""
    word = re.sub("([aeiou].*[^aeiou])e$", r"\1E", word)
    phones, place = [], 0
    while place < len(word):
        found = ((rule.match(word, place), sounds) for rule, sounds in RULES)
        match, sounds = next(pair for pair in found if pair[0])
        phones += match.expand(sounds).split()
        place = match.end()
    if word[-1] != "E":
        phones[-1] = HARDENED.get(phones[-1], phones[-1])
    return phones


def make_word(rng):
    """Invents a word of one to four syllables."""
    word = ""
    for _ in range(rng.choice((1, 2, 2, 3, 3, 4))):
        onset = rng.choice(ONSETS)
        # Two equal consonants, sometimes, between vowels.
        double = word and word[-1] in "aeiou" and len(onset) == 1 and rng.random() < 0.15
        word += onset * (2 if double else 1) + rng.choice(NUCLEI) + rng.choice(CODAS)
    return word + "e" if word[-1] not in "aeiou" and rng.random() < 0.3 else word


def make_sets(sizes, seed=0):
    """Makes disjoint lists of `(word, phones)` of these sizes. The seed decides the words."""
    rng = random.Random(seed)
    words = {}
    while len(words) < sum(sizes):
        word = make_word(rng)
        words[word] = pronounce(word)
    words = iter(words.items())
    return [[next(words) for _ in range(size)] for size in sizes]
