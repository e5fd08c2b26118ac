"""Questions about passages, generated or from SQuAD, as padded batches of ids."""

import collections
import pathlib
from typing import NamedTuple

import keras
import numpy as np

from examples.common.batching import bucketed
from examples.common.devices import COMPILED
from examples.question_answering import passages, squad
from examples.question_answering.vocabulary import Encoded, encode

FILES = ("train-v1.1.json", "dev-v1.1.json")
SOURCE = "https://rajpurkar.github.io/SQuAD-explorer/dataset/"
# Lengths are padded to multiples of this number.
MULTIPLE = 64 if COMPILED else 8


def load_data(arguments):
    """Examples to train on and to test on. Prints how many questions cannot be used, and why."""
    if not arguments.data:
        sizes = (8_000, 200) if arguments.smoke else (8_000, 1_000)
        return passages.split(sizes, seed=arguments.seed)
    if arguments.data == "download":
        paths = [keras.utils.get_file(name, SOURCE + name) for name in FILES]
    else:
        paths = [pathlib.Path(arguments.data) / name for name in FILES]
    sets = []
    for path, training in zip(paths, (True, False), strict=True):
        examples, left_out = squad.read(path, training)
        print(f"{path}: {len(examples):,} questions")
        if left_out:
            print(f"  left out: {describe(left_out)}")
        if not examples:
            raise SystemExit(
                f"{path}: no question of it can be used: {describe(left_out)}. Nothing was written."
            )
        sets.append(examples)
    return sets


class Questions(NamedTuple):
    """Encoded questions about encoded passages.

    passage_of: `(Q,)`, the number of the passage of each question. spans: `(Q, 2)`, the first and
    the last token of the answer; zeros in a test set.
    """

    examples: list
    passages: Encoded
    questions: Encoded
    passage_of: np.ndarray
    spans: np.ndarray

    def inputs(self, index):
        """The four inputs of the model for the questions with these numbers."""
        texts = (self.passages, self.passage_of[index]), (self.questions, index)
        return [ids for text, rows in texts for ids in text.padded(rows, MULTIPLE)]

    def batches(self, size, order=None, chosen=None):
        """Index arrays of questions of similar length: all questions, or those `chosen`."""
        chosen = np.arange(len(self.examples)) if chosen is None else chosen
        lengths = [self.questions.lengths, self.passages.lengths[self.passage_of]]
        batches = bucketed(np.transpose(lengths)[chosen], size, order)
        return [chosen[batch] for batch in batches]


def prepare(examples, vocabulary, limits=None):
    """Encodes examples.

    Args:
        examples: a list of `squad.Example`.
        vocabulary: a `Vocabulary`.
        limits: the largest numbers of tokens in a passage and in a question. Pass them for
            training: what nothing can be learned from is then left out.

    Returns:
        `Questions`, and a Counter of what was left out.
    """
    texts = list(dict.fromkeys(example.passage for example in examples))
    numbers = {text: n for n, text in enumerate(texts)}
    passage_of = np.array([numbers[example.passage] for example in examples])
    data = Questions(
        examples,
        encode(texts, vocabulary),
        encode([example.question for example in examples], vocabulary),
        passage_of,
        np.zeros((len(examples), 2), "int32"),
    )
    if limits is None:
        return data, collections.Counter()
    # Outside the loop, because `lengths` is computed for all texts whenever it is read.
    passage_lengths = data.passages.lengths[passage_of]
    question_lengths = data.questions.lengths
    left_out, kept = collections.Counter(), []
    for n, example in enumerate(examples):
        first, last = find_span(example, data.passages, passage_of[n])
        data.spans[n] = first, last
        if passage_lengths[n] > limits[0]:
            left_out[f"passage of more than {limits[0]} tokens"] += 1
        elif question_lengths[n] > limits[1]:
            left_out[f"question of more than {limits[1]} tokens"] += 1
        elif question_lengths[n] == 0:
            left_out["question without a word"] += 1
        elif last < first:
            left_out["answer without a word"] += 1
        else:
            kept.append(n)
    if not kept:
        raise SystemExit(f"no question is left to train on: {describe(left_out)}")
    if left_out:
        data = Questions(
            [examples[n] for n in kept],
            data.passages,
            data.questions.select(kept),
            passage_of[kept],
            data.spans[kept],
        )
    return data, left_out


def find_span(example, passages, number):
    """The first and the last token that share a byte with the answer."""
    begin = len(example.passage[: example.start].encode())
    end = begin + len(example.answers[0].encode())
    tokens = passages.tokens(number)
    first = np.searchsorted(passages.ends[tokens], begin, side="right")
    last = np.searchsorted(passages.starts[tokens], end, side="left") - 1
    return first, last


def cut(data, n, first, last):
    """The text from one token to another, cut out of the original passage of question n."""
    tokens = data.passages.tokens(data.passage_of[n])
    if tokens.start == tokens.stop:
        return ""
    begin = data.passages.starts[tokens.start + first]
    end = data.passages.ends[tokens.start + last]
    return data.examples[n].passage.encode()[begin:end].decode()


def describe(counter):
    return ", ".join(f"{count:,} with {reason}" for reason, count in counter.items())
