"""An invented language whose spelling has rules, for runs without data.

`pronounce` applies the rules, so every word has one right answer:

- digraphs: sh ch th ng are one phone each; so are ai ou ee;
- a letter with two phones: x is k s;
- silent letters: k and g before n at the start, h after g or r, one of two equal consonants;
- a silent e at the end, which makes the vowel before one consonant long: tame is t aː m;
- context: c and g are soft before e and i, s is z between vowels, b d g v z harden at the end.

`python -m examples.pronunciation.language` prints some words.
"""

import random

VOWELS = "aeiou"
DIGRAPHS = {"sh": "ʃ", "ch": "tʃ", "th": "θ", "ng": "ŋ", "ai": "e", "ou": "u", "ee": "iː"}
HARDENED = {"b": "p", "d": "t", "ɡ": "k", "v": "f", "z": "s", "dʒ": "tʃ"}
ONSETS = [*"bcdfgklmnprstvz", "sh", "ch", "th", "kn", "gn", "gh", "rh", "st", "tr", "pl", "br"]
NUCLEI = [*VOWELS * 3, "ai", "ou", "ee"]
CODAS = [*[""] * 14, *"nsrltdbgvxm", "ng", "sh", "th", "nt"]


def pronounce(word):
    """Returns the phones of a word, a list of strings."""
    phones, i = [], 0
    while i < len(word):
        letter, rest = word[i], word[i + 1 :]
        before = word[i - 1] if i else ""
        pair = letter + rest[:1]
        if pair in DIGRAPHS:
            phones.append(DIGRAPHS[pair])
            i += 2
            continue
        i += 1
        if letter in VOWELS:
            if not _silent(word, i):
                phones.append(letter + "ː" if _long(word, i) else letter)
        elif letter == "x":
            phones += ["k", "s"]
        elif not _mute(letter, before, rest):
            phones.append(_consonant(letter, before, rest))
    if phones[-1] in HARDENED and word[-1] != "e":
        phones[-1] = HARDENED[phones[-1]]
    return phones


def _mute(letter, before, rest):
    """Whether a consonant is silent."""
    first = letter in "kg" and not before and rest[:1] == "n"
    after = letter == "h" and before in tuple("gr")
    return first or after or letter == rest[:1]


def _silent(word, i):
    """Whether the letter before place `i` is a final e after a consonant and an earlier vowel."""
    earlier = word[: i - 1]
    return word[i - 1 :] == "e" and earlier[-1:] not in VOWELS and any(x in VOWELS for x in earlier)


def _long(word, i):
    """Whether the vowel before place `i` is long: one consonant and a final e follow it."""
    consonant = word[i : i + 1]
    alone = i < 2 or word[i - 2] not in VOWELS
    return alone and word[i + 1 :] == "e" and consonant not in (*VOWELS, "x")


def _consonant(letter, before, rest):
    soft = rest[:1] in ("e", "i")
    if letter == "c":
        return "s" if soft else "k"
    if letter == "g":
        return "dʒ" if soft else "ɡ"
    if letter == "s" and before in tuple(VOWELS) and rest[:1] in tuple(VOWELS):
        return "z"
    return letter


def make_word(rng):
    """Invents a word of one to four syllables."""
    word = ""
    for _ in range(rng.choice((1, 2, 2, 3, 3, 4))):
        onset = rng.choice(ONSETS)
        # Two equal consonants, sometimes, between vowels.
        double = word and word[-1] in VOWELS and len(onset) == 1 and rng.random() < 0.15
        word += onset * (2 if double else 1) + rng.choice(NUCLEI) + rng.choice(CODAS)
    return word + "e" if word[-1] not in VOWELS and rng.random() < 0.3 else word


def make_sets(sizes, seed=0):
    """Makes disjoint sets of words with their phones.

    Args:
        sizes: the number of words in each set.
        seed: the same seed gives the same words.

    Returns:
        For each size a list of `(word, phones)`.
    """
    rng = random.Random(seed)
    words = {}
    while len(words) < sum(sizes):
        word = make_word(rng)
        words[word] = pronounce(word)
    words = iter(words.items())
    return [[next(words) for _ in range(size)] for size in sizes]


if __name__ == "__main__":
    for word, phones in make_sets([20])[0]:
        print(f"{word:>16}  {' '.join(phones)}")
