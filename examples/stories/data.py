"""The tasks, generated or from files, as ids, with random noise between sentences."""

import math
import pathlib
import re
from typing import NamedTuple

import keras
import numpy as np
import tensorflow as tf

from examples.common.files import fingerprint, refuse
from examples.common.training import UNTUNED, pad
from examples.stories import generator, reading

GENERATED = {1: "one supporting fact", 2: "two supporting facts", 3: "three supporting facts"}
QUESTIONS = 1000  # of a generated task, to train on and to test on
FEWEST = 20  # training questions; a tenth of them is for validation


def load_data(options):
    """The chosen tasks: `{number: (name, training questions, test questions)}`."""
    if options.data:
        place = download() if options.data == "download" else options.data
        tasks = reading.find_files(place, options.size)
    else:
        place, tasks = "the generated stories", GENERATED
    numbers = tasks if options.task in (["all"], ["joint"]) else dict.fromkeys(options.task)
    found = {}
    for number in map(int, numbers):
        if number not in tasks:
            there = ", ".join(map(str, tasks))
            refuse(f"--task {' '.join(options.task)}", f"{place} has the tasks {there}")
        if options.data:
            name = tasks[number]["train"].name.split("_")[1].replace("-", " ")
            found[number] = name, *(reading.read(tasks[number][x]) for x in ("train", "test"))
        else:
            made = generator.make(2 * QUESTIONS, number, options.seed)
            found[number] = tasks[number], made[:QUESTIONS], made[QUESTIONS:]
        if len(found[number][1]) < FEWEST:
            few = f"{len(found[number][1])} questions to train on, fewer than {FEWEST}"
            refuse(f"task {number}", few)
    return found


def download():
    """Downloads the official archive. Returns its folder, which has a folder for each size."""
    path = keras.utils.get_file("babi_tasks_1-20_v1-2", reading.ARCHIVE, extract=True)
    return next(iter(pathlib.Path(path).rglob(reading.FOLDERS["1k"])), pathlib.Path(path)).parent


def split(sentence):
    """The words of a sentence, without signs."""
    return re.findall(r"\w+", sentence.lower())


class Encoded(NamedTuple):
    """Questions as ids.

    sentences: `(U, W)` word ids of each distinct sentence; the first sentence is empty.
    stories: `(Q, N)` numbers of sentences, padded with 0 at the front.
    questions: `(Q, W')` word ids. answers: `(Q,)` word ids, -1 for an unknown answer.
    """

    sentences: np.ndarray
    stories: np.ndarray
    questions: np.ndarray
    answers: np.ndarray

    def select(self, index):
        return Encoded(self.sentences, *(x[index] for x in self[1:]))

    def inputs(self, memory, noise=0.0, rng=None):
        """Word ids of the last `memory` sentences `(Q, N, W)`, and of the questions `(Q, W')`."""
        stories = noisy(self.stories, noise, rng) if noise else self.stories
        return self.sentences[stories[:, -memory:]], self.questions


def noisy(stories, noise, rng):
    """Inserts up to `noise` n empty sentences, 0, at random places of stories `(Q, N)` of n."""
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
    """Turns stories into ids. The vocabulary comes from the training questions and answers."""

    def __init__(self, questions):
        lines = {line for q in questions for line in (*q.story, q.text)}
        words = {word for line in lines for word in split(line)}
        self.listed = sorted(words | {answer_key(q.answer) for q in questions})
        self.ids = {word: n for n, word in enumerate(self.listed, 1)}
        self.size = len(self.ids) + 2  # with padding and the unknown word

    def words(self, sentence):
        return tuple(self.ids.get(word, self.size - 1) for word in split(sentence))

    def encode(self, questions):
        found = {line: self.words(line) for q in questions for line in (*q.story, q.text)}
        table = {(): 0}
        stories = [
            [table.setdefault(found[line], len(table)) for line in q.story if found[line]]
            for q in questions
        ]
        answers = [self.ids.get(answer_key(q.answer), -1) for q in questions]
        stories = pad([story[::-1] for story in stories], multiple=1)[:, ::-1]
        sentences = pad(list(table), multiple=1)
        asked = pad([found[q.text] for q in questions], multiple=1)
        arrays = sentences, stories, asked, np.array(answers, "int32")
        return Encoded(*map(np.ascontiguousarray, arrays))


def answer_key(answer):
    """The word of an answer in the vocabulary. A list such as "football,milk" is one word."""
    return answer.strip().lower()


class Task:
    """The data of one model, of one task or of several: what `load_data` returns for them.

    `sizes` are the number of word ids, the words of the longest sentence, and the sentences that
    are remembered. `train` and `valid` are `Encoded`; `test` and `asked` have an entry for each
    task.
    """

    def __init__(self, name, found, memory, noise):
        self.name, self.names = name, {str(n): title for n, (title, *_) in found.items()}
        self.asked = {str(n): test for n, (_, _, test) in found.items()}
        train = [questions for _, questions, _ in found.values()]
        self.encoder = encoder = Encoder([q for questions in train for q in questions])
        every = encoder.encode([q for questions in train for q in questions])
        self.test = {n: encoder.encode(test) for n, test in self.asked.items()}
        # The memory is no larger than the longest story needs, so that few places stay empty.
        longest = every.stories.shape[1]
        size = min(memory, longest + math.ceil(noise * longest))
        longest = max(x.shape[1] for x in (every.sentences, every.questions))
        self.sizes = encoder.size, longest, size
        # The last tenth of every task is for validation: questions of one story are neighbours.
        ends = np.cumsum([len(questions) for questions in train])
        parts = [np.arange(n - len(x), n) for n, x in zip(ends, train, strict=True)]
        cuts = [np.split(part, [len(part) * 9 // 10]) for part in parts]
        self.train, self.valid = (every.select(np.concatenate(x)) for x in zip(*cuts, strict=True))
        self.digest = fingerprint(*(x for data in (every, *self.test.values()) for x in data))[:8]

    def batches(self, batch, noise, seeds):
        """Endless batches for `fit`, with a new order and new noise in every epoch.

        An epoch is made at once: single batches take longer to make than to train on.
        """
        steps = len(self.train.answers) // batch

        def epochs():
            epoch = 0
            while True:
                rng = np.random.default_rng([*seeds, epoch])
                order = rng.permutation(len(self.train.answers))[: steps * batch]
                chosen = self.train.select(order)
                arrays = *chosen.inputs(self.sizes[2], noise, rng), chosen.answers
                yield tuple(x.reshape(steps, batch, *x.shape[1:]) for x in arrays)
                epoch += 1

        signature = tuple(tf.TensorSpec(x.shape, "int32") for x in next(epochs()))
        dataset = tf.data.Dataset.from_generator(epochs, output_signature=signature).unbatch()
        dataset = dataset.map(lambda story, question, answer: ((story, question), answer))
        return dataset.prefetch(8).with_options(UNTUNED)
