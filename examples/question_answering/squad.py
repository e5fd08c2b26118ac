"""Reads the questions of a SQuAD v1.1 file, and names what is wrong with it."""

import collections
import json
import pathlib
import re
from typing import NamedTuple

KINDS = {str: "a string", list: "a list", int: "a whole number of at least 0"}
# JSON may contain half of a surrogate pair, such as \ud800, which no later step could encode.
SURROGATES = re.compile(r"[\ud800-\udfff]")


class Example(NamedTuple):
    """A question about a passage.

    Attributes:
        id: names the question.
        passage: the text that holds the answer.
        question: the text of the question.
        answers: the gold answers. Training uses the first.
        start: where `answers[0]` begins in the passage, in characters (code points). In a test set
            this number is not checked.
    """

    id: str
    passage: str
    question: str
    answers: tuple[str, ...]
    start: int


def read(path, training):
    """Reads the questions of a SQuAD v1.1 file.

    Args:
        path: a JSON file.
        training: whether to leave out questions that nothing can be learned from. From a test set
            only questions without a gold answer are left out, because the others are scored.

    Returns:
        `(examples, skipped)`: a list of `Example`, and a Counter with the reasons for which
        questions were left out.
    """
    document = load(path)
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


def load(path):
    """Reads a JSON file."""
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
    """Yields every question as an `Example`, and adds its id to the set `ids`.

    The start of a missing answer is -1.
    """
    for article, article_place in _items(document, "data", ""):
        for paragraph, paragraph_place in _items(article, "paragraphs", article_place):
            passage = _field(paragraph, "context", str, paragraph_place)
            for entry, place in _items(paragraph, "qas", paragraph_place):
                question = _field(entry, "question", str, place)
                name = _field(entry, "id", str, place)
                if name in ids:
                    raise ValueError(
                        f"{place}: found the id {name!r} for a second time, expected ids that "
                        "differ, because predictions are stored by id"
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
        # Compare the type itself, because a bool is an instance of int.
        if type(value) is kind and not (kind is int and value < 0):
            if kind is not str or not SURROGATES.search(value):
                return value
            found = "half of a surrogate pair, which is no character,"
        else:
            found = describe(value) if key in parent else "nothing"
        found += f" under {key!r}"
    else:
        found = f"{describe(parent)} instead of an object"
    place = place or "the top level"
    raise ValueError(f"{place}: found {found}, expected {KINDS[kind]} under {key!r}")


def describe(value):
    """Names a JSON value in a message."""
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
