"""How many words are pronounced wrongly, and a report of it."""


def word_error_rate(found, references):
    """The percentage of words whose phones are not exactly right, as in SIGMORPHON 2021, task 1.

    Args:
        found, references: sequences of phones for the same words.
    """
    if not references:
        raise ValueError("there is no word to compare")
    wrong = sum(list(a) != list(b) for a, b in zip(found, references, strict=True))
    return 100 * wrong / len(references)


def phone_error_rate(found, references):
    """The edits between found and right phones, in percent of the right phones of all words."""
    pairs = zip(found, references, strict=True)
    return 100 * sum(edits(a, b) for a, b in pairs) / sum(map(len, references))


def edits(a, b):
    """The smallest number of insertions, deletions and substitutions that turn `a` into `b`."""
    row = list(range(len(b) + 1))
    for i, x in enumerate(a, 1):
        last, row[0] = row[0], i
        for j, y in enumerate(b, 1):
            last, row[j] = row[j], min(row[j] + 1, row[j - 1] + 1, last + (x != y))
    return row[-1]
