"""Checkpoints with which a killed training run goes on to the result it would have had."""

import json
import pathlib

import numpy as np


def write_text(path, text):
    """Writes a whole file or none."""
    temporary = path.with_name(path.name + ".tmp")
    temporary.write_text(text, encoding="utf-8")
    temporary.replace(path)


def reseed(model, seed, epoch):
    """Sets the state of every random generator in a model, dropout above all, for one epoch.

    Keras leaves them out of a weights file, and a run that continues needs those it would have had.
    """
    weights = {id(variable) for variable in model.weights}
    generators = [variable for variable in model.variables if id(variable) not in weights]
    for index, state in enumerate(generators):
        state.assign(np.random.default_rng([seed, epoch, index]).integers(2**31, size=state.shape))


class Checkpoint:
    """The weights after the last finished epoch, the optimizer's among them, and the best ones.

    Args:
        directory: a folder of its own.
        arguments: all that the result depends on, as JSON can hold it.
    """

    def __init__(self, directory, arguments):
        self.directory = pathlib.Path(directory)
        self.state = {"arguments": arguments, "epoch": 0, "history": [], "best": None}
        try:
            found = json.loads((self.directory / "state.json").read_text(encoding="utf-8"))
        except FileNotFoundError:
            return
        old = found["arguments"]
        changed = [
            f"{name}: {old.get(name)!r} then, {arguments.get(name)!r} now"
            for name in sorted({*old, *arguments})
            if old.get(name) != arguments.get(name)
        ]
        if changed:
            raise SystemExit(
                f"{self.directory} holds a run with other settings ({'; '.join(changed)}). Choose "
                "another --output, or delete that folder. Nothing was written."
            )
        self.state = found

    def restore(self, model):
        """Puts the last finished epoch, if there is one, into a compiled model."""
        if self.state["epoch"]:
            model.optimizer.build(model.trainable_variables)
            model.load_weights(self._path("epoch", self.state["epoch"]))
            print(f"Resuming after epoch {self.state['epoch']} of {self.directory}")

    def save(self, model, entry):
        """Writes new files first and refers to them in one step, so that a kill harms nothing.

        Args:
            entry: a dictionary with "epoch", counted from one, and "valid_loss".
        """
        if not np.isfinite(entry["valid_loss"]):
            raise SystemExit(
                f"the training diverged: validation loss {entry['valid_loss']} after epoch "
                f"{entry['epoch']}. Choose a lower --learning-rate and another --output."
            )
        self.directory.mkdir(parents=True, exist_ok=True)
        epoch = entry["epoch"]
        losses = [past["valid_loss"] for past in self.state["history"]]
        self.state["epoch"] = epoch
        self.state["history"].append(entry)
        model.save_weights(self._path("epoch", epoch))
        if entry["valid_loss"] < min(losses, default=float("inf")):
            self.state["best"] = epoch
            model.save_weights(self._path("best", epoch))
        write_text(self.directory / "state.json", json.dumps(self.state, indent=1))
        keep = {self._path("epoch", epoch), self._path("best", self.state["best"])}
        for old in set(self.directory.glob("*.weights.h5")) - keep:
            old.unlink()

    def load_best(self, model):
        model.load_weights(self._path("best", self.state["best"]))

    def _path(self, kind, epoch):
        return self.directory / f"{kind}-{epoch:03d}.weights.h5"
