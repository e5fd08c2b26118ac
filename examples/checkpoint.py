"""Checkpoints with which a killed training run goes on to the result it would have had."""

import contextlib
import hashlib
import json
import os
import pathlib
import signal

import numpy as np


def make_folder(path):
    """Makes the folder for the results, before any work is done."""
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise SystemExit(
            f"--output {path}: {error.strerror}. Choose a folder that can be written."
        ) from error
    return path


@contextlib.contextmanager
def whole_file(path):
    """The name under which to write, so that the file is there whole or not at all."""
    temporary = path.with_name(f"tmp-{path.name}")
    yield temporary
    temporary.replace(path)


def write_text(path, text):
    with whole_file(path) as temporary:
        temporary.write_text(text, encoding="utf-8")


def save_figure(path, figure):
    """Writes a figure of matplotlib as a PNG."""
    with whole_file(path) as temporary:
        figure.savefig(temporary, format="png")


def fingerprint(*data):
    """Of bytes or arrays: tells whether a checkpoint was trained on these very data."""
    digest = hashlib.sha256()
    for part in data:
        if not isinstance(part, bytes):
            digest.update(f"{part.dtype} {part.shape}".encode())
            part = np.ascontiguousarray(part).data
        digest.update(part)
    return digest.hexdigest()


def reseed(model, seed, step):
    """Sets the state of every random generator in a model, dropout above all, for a step.

    Keras leaves them out of a weights file, and a run that continues needs those it would have had.
    """
    weights = {id(variable) for variable in model.weights}
    generators = [variable for variable in model.variables if id(variable) not in weights]
    for index, state in enumerate(generators):
        state.assign(np.random.default_rng([seed, step, index]).integers(2**31, size=state.shape))


class Interrupt:
    """Notes Ctrl-C and SIGTERM in `asked`, so that a step can be finished and saved first.

    The second time stops at once.
    """

    def __enter__(self):
        self.asked = False
        self.old = {s: signal.signal(s, self._note) for s in (signal.SIGINT, signal.SIGTERM)}
        return self

    def _note(self, number, frame):
        if self.asked:
            raise KeyboardInterrupt
        self.asked = True
        # Not print, which may have been interrupted itself.
        os.write(1, b"\nstopping after this step ...\n")

    def __exit__(self, *_):
        for number, old in self.old.items():
            signal.signal(number, old)


class Results:
    """Finished parts of a long run, in a file that a kill at any moment leaves valid.

    Args:
        path: of a JSON file.
        arguments: all that the results depend on, as JSON can hold it.
    """

    def __init__(self, path, arguments):
        self.path = pathlib.Path(path)
        self.state = read_state(self.path, {"arguments": arguments, "results": []})

    def find(self, **names):
        """The result with these entries, or None."""
        for result in self.state["results"]:
            if all(result.get(name) == value for name, value in names.items()):
                return result
        return None

    def add(self, result):
        self.state["results"].append(result)
        self.save()

    def save(self):
        write_text(self.path, json.dumps(self.state, indent=1) + "\n")


def read_state(path, new):
    """The state in a JSON file, or `new` where there is none; refused if it is of another run."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return new
    except (OSError, ValueError) as error:
        raise damaged(path, error) from error
    of_us = isinstance(found, dict) and set(found) >= set(new)
    if not of_us or not isinstance(found["arguments"], dict):
        raise damaged(path, "it is not of this program")
    # As they look after they were written and read.
    old, arguments = found["arguments"], json.loads(json.dumps(new["arguments"]))
    changed = [
        f"{name}: {old.get(name)!r} then, {arguments.get(name)!r} now"
        for name in sorted({*old, *arguments})
        if old.get(name) != arguments.get(name)
    ]
    if changed:
        raise SystemExit(
            f"{path} is of a run with other settings ({'; '.join(changed)}). Choose another "
            f"--output, or delete {path.parent}. Nothing was written."
        )
    return found


def damaged(path, error):
    return SystemExit(
        f"{path} cannot be read ({error}). Delete it to begin anew, or choose another --output. "
        "Nothing was written."
    )


class Checkpoint:
    """The weights after the last epoch or step, the optimizer's among them, and the best ones.

    Args:
        directory: a folder of its own.
        arguments: all that the result depends on, as JSON can hold it.
        unit: what is counted, "epoch" or "step".
    """

    def __init__(self, directory, arguments, unit="epoch"):
        self.directory = pathlib.Path(directory)
        self.unit = unit
        self.state = {"arguments": arguments, unit: 0, "history": [], "best": None}
        self.state = read_state(self.directory / "state.json", self.state)

    def restore(self, model):
        """Puts the last saved state, if there is one, into a compiled model; returns its number."""
        count = self.state[self.unit]
        if count:
            model.optimizer.build(model.trainable_variables)
            try:
                model.load_weights(self._path(self.unit, count))
            except (OSError, ValueError) as error:
                raise damaged(self.directory, error) from error
            print(f"Resuming after {self.unit} {count:,} of {self.directory}")
        return count

    def save(self, model, entry):
        """Writes new files first and refers to them in one step, so that a kill harms nothing.

        Args:
            entry: a dictionary with the number of the unit, counted from one, and if the best
                weights are to be kept "valid_loss".
        """
        count, loss = entry[self.unit], entry.get("valid_loss", 0.0)
        if not np.isfinite(loss):
            raise SystemExit(
                f"the training diverged: validation loss {loss} after {self.unit} {count}. "
                "Choose a lower --learning-rate and another --output."
            )
        self.directory.mkdir(parents=True, exist_ok=True)
        losses = [past["valid_loss"] for past in self.state["history"] if "valid_loss" in past]
        self.state[self.unit] = count
        self.state["history"].append(entry)
        model.save_weights(self._path(self.unit, count))
        if "valid_loss" in entry and loss < min(losses, default=float("inf")):
            self.state["best"] = count
            model.save_weights(self._path("best", count))
        write_text(self.directory / "state.json", json.dumps(self.state, indent=1))
        keep = {self._path(self.unit, count)}
        if self.state["best"] is not None:
            keep.add(self._path("best", self.state["best"]))
        for old in set(self.directory.glob("*.weights.h5")) - keep:
            old.unlink()

    def load_best(self, model):
        model.load_weights(self._path("best", self.state["best"]))

    def _path(self, kind, count):
        return self.directory / f"{kind}-{count:03d}.weights.h5"
