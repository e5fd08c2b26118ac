"""SQuAD v1.1: reading its JSON, and the published scores for predicted answers.

    python examples/squad.py DATASET.json PREDICTIONS.json

prints the exact match and the F1 of predictions, a JSON object from question ids to texts.
"""

import argparse
import collections
import json
import pathlib
import re
import string
import sys
from typing import NamedTuple

KINDS = {str: "a string", list: "a list", int: "a whole number of at least 0"}
ARTICLES = re.compile(r"\b(?:an?|the)\b")
# JSON may hold escapes such as \ud800 alone, which no later step could encode.
SURROGATES = re.compile(r"[\ud800-\udfff]")
PUNCTUATION = str.maketrans("", "", string.punctuation)


class Example(NamedTuple):
    """A question about a passage.

    Attributes:
        answers: the gold answers. Training uses the first.
        start: where `answers[0]` begins in the passage, in characters (code points). In a test set
            it is whatever the file says.
    """

    id: str
    passage: str
    question: str
    answers: tuple[str, ...]
    start: int


# --- reading -------------------------------------------------------------------------------------


def read(path, training):
    """The questions of a SQuAD v1.1 file.

    Args:
        path: a JSON file.
        training: leave out what nothing can be learned from. Nothing that is scored may be left
            out of a test set, so there only questions without a gold answer are.

    Returns:
        `(examples, skipped)`: a list of `Example` and a `collections.Counter` from the reasons for
        which questions were left out to how many there were.
    """
    document = _load(path)
    examples, skipped, ids = [], collections.Counter(), set()
    try:
        for example in _walk(document, ids):
            reason = _reason(example, training)
            if reason:
                skipped[reason] += 1
            else:
                examples.append(example)
        if not ids:
            raise ValueError("found no question at all, expected at least one")
    except ValueError as error:
        raise SystemExit(
            f"{path}: {error}. Give a file in the format of SQuAD v1.1. Nothing was written."
        ) from None
    return examples, skipped


def _load(path):
    try:
        return json.loads(pathlib.Path(path).read_bytes().decode("utf-8-sig"))
    except OSError as error:
        raise SystemExit(
            f"{path}: {error.strerror}; a JSON file was expected. Nothing was written."
        ) from None
    except UnicodeDecodeError as error:
        raise SystemExit(
            f"{path}: not UTF-8 (byte {error.start + 1}). Convert it. Nothing was written."
        ) from None
    except (ValueError, RecursionError) as error:
        raise SystemExit(
            f"{path}: not JSON that can be read ({error}). Nothing was written."
        ) from None


def _walk(document, ids):
    """Every question as an `Example`, -1 for the start of a missing answer; fills the set `ids`."""
    for article, article_place in _items(document, "data", ""):
        for paragraph, paragraph_place in _items(article, "paragraphs", article_place):
            passage = _field(paragraph, "context", str, paragraph_place)
            for entry, place in _items(paragraph, "qas", paragraph_place):
                question = _field(entry, "question", str, place)
                name = _field(entry, "id", str, place)
                if name in ids:
                    raise ValueError(
                        f"{place}: found the id {name!r} for a second time, expected ids that "
                        "differ, since predictions are stored by them"
                    )
                ids.add(name)
                answers = [
                    (_field(answer, "text", str, at), _field(answer, "answer_start", int, at))
                    for answer, at in _items(entry, "answers", place)
                ]
                texts = tuple(text for text, _ in answers)
                yield Example(name, passage, question, texts, answers[0][1] if answers else -1)


def _items(parent, key, place):
    for index, item in enumerate(_field(parent, key, list, place)):
        yield item, f"{place}.{key}[{index}]".lstrip(".")


def _field(parent, key, kind, place):
    if isinstance(parent, dict):
        value = parent.get(key)
        # The type itself: a bool is an instance of int.
        if type(value) is kind and not (kind is int and value < 0):
            if kind is not str or not SURROGATES.search(value):
                return value
            found = "half of a surrogate pair, which is no character,"
        else:
            found = _describe(value) if key in parent else "nothing"
        found += f" under {key!r}"
    else:
        found = f"{_describe(parent)} instead of an object"
    place = place or "the top level"
    raise ValueError(f"{place}: found {found}, expected {KINDS[kind]} under {key!r}")


def _describe(value):
    if isinstance(value, list):
        return "a list"
    if isinstance(value, dict):
        return "an object"
    text = json.dumps(value, ensure_ascii=True)
    text = text if len(text) <= 40 else text[:40] + "..."
    if isinstance(value, str):
        return f"the string {text}"
    return text if value is None or isinstance(value, bool) else f"the number {text}"


def _reason(example, training):
    """Why a question is left out, or None."""
    if not example.answers:
        return "no answer"
    if not training:
        return None
    if not example.passage.strip():
        return "passage empty"
    if not example.question.strip():
        return "question empty"
    if not example.answers[0].strip():
        return "answer empty"
    if not example.passage.startswith(example.answers[0], example.start):
        return "answer not at its offset"
    return None


# --- scoring -------------------------------------------------------------------------------------


def normalize(text):
    """What two texts are compared by: no case, ASCII punctuation, articles, extra white space."""
    return " ".join(ARTICLES.sub(" ", text.lower().translate(PUNCTUATION)).split())


def exact_match(prediction, answers):
    """Whether a prediction is one of the gold answers."""
    return any(normalize(prediction) == normalize(answer) for answer in answers)


def f1(prediction, answers):
    """The F1 of the words of a prediction and those of the gold answer that gives the highest.

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
        predictions: a dictionary from question ids to texts. A question without one counts as
            wrong; ids of no question are ignored.
        examples: a list of `Example`.

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
    """A JSON object from question ids to texts."""
    predictions = _load(path)
    if not isinstance(predictions, dict):
        raise SystemExit(
            f"{path}: found {_describe(predictions)}, expected an object from question ids to "
            "texts. Nothing was written."
        )
    for name, text in predictions.items():
        if not isinstance(text, str):
            raise SystemExit(
                f"{path}: found {_describe(text)} for the question {name!r}, expected a string; "
                'an empty answer is "". Nothing was written.'
            )
    return predictions


def main(arguments=None):
    parser = argparse.ArgumentParser(description="Scores predicted answers as SQuAD v1.1 does.")
    parser.add_argument("dataset", metavar="DATASET.json")
    parser.add_argument("predictions", metavar="PREDICTIONS.json")
    options = parser.parse_args(arguments)
    examples, skipped = read(options.dataset, training=False)
    predictions = read_predictions(options.predictions)
    # Standard output is left to the scores, for another program to read.
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
