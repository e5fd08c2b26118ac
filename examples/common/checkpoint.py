"""Checkpoints: a run that was killed resumes and ends with the same result."""

import io
import pathlib

import numpy as np

from examples.common.files import (
    fingerprint,
    make_folder,
    read_unchanged,
    refusal,
    remove,
    write_bytes,
)
from examples.common.results import read_state, write_state


class _Weights(io.BytesIO):
    """A file in memory. Keras accepts it as a weights file because of the end of its name.

    HDF5 ends the process without a message when a disk is full. Python raises an error.
    """

    def __str__(self):
        return "memory.weights.h5"


def weights_as_bytes(model):
    """The bytes of the file that `model.save_weights` writes, with the optimizer's state."""
    file = _Weights()
    model.save_weights(file)
    return file.getvalue()


class Checkpoint:
    """The weights after the last epoch or step, with the optimizer's state, and the best weights.

    `state.json` stores the digest of every weights file. A file with another digest is refused.

    Args:
        directory: a folder for this checkpoint alone.
        arguments: everything that the result depends on, as JSON can store it.
        unit: what is counted, "epoch" or "step".
    """

    def __init__(self, directory, arguments, unit="epoch"):
        self.directory = pathlib.Path(directory)
        self.unit = unit
        self.state = {"arguments": arguments, unit: 0, "history": [], "best": None, "digests": {}}
        self.state = read_state(self.directory / "state.json", self.state)

    def restore(self, model):
        """Loads the last saved state into a compiled model, if there is one. Returns its number."""
        count = self.state[self.unit]
        for name in self.state["digests"]:
            self._read(name)  # checks the best weights too, before any work is done
        make_folder(self.directory)
        if count:
            model.optimizer.build(model.trainable_variables)
            self._load(model, self._name(self.unit, count))
            print(f"Resuming after {self.unit} {count:,} of {self.directory}")
        return count

    def save(self, model, entry):
        """Saves the state after an epoch or a step.

        New files are written first and referred to in one step, so a kill does no harm.

        Args:
            model: a compiled model.
            entry: a dictionary with the number of the epoch or step, counted from one. Add
                "valid_loss" to keep the best weights.
        """
        count, loss = entry[self.unit], entry.get("valid_loss", 0.0)
        if not np.isfinite(loss):
            raise SystemExit(
                f"the training diverged: validation loss {loss} after {self.unit} {count}. "
                "Choose a lower --learning-rate and another --output."
            )
        best, history = self.state["best"], self.state["history"]
        losses = [past["valid_loss"] for past in history if "valid_loss" in past]
        new = [self._name(self.unit, count)]
        if "valid_loss" in entry and loss < min(losses, default=float("inf")):
            best = count
            new.append(self._name("best", best))
        data = weights_as_bytes(model)
        for name in new:
            write_bytes(self.directory / name, data)
        digests = dict.fromkeys(new, fingerprint(data))
        if best is not None:
            name = self._name("best", best)
            digests.setdefault(name, self.state["digests"].get(name))
        changes = {self.unit: count, "history": [*history, entry], "best": best}
        self.state = {**self.state, **changes, "digests": digests}
        write_state(self.directory / "state.json", self.state)
        for old in self.directory.glob("*.weights.h5"):
            if old.name not in digests:
                remove(old)

    def load_best(self, model):
        self._load(model, self._name("best", self.state["best"]))

    def _load(self, model, name):
        try:
            model.load_weights(_Weights(self._read(name)))
        except (OSError, ValueError) as error:
            problem = f"cannot be read ({error})"
            raise refusal(self.directory / name, problem, self.directory) from error

    def _read(self, name):
        digest = self.state["digests"].get(name)
        return read_unchanged(self.directory / name, digest, self.directory)

    def _name(self, kind, count):
        return f"{kind}-{count:03d}.weights.h5"
