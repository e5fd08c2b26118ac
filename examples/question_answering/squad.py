"""Reads the questions of a SQuAD v1.1 file, and names what is wrong with it."""

import collections
import json
import pathlib
import re
from typing import NamedTuple

KINDS = {str: "a string", list: "a list", int: "a whole number of at least 0"}
# JSON may contain half of a surrogate pair, like \ud800, which no later step could encode.
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
        A list of `Example`, and a Counter with the reasons for which questions were left out.
    """
    examples, left_out, ids = [], collections.Counter(), set()
    try:
        for example, place in _walk(json.loads(pathlib.Path(path).read_bytes())):
            if example.id in ids:
                raise ValueError(
                    f"{place}: found the id {example.id!r} for a second time, expected ids that "
                    "differ, because predictions are stored by id"
                )
            ids.add(example.id)
            reason = why_useless(example) if training or not example.answers else None
            if reason:
                left_out[reason] += 1
            else:
                examples.append(example)
        if not examples:
            counts = ", ".join(f"{count:,} with {reason}" for reason, count in left_out.items())
            raise ValueError(f"no question of it can be used: {counts or 'it holds none'}")
    except OSError as error:
        raise SystemExit(f"{path}: {error.strerror}. Nothing was written.") from None
    except (ValueError, RecursionError) as error:  # also of JSON and UTF-8
        raise SystemExit(
            f"{path}: {error}. Give a JSON file in UTF-8 in the format of SQuAD v1.1. Nothing was "
            "written."
        ) from None
    return examples, left_out


def why_useless(example):
    """Why nothing can be learned from a question, or None."""
    if not example.answers:
        return "no answer"
    texts = {"passage": example.passage, "question": example.question, "answer": example.answers[0]}
    for name, text in texts.items():
        if not text.strip():
            return f"{name} empty"
    if not example.passage.startswith(example.answers[0], example.start):
        return "answer not at its offset"
    return None


def _walk(document):
    """Yields every question as an `Example`, and its place. The start of no answer is -1."""
    for article, at in _items(document, "data", ""):
        for paragraph, place in _items(article, "paragraphs", at):
            passage = _field(paragraph, "context", str, place)
            for entry, at in _items(paragraph, "qas", place):
                question, name = (_field(entry, key, str, at) for key in ("question", "id"))
                answers = [
                    (
                        _field(answer, "text", str, inside),
                        _field(answer, "answer_start", int, inside),
                    )
                    for answer, inside in _items(entry, "answers", at)
                ]
                texts, starts = zip(*answers, strict=True) if answers else ((), (-1,))
                yield Example(name, passage, question, texts, starts[0]), at


def _items(parent, key, place):
    for index, item in enumerate(_field(parent, key, list, place)):
        yield item, f"{place}.{key}[{index}]".lstrip(".")


def _field(parent, key, kind, place):
    value = parent.get(key, ...) if isinstance(parent, dict) else parent
    # Compare the type itself, because a bool is an instance of int.
    wrong = type(value) is not kind or not isinstance(parent, dict) or (kind is int and value < 0)
    if wrong or (kind is str and SURROGATES.search(value)):
        found = "nothing" if value is ... else json.dumps(value)[:40]
        place = place or "the top level"
        raise ValueError(f"{place}: found {found}, expected {KINDS[kind]} under {key!r}")
    return value
