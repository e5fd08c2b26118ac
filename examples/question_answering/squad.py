"""Reads the questions of a SQuAD v1.1 file, and names what is wrong with it."""

import collections
import json
from typing import NamedTuple

from examples.common.files import read_text, refuse


class Example(NamedTuple):
    """A question about a passage. Training uses the first of the gold answers.

    start: where `answers[0]` begins in the passage, in characters. Not checked in a test set.
    """

    id: str
    passage: str
    question: str
    answers: tuple[str, ...]
    start: int


def read(path, training):
    """Reads a SQuAD v1.1 file: a list of `Example`, and a count of what was left out.

    From a training set, questions that nothing can be learned from are left out. From a test set,
    only those without a gold answer: the others are scored.
    """
    examples, left_out, ids = [], collections.Counter(), set()
    try:
        for example in _walk(json.loads(read_text(path))):
            if example.id in ids:
                both = f"two questions have the id {example.id!r}"
                raise ValueError(f"{both}, but predictions are stored by id")
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
        keys = "data, paragraphs, context, qas, id, question, answers, text and answer_start"
        wrong = f"not a file of SQuAD v1.1: {type(error).__name__}: {error}"
        refuse(path, f"{wrong}. Give a JSON file with {keys}")
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
    for article in document["data"]:
        for paragraph in article["paragraphs"]:
            for entry in paragraph["qas"]:
                texts = entry["id"], paragraph["context"], entry["question"]
                found = [(answer["text"], answer["answer_start"]) for answer in entry["answers"]]
                strings = all(isinstance(x, str) for x in (*texts, *(text for text, _ in found)))
                # Compare the type itself, because a bool is an instance of int.
                if not strings or any(type(n) is not int or n < 0 for _, n in found):
                    raise ValueError(
                        "expected strings in id, context, question and text, and a whole number "
                        f"of at least 0 in answer_start; found {str((*texts, found))[:300]}"
                    )
                answers = tuple(text for text, _ in found)
                # Fails if the JSON holds half of a surrogate pair, like \ud800.
                "".join((*texts, *answers)).encode()
                yield Example(*texts, answers, found[0][1] if found else -1)
