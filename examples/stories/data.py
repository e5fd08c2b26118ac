"""The tasks, generated or from files, as ids."""

import math
import pathlib

import keras
import numpy as np

from examples.common.files import fingerprint
from examples.stories import encoding, generator, reading
from examples.stories.model import Task

GENERATED = {1: "one supporting fact", 2: "two supporting facts", 3: "three supporting facts"}
# The smallest number of training questions. A tenth of them is for validation.
FEWEST = 20


def load_data(arguments):
    """The chosen tasks: `{number: (name, training questions, test questions)}`."""
    if not arguments.data:
        found = {
            number: (
                name,
                *_halves(generator.make(2 * arguments.questions, number, arguments.seed)),
            )
            for number, name in GENERATED.items()
        }
        return {n: found[n] for n in wanted(arguments, found, "the generated stories")}
    folder = download() if arguments.data == "download" else arguments.data
    files = reading.find_files(folder, arguments.size)
    return {
        number: (
            files[number][0].name.split("_")[1].replace("-", " "),
            *(reading.read(path) for path in files[number]),
        )
        for number in wanted(arguments, files, folder)
    }


def wanted(arguments, found, place):
    if arguments.task in (["all"], ["joint"]):
        return list(found)
    numbers = list(dict.fromkeys(int(number) for number in arguments.task))
    if not found or set(numbers) - set(found):
        raise SystemExit(
            f"--task {' '.join(arguments.task)}: {place} has the tasks "
            f"{', '.join(map(str, found)) or 'none'}. Nothing was written."
        )
    return numbers


def _halves(questions):
    return questions[: len(questions) // 2], questions[len(questions) // 2 :]


def download():
    """Downloads the official archive. Returns its folder, which has a folder for each size."""
    path = keras.utils.get_file("babi_tasks_1-20_v1-2", reading.ARCHIVE, extract=True)
    return next(iter(pathlib.Path(path).rglob(reading.FOLDERS["1k"])), pathlib.Path(path)).parent


class Corpus:
    """Tasks as ids, for one model of each task or one model of all tasks.

    Args:
        found: what `load_data` returns.
        joint: whether one model learns all tasks.
        memory: the largest number of sentences that are remembered.
        noise: the number of empty sentences among them, as a fraction.
    """

    def __init__(self, found, joint, memory, noise):
        self.names = {str(number): name for number, (name, *_) in found.items()}
        self.questions = {str(number): test for number, (*_, test) in found.items()}
        self.groups = {"joint": list(self.names)} if joint else {n: [n] for n in self.names}
        self.tasks, self.encoders, self.fingerprints = {}, {}, {}
        for group, numbers in self.groups.items():
            train = {n: found[int(n)][1] for n in numbers}
            for n, questions in train.items():
                if len(questions) < FEWEST:
                    raise SystemExit(
                        f"task {n}: {len(questions)} questions to train on, fewer than {FEWEST}. "
                        "Nothing was written."
                    )
            encoder = encoding.Encoder([q for questions in train.values() for q in questions])
            parts = {n: encoder.encode(train[n]) for n in numbers}
            test = {n: encoder.encode(self.questions[n]) for n in numbers}
            # The memory is no larger than the longest story needs, so that few places stay empty.
            longest = max(part.stories.shape[1] for part, _ in parts.values())
            size = min(memory, longest + math.ceil(noise * longest))
            for n in numbers:
                self._tell(f"task {n}, {len(train[n]):,} training questions", *parts[n], size)
                self._tell(f"task {n}, {len(self.questions[n]):,} test questions", *test[n], size)
            parts, test = ({n: part for n, (part, _) in x.items()} for x in (parts, test))
            # The last tenth of every task is for validation: questions of one story are neighbours.
            cuts = {n: len(part.answers) * 9 // 10 for n, part in parts.items()}
            inside = [part.select(slice(0, cuts[n])) for n, part in parts.items()]
            outside = [part.select(slice(cuts[n], None)) for n, part in parts.items()]
            self.encoders[group] = encoder
            self.tasks[group] = Task(
                group,
                encoder.words.size,
                max(
                    x.shape[1] for part in parts.values() for x in (part.sentences, part.questions)
                ),
                size,
                encoding.join(inside),
                encoding.join(outside),
                test,
            )
            arrays = [x for part in (*parts.values(), *test.values()) for x in part]
            self.fingerprints[group] = fingerprint(*arrays)

    def _tell(self, of, encoded, counts, memory):
        lengths = (encoded.stories > 0).sum(axis=1)
        counts["sentences that fall out of the memory, the oldest of their stories"] = int(
            np.maximum(lengths - memory, 0).sum()
        )
        told = "; ".join(f"{what}: {count:,}" for what, count in counts.items() if count)
        if told:
            print(f"{of}; {told}")
