"""Reads the questions of a SQuAD v1.1 file, and names what is wrong with it."""

import collections
import json
from typing import NamedTuple

from examples.common.files import read_text, refuse


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
        for example in _walk(json.loads(read_text(path))):
            if example.id in ids:
                raise ValueError(
                    f"two questions have the id {example.id!r}, but predictions are stored by id"
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
    except (ValueError, KeyError, TypeError, RecursionError) as error:  # ValueError: also of JSON
        refuse(
            path,
            f"not a file of SQuAD v1.1: {type(error).__name__}: {error}. Give a JSON file with "
            "data, paragraphs, context, qas, id, question, answers, text and answer_start",
        )
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
    """Yields every question as an `Example`. The start of no answer is -1."""
    for article in _list_of(document, "data"):
        for paragraph in _list_of(article, "paragraphs"):
            for entry in _list_of(paragraph, "qas"):
                texts = entry["id"], paragraph["context"], entry["question"]
                found = _list_of(entry, "answers")
                answers = tuple(answer["text"] for answer in found)
                starts = [answer["answer_start"] for answer in found]
                strings = all(isinstance(text, str) for text in (*texts, *answers))
                # Compare the type itself, because a bool is an instance of int.
                if not strings or any(type(n) is not int or n < 0 for n in starts):
                    raise ValueError(
                        "expected strings in id, context, question and text, and a whole number "
                        f"of at least 0 in answer_start; found {str((*texts, found))[:300]}"
                    )
                # Fails if the JSON holds half of a surrogate pair, like \ud800.
                "".join((*texts, *answers)).encode()
                yield Example(*texts, answers, starts[0] if starts else -1)


def _list_of(part, name):
    if not isinstance(part[name], list):
        raise ValueError(f"expected a list in {name}; found {str(part[name])[:80]!r}")
    return part[name]
