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


def score(found, pairs):
    """Both error rates of found phones, for pairs of words and phones."""
    references = [phones for _, phones in pairs]
    return {
        "words": len(pairs),
        "word_error_rate": word_error_rate(found, references),
        "phone_error_rate": phone_error_rate(found, references),
    }


def report(summary, pairs, found):
    """Prints some wrong words of the test set, the times and the error rates."""
    wrong = [(word, a, b) for (word, b), a in zip(pairs, found, strict=True) if a != b]
    print(f"\nThe first of {len(wrong)} wrong words of the test set:")
    for word, phones, right in wrong[:6]:
        print(f"  {word}  {' '.join(phones)}  (reference: {' '.join(right)})")
    print(f"\n{summary['attention']}, {summary['parameters']:,} parameters")
    for model in summary["models"]:
        print(
            f"  seed {model['seed']}, {model['direction']}: {_rates(model)}; trained in "
            f"{model['train_seconds']:.0f} s, searched in {model['search_seconds']:.0f} s"
        )
    if len(summary["models"]) > 1:
        print(f"  all {len(summary['models'])} together: {_rates(summary)}")
    print(f"exactly right: {100 - summary['test']['word_error_rate']:.1f}% of the test words")


def _rates(scores):
    return ", ".join(
        f"{split} words wrong {scores[split]['word_error_rate']:.2f}%, phones "
        f"{scores[split]['phone_error_rate']:.2f}%"
        for split in ("dev", "test")
    )
