"""Questions about passages, generated or from SQuAD, as padded batches of ids."""

import collections
import functools
import pathlib

import keras
import numpy as np

from examples.common.text import Words, tokenize
from examples.common.training import COMPILED, Batches, bucketed
from examples.question_answering import passages, squad

FILES = ("train-v1.1.json", "dev-v1.1.json")
SOURCE = "https://rajpurkar.github.io/SQuAD-explorer/dataset/"
# The model looks at this many characters of a word.
WORD_LENGTH = 16
# Words outside the vocabulary share this many ids by their hash, so most of them stay distinct.
UNKNOWN_WORDS = 1000
# Lengths are padded to multiples of this number.
MULTIPLE = 64 if COMPILED else 8


def load_data(arguments):
    """Examples to train on and to test on. Prints how many questions cannot be used, and why."""
    if not arguments.data:
        return passages.make_sets((8_000, 1_000), seed=arguments.seed)
    if arguments.data == "download":
        paths = [keras.utils.get_file(name, SOURCE + name) for name in FILES]
    else:
        paths = [pathlib.Path(arguments.data) / name for name in FILES]
    sets = []
    for path, training in zip(paths, (True, False), strict=True):
        examples, left_out = squad.read(path, training)
        print(f"{path}: {len(examples):,} questions{describe(left_out)}")
        sets.append(examples)
    return sets


class Vocabulary:
    """The `size` most frequent words of some texts that occur twice, and all characters.

    Words are taken in lower case, characters as they are.
    """

    def __init__(self, texts, size):
        tokens = [token[0] for text in texts for token in tokenize(text)]
        words = collections.Counter(token.lower() for token in tokens).most_common(size)
        self.words = Words([word for word, count in words if count > 1], UNKNOWN_WORDS)
        letters = collections.Counter(letter for token in tokens for letter in token)
        self.letters = {letter: n for n, (letter, _) in enumerate(letters.most_common(), 1)}
        self.sizes = self.words.size, 2 + len(self.letters)
        self.row = functools.cache(self._row)

    def _row(self, token):
        """The ids of a word, and of its characters; the last id is of all unknown ones."""
        letters = [self.letters.get(x, self.sizes[1] - 1) for x in token[:WORD_LENGTH]]
        return [self.words(token), *letters, *[0] * (WORD_LENGTH - len(letters))]


class Texts:
    """Texts as ids: `rows` `(T, 1 + WORD_LENGTH)` for each, and where its tokens begin and end."""

    def __init__(self, texts, vocabulary):
        found = [tokenize(text) for text in texts]
        rows = [[vocabulary.row(token[0]) for token in tokens] for tokens in found]
        self.rows = [np.reshape(x, (-1, 1 + WORD_LENGTH)).astype("int32") for x in rows]
        self.starts = [np.array([token.start() for token in tokens], int) for tokens in found]
        self.ends = [np.array([token.end() for token in tokens], int) for tokens in found]
        self.lengths = np.array([len(tokens) for tokens in found])

    def padded(self, chosen):
        """Ids of words `(B, T)` and of characters `(B, T, WORD_LENGTH)` of some of the texts."""
        width = -(-max(1, self.lengths[chosen].max()) // MULTIPLE) * MULTIPLE
        ids = np.zeros((len(chosen), width, 1 + WORD_LENGTH), "int32")
        for row, n in zip(ids, chosen, strict=True):
            row[: self.lengths[n]] = self.rows[n]
        return [ids[:, :, 0], ids[:, :, 1:]]


class Questions:
    """Encoded questions about encoded passages.

    `kept` are the numbers of the questions that are not left out; with `limits`, the most tokens of
    a passage and of a question in training, others are, and `left_out` counts them. `spans` are
    `(Q, 2)`, the first and the last token of the answer.
    """

    def __init__(self, examples, vocabulary, limits=None):
        texts = {text: n for n, text in enumerate(dict.fromkeys(e.passage for e in examples))}
        self.examples = examples
        self.passage_of = np.array([texts[example.passage] for example in examples])
        self.passages = Texts(list(texts), vocabulary)
        self.questions = Texts([example.question for example in examples], vocabulary)
        passage_lengths, lengths = self.passages.lengths[self.passage_of], self.questions.lengths
        self.lengths = np.column_stack([lengths, passage_lengths])
        self.spans = np.array([self._find_span(*x) for x in enumerate(examples)], "int32")
        self.left_out, kept = collections.Counter(), np.ones(len(examples), bool)
        if limits is not None:
            for reason, useless in {
                f"passage of more than {limits[0]} tokens": passage_lengths > limits[0],
                f"question of more than {limits[1]} tokens": lengths > limits[1],
                "question without a word": lengths == 0,
                "answer without a word": self.spans[:, 1] < self.spans[:, 0],
            }.items():
                self.left_out[reason] = int((useless & kept).sum())
                kept &= ~useless
        self.kept = np.flatnonzero(kept)

    def _find_span(self, n, example):
        """The first and the last token that share a character with the answer."""
        ends, starts = (x[self.passage_of[n]] for x in (self.passages.ends, self.passages.starts))
        first = np.searchsorted(ends, example.start, side="right")
        last = np.searchsorted(starts, example.start + len(example.answers[0]), side="left") - 1
        return first, last

    def cut(self, n, first, last):
        """The text from one token to another, cut out of the original passage of question n."""
        starts, ends = (x[self.passage_of[n]] for x in (self.passages.starts, self.passages.ends))
        return self.examples[n].passage[starts[first] : ends[last]] if len(starts) else ""

    def inputs(self, rows):
        """The four inputs of the model for the questions with these numbers."""
        return [*self.passages.padded(self.passage_of[rows]), *self.questions.padded(rows)]

    def split(self, size):
        """Index arrays of questions of similar length, which hold every kept question once."""
        return [self.kept[rows] for rows in bucketed(self.lengths[self.kept], size)]

    def batches(self, size, seed, steps):
        """Shuffled `Batches` of one size for `fit`. Each pass leaves out a random remainder."""

        def split(order):
            rest = order.choice(len(self.kept), len(self.kept) % size, replace=False)
            chosen = np.delete(self.kept, rest)
            return [chosen[rows] for rows in bucketed(self.lengths[chosen], size, order)]

        return Batches(split, self._read, seed, steps, size)

    def _read(self, rows):
        start, end = self.spans[rows].T
        return tuple(self.inputs(rows)), {"start": start, "end": end}


def prepare(sets, arguments):
    """Encodes examples to train on and to test on: `Questions` for both, and a `Vocabulary`."""
    texts = dict.fromkeys(text for e in sets[0] for text in (e.passage, e.question))
    vocabulary = Vocabulary(texts, arguments.vocabulary)
    limits = arguments.max_passage, arguments.max_question
    data, test = Questions(sets[0], vocabulary, limits), Questions(sets[1], vocabulary)
    counts = f"{len(data.kept):,} questions to train on{describe(data.left_out)}"
    if not len(data.kept):
        raise SystemExit(f"{counts}. Nothing was written.")
    print(f"{counts}; {len(sets[1]):,} to test on", flush=True)
    return data, test, vocabulary


def describe(left_out):
    counts = ", ".join(f"{count:,} with {reason}" for reason, count in left_out.items() if count)
    return f"; left out: {counts}" if counts else ""
