"""Trains the models of all tasks in several processes, and keeps the finished ones."""

import io
import multiprocessing
import time

import keras
import numpy as np
import tensorflow as tf

from examples.common import workers
from examples.common.files import fingerprint, make_folder, read_unchanged, write_bytes
from examples.common.interrupt import Interrupt
from examples.common.results import Results
from examples.stories.trainer import Trainer

HAS_GPU = bool(tf.config.list_physical_devices("GPU"))
if multiprocessing.parent_process() is None or keras.backend.backend() != "tensorflow":
    # The memory of the GPU is for the processes that train, and for JAX.
    tf.config.set_visible_devices([], "GPU")

# The last trainer of a process that trains: the next model may use its compiled program.
_kept = {}


def train(job):
    """Trains one model, in a process of its own. Returns its results and its weights."""
    task, hop_count, repeat, settings, data = job
    key = hop_count, data
    if key not in _kept:
        _kept.clear()
        keras.backend.clear_session()
        _kept[key] = Trainer(task, hop_count, settings)
    entry, weights = _kept[key].run(repeat)
    return {**entry, "data": data}, weights


class Models:
    """The finished models in a folder: the results and the weights of each.

    Args:
        folder: the folder for the results.
        settings: a dictionary of everything that the models depend on.
    """

    def __init__(self, folder, settings):
        self.folder = make_folder(folder / "weights")
        self.results = Results(folder / "results.json", settings)
        for entry in self.results.state["results"]:
            self.weights(entry)  # refuses damaged files before any work is done

    def entries(self, task, hop_count, data, repeats):
        names = {"task": task, "hops": hop_count, "data": data}
        found = (self.results.find(**names, repeat=repeat) for repeat in repeats)
        return [entry for entry in found if entry]

    def add(self, entry, weights):
        # The weights come first, so that every listed model has weights.
        file = io.BytesIO()
        np.savez(file, *weights)
        write_bytes(self.path(entry), file.getvalue())
        self.results.add({**entry, "digest": fingerprint(file.getvalue())})

    def weights(self, entry):
        data = read_unchanged(self.path(entry), entry["digest"], self.folder.parent)
        with np.load(io.BytesIO(data)) as arrays:
            return [arrays[name] for name in arrays.files]

    def path(self, entry):
        return self.folder / "{task}-hops-{hops}-{repeat}-{data:.8}.npz".format(**entry)


def best_of(entries):
    """The model with the lowest training error. Equal ones are compared by their loss."""
    return min(entries, key=lambda e: (e["diverged"], e["train_error"], e["train_loss"] or 0.0))


def train_all(corpus, models, settings, arguments):
    """Trains the models that are not finished yet."""
    repeats = range(1, arguments.repeats + 1)
    jobs = [
        (task, hop_count, repeat, settings, corpus.fingerprints[name])
        for hop_count in arguments.hops
        for name, task in corpus.tasks.items()
        for repeat in repeats
        if not models.entries(name, hop_count, corpus.fingerprints[name], [repeat])
    ]
    total = len(corpus.tasks) * len(arguments.hops) * arguments.repeats
    if len(jobs) < total:
        print(f"{total - len(jobs)} of {total} models are finished already")
    if not jobs:
        return
    processes = min(arguments.jobs, len(jobs))
    start = time.perf_counter()
    with Interrupt() as interrupt:
        print(f"models to train: {len(jobs)}; processes: {processes}", flush=True)
        for done, (entry, weights) in enumerate(workers.run(train, jobs, processes, interrupt), 1):
            models.add(entry, weights)
            left = (time.perf_counter() - start) / done * (len(jobs) - done)
            print(
                f"[{total - len(jobs) + done}/{total}] task {entry['task']}, "
                f"{entry['hops']} hops, repeat {entry['repeat']}: training error "
                f"{entry['train_error']:.1f}%, test error "
                f"{np.mean(list(entry['test_errors'].values())):.1f}%, "
                f"{entry['seconds']:.0f} s; {left / 60:.0f} min left",
                flush=True,
            )
        if interrupt.asked:
            raise SystemExit("stopped; finished models are kept. Run the same command to resume.")
    print(f"trained in {(time.perf_counter() - start) / 60:.1f} minutes")
