"""Stories and questions as ids for a memory network, with random noise between sentences."""

from typing import NamedTuple

import numpy as np
import tensorflow as tf

from examples.common.sentences import split_sentences
from examples.common.tokens import Words

NO_WORD = r"[^\p{L}\p{M}\p{N}]*"


def split(texts):
    """Splits texts `(B,)` into sentences without signs.

    A sentence ends as in `split_sentences`. Sentences of signs alone are left out.

    Returns:
        Ragged words `(B, S, W)`, and the byte where each sentence begins and ends, `(B, S)`.
    """
    words, begins, ends = split_sentences(texts, longest=2**31)
    signs = tf.ragged.map_flat_values(tf.strings.regex_full_match, words, NO_WORD)
    words = tf.ragged.boolean_mask(words, ~signs)
    kept = words.with_values(words.values.row_lengths() > 0)
    begins, ends = tf.reduce_min(begins, axis=2), tf.reduce_max(ends, axis=2)
    return [tf.ragged.boolean_mask(x, kept) for x in (words, begins, ends)]


class Encoded(NamedTuple):
    """Questions as ids, of one task or of several in a row.

    sentences: `(U, W)` word ids of each distinct sentence; the first sentence is empty.
    stories: `(Q, N)` numbers of sentences, padded with 0 at the front.
    questions: `(Q, W')` word ids. answers: `(Q,)` word ids, -1 for an unknown answer.
    """

    sentences: np.ndarray
    stories: np.ndarray
    questions: np.ndarray
    answers: np.ndarray

    def select(self, index):
        return self._replace(
            stories=self.stories[index],
            questions=self.questions[index],
            answers=self.answers[index],
        )

    def inputs(self, memory, noise=0.0, rng=None):
        """Word ids of the last `memory` sentences `(Q, N, W)`, and of the questions `(Q, W')`."""
        stories = noisy(self.stories, noise, rng) if noise else self.stories
        return self.sentences[stories[:, -memory:]], self.questions


def join(parts):
    """Joins several `Encoded` into one."""
    tables = [part.sentences for part in parts]
    # Each part has sentences of its own, but all share the empty one, which is the first.
    begins = np.cumsum([0, *(len(table) - 1 for table in tables[:-1])])
    moved = [np.where(x.stories, x.stories + n, 0) for x, n in zip(parts, begins, strict=True)]
    table = [tables[0][:1], *(table[1:] for table in tables)]
    in_front = _stack([x[:, ::-1] for x in moved])[:, ::-1]
    answers = np.concatenate([part.answers for part in parts])
    questions = _stack([part.questions for part in parts])
    return Encoded(_stack(table), np.ascontiguousarray(in_front), questions, answers)


def _stack(arrays):
    width = max(x.shape[1] for x in arrays)
    return np.concatenate([np.pad(x, ((0, 0), (0, width - x.shape[1]))) for x in arrays])


def noisy(stories, noise, rng):
    """Inserts empty sentences, 0, at random places of stories `(Q, N)`.

    A story of n sentences gets up to `noise` n of them, rounded up. Each number is as likely.
    """
    count, width = stories.shape
    lengths = (stories > 0).sum(axis=1)
    total = lengths + rng.integers(0, np.ceil(noise * lengths).astype(int) + 1)
    width = max(width, int(np.ceil((1 + noise) * width)))
    keys = rng.random((count, width))
    keys[np.arange(width) < width - total[:, None]] = 2  # in front of the story
    keys[:, -1] = -1  # the last sentence stays the last
    ranks = keys.argsort(axis=1).argsort(axis=1)
    result = np.zeros((count, width), stories.dtype)
    result[ranks < lengths[:, None]] = stories[stories > 0]
    return result


class Encoder:
    """Turns stories into ids. The vocabulary comes from the training questions and answers.

    Args:
        questions: a list of `Question` to train on.
    """

    def __init__(self, questions):
        lines = sorted({s for q in questions for s in q.story} | {q.text for q in questions})
        words = split(tf.constant(lines, "string"))[0].flat_values
        words = tf.strings.lower(words, encoding="utf-8").numpy()
        answers = {answer_key(q.answer) for q in questions}
        self.listed = sorted({word.decode() for word in words} | answers)
        self.ids = {word: n for n, word in enumerate(self.listed, 1)}
        self.words = Words(self.listed)

    def encode(self, questions):
        """Encodes questions. Returns an `Encoded` and a dictionary of counts to tell the user."""
        lines = sorted({s for q in questions for s in q.story} | {q.text for q in questions})
        words = split(tf.constant(lines, "string"))[0]
        ids = tf.ragged.map_flat_values(self.words, words).to_list()
        found = dict(zip(lines, ids, strict=True))
        table = {(): 0}
        stories = [
            [table.setdefault(tuple(s), len(table)) for line in q.story for s in found[line]]
            for q in questions
        ]
        asked = [[word for sentence in found[q.text] for word in sentence] for q in questions]
        answers = [self.ids.get(answer_key(q.answer), -1) for q in questions]
        stories = padded([story[::-1] for story in stories])[:, ::-1]
        arrays = padded(list(table)), stories, padded(asked), np.array(answers, "int32")
        result = Encoded(*(np.ascontiguousarray(x) for x in arrays))
        unknown = [x == self.words.size - 1 for x in (result.sentences, result.questions)]
        return result, {
            "words that were not seen in training": int(
                unknown[0].sum(axis=1)[stories].sum() + unknown[1].sum()
            ),
            "answers outside the vocabulary": answers.count(-1),
            "empty stories": int((stories == 0).all(axis=1).sum()),
        }


def answer_key(answer):
    """The word of an answer in the vocabulary. A list such as "football,milk" is one word."""
    return answer.strip().lower()


def padded(rows):
    """Lists of ids as one array, padded with 0, with at least one column."""
    result = np.zeros((len(rows), max(1, *map(len, rows))), "int32")
    for row, ids in zip(result, rows, strict=True):
        row[: len(ids)] = ids
    return result
