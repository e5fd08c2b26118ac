"""How many words are pronounced wrongly, and a report of it."""

from examples.common.files import write_text
from examples.common.text import edit_distances


def score(found, references):
    """Both error rates of phones, in percent, as in SIGMORPHON 2021, task 1."""
    pairs = list(zip(map(list, found), map(list, references), strict=True))
    edits = int(edit_distances(found, references).sum())
    return {
        "words": len(pairs),
        "word_error_rate": 100 * sum(a != b for a, b in pairs) / len(pairs),
        "phone_error_rate": 100 * edits / sum(map(len, references)),
    }


def judge(pronouncer, words):
    """The phones that are found for the test words, and the error rates of dev and test."""
    found = {split: pronouncer([word for word, _ in words[split]]) for split in ("dev", "test")}
    scores = {split: score(x, [phones for _, phones in words[split]]) for split, x in found.items()}
    return found["test"], scores


def report(summary, pairs, found, path):
    """Writes what was found for the test words; prints some wrong ones, times and error rates."""
    words = [word for word, _ in pairs]
    lines = [f"{word}\t{' '.join(phones)}\n" for word, phones in zip(words, found, strict=True)]
    write_text(path, "".join(lines))
    wrong = [(word, a, b) for (word, b), a in zip(pairs, found, strict=True) if a != b]
    print(f"\nThe first of {len(wrong)} wrong words of the test set:")
    for word, phones, right in wrong[:6]:
        print(f"  {word}  {' '.join(phones)}  (reference: {' '.join(right)})")
    print(f"\n{summary['attention']}, {summary['parameters']:,} parameters")
    for model in summary["models"]:
        print(f"  seed {model['seed']}, {model['direction']}: {_rates(model)}")
    if len(summary["models"]) > 1:
        print(f"  all {len(summary['models'])} together: {_rates(summary)}")
    print(f"exactly right: {100 - summary['test']['word_error_rate']:.1f}% of the test words")


def _rates(scores):
    return ", ".join(
        f"{split} words wrong {scores[split]['word_error_rate']:.2f}%, phones "
        f"{scores[split]['phone_error_rate']:.2f}%"
        for split in ("dev", "test")
    )
