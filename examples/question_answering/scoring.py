"""The scores of predicted answers, as the official evaluation of SQuAD v1.1 computes them.

    python -m examples.question_answering.scoring DATASET.json PREDICTIONS.json

prints the exact match and the F1 of predictions, a JSON object from question ids to texts.
"""

import argparse
import collections
import json
import re
import string
import sys

from examples.question_answering import squad

ARTICLES = re.compile(r"\b(?:an?|the)\b")
PUNCTUATION = str.maketrans("", "", string.punctuation)


def normalize(text):
    """Removes what the comparison ignores: case, ASCII punctuation, articles, extra white space."""
    return " ".join(ARTICLES.sub(" ", text.lower().translate(PUNCTUATION)).split())


def exact_match(prediction, answers):
    """Whether a prediction equals one of the gold answers."""
    return any(normalize(prediction) == normalize(answer) for answer in answers)


def f1(prediction, answers):
    """The F1 of the words of a prediction and of a gold answer, the highest of all gold answers.

    Without a word in common it is 0, even if both are empty, as in the published definition.
    """
    return max((_f1(prediction, answer) for answer in answers), default=0.0)


def _f1(prediction, answer):
    predicted, gold = normalize(prediction).split(), normalize(answer).split()
    common = (collections.Counter(predicted) & collections.Counter(gold)).total()
    return 2 * common / (len(predicted) + len(gold)) if common else 0.0


def evaluate(predictions, examples):
    """The scores of a test set.

    Args:
        predictions: a dictionary from question ids to texts. A question without a prediction counts
            as wrong. Ids that belong to no question are ignored.
        examples: a list of `squad.Example`.

    Returns:
        A dictionary of the percentages "exact_match" and "f1" and the counts "questions" and
        "unanswered".
    """
    if not examples:
        raise ValueError("there is no question to score: examples is empty")
    answered = [(predictions[e.id], e.answers) for e in examples if e.id in predictions]
    return {
        "exact_match": 100 * sum(exact_match(*pair) for pair in answered) / len(examples),
        "f1": 100 * sum(f1(*pair) for pair in answered) / len(examples),
        "questions": len(examples),
        "unanswered": len(examples) - len(answered),
    }


def read_predictions(path):
    """Reads a JSON object from question ids to texts."""
    predictions = squad.load(path)
    if not isinstance(predictions, dict):
        raise SystemExit(
            f"{path}: found {squad.describe(predictions)}, expected an object from question ids to "
            "texts. Nothing was written."
        )
    for name, text in predictions.items():
        if not isinstance(text, str):
            raise SystemExit(
                f"{path}: found {squad.describe(text)} for the question {name!r}, expected a "
                'string; an empty answer is "". Nothing was written.'
            )
    return predictions


def main(arguments=None):
    parser = argparse.ArgumentParser(
        prog="python -m examples.question_answering.scoring",
        description="Scores predicted answers as SQuAD v1.1 does.",
    )
    parser.add_argument("dataset", metavar="DATASET.json")
    parser.add_argument("predictions", metavar="PREDICTIONS.json")
    options = parser.parse_args(arguments)
    examples, skipped = squad.read(options.dataset, training=False)
    predictions = read_predictions(options.predictions)
    # Only the scores go to the standard output, so that another program can read them.
    for reason, count in skipped.items():
        print(f"{options.dataset}: {count} questions left out: {reason}", file=sys.stderr)
    if not examples:
        raise SystemExit(
            f"{options.dataset}: no question has a gold answer, at least one expected. "
            "Nothing was written."
        )
    print(json.dumps(evaluate(predictions, examples)))


if __name__ == "__main__":
    main()
