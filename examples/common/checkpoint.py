"""Checkpoints with which a killed training run goes on to the result it would have had."""

import contextlib
import hashlib
import io
import json
import os
import pathlib
import shutil
import signal
import tempfile

import keras
import numpy as np


def make_folder(path):
    """Makes a folder for results and checks that it can be written, before any work is done."""
    try:
        path.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=path) as file:
            file.write(bytes(4096))
    except OSError as error:
        raise SystemExit(
            f"--output {path}: {error.strerror}. Choose a folder that can be written."
        ) from error
    return path


@contextlib.contextmanager
def whole_file(path):
    """The name under which to write a file or a folder, so that it is there whole or not at all.

    Raises:
        SystemExit: it cannot be written. What was there before is unchanged.
    """
    temporary, old = (path.with_name(f"{part}-{path.name}") for part in ("tmp", "old"))
    try:
        _remove(temporary)
        yield temporary
        if temporary.is_dir() and path.is_dir():
            # No single step replaces a folder that is not empty.
            _remove(old)
            path.rename(old)
        temporary.replace(path)
        _remove(old)
    except OSError as error:
        raise SystemExit(
            f"{path} cannot be written: {error.strerror or error}. Earlier results are unchanged. "
            "Free space on the disk or choose another --output, then start the same command again."
        ) from error
    finally:
        _remove(temporary)


def _remove(path):
    with contextlib.suppress(OSError):
        path.unlink()
    shutil.rmtree(path, ignore_errors=True)


def write_bytes(path, data):
    with whole_file(path) as temporary:
        temporary.write_bytes(data)


def write_text(path, text):
    write_bytes(path, text.encode())


def save_figure(path, figure):
    """Writes a figure of matplotlib as a PNG."""
    with whole_file(path) as temporary:
        figure.savefig(temporary, format="png")


def read_unchanged(path, digest, folder):
    """The bytes of a file, refused if they are not those of which `fingerprint` gave `digest`.

    Args:
        folder: what the message says to delete.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise refusal(path, f"cannot be read ({error.strerror})", folder) from error
    if fingerprint(data) != digest:
        raise refusal(path, "was changed after it was written: its digest differs", folder)
    return data


def refusal(path, problem, folder):
    return SystemExit(
        f"{path} {problem}. Delete {folder} to start again, or choose another --output. Nothing "
        "was written."
    )


class _Weights(io.BytesIO):
    """A file in memory that Keras accepts as a weights file because of how its name ends.

    When a disk is full, HDF5 ends the process without a message. Python does not.
    """

    def __str__(self):
        return "memory.weights.h5"


def weights_as_bytes(model):
    """What `model.save_weights` writes, the state of the optimizer included."""
    file = _Weights()
    model.save_weights(file)
    return file.getvalue()


def fingerprint(*data):
    """Of bytes or arrays: tells whether a checkpoint was trained on these very data."""
    digest = hashlib.sha256()
    for part in data:
        if not isinstance(part, bytes):
            digest.update(f"{part.dtype} {part.shape}".encode())
            part = np.ascontiguousarray(part).data
        digest.update(part)
    return digest.hexdigest()


def seed_model(seed):
    """Makes the next model independent of the models before it: call this before building each one.

    On TensorFlow this deletes the resources of existing tokenizers of SentencePiece. Make new
    tokenizers after it.
    """
    keras.utils.clear_session()
    keras.utils.set_random_seed(seed)


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
        write_state(self.path, self.state)


def write_state(path, state):
    """Writes a dictionary as JSON, with the digest of its other entries as the first one."""
    digest = fingerprint(json.dumps(state).encode())
    write_text(path, json.dumps({"digest": digest, **state}, indent=1) + "\n")


def read_state(path, new):
    """The state in a JSON file, or `new` if there is none; refused if it is of another run."""
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return new
    except (OSError, ValueError) as error:
        raise refusal(path, f"cannot be read ({error})", path.parent) from error
    complete = isinstance(found, dict) and set(found) >= {"digest", *new}
    if not complete or not isinstance(found["arguments"], dict):
        raise refusal(path, "cannot be read (it is not of this program)", path.parent)
    if found.pop("digest") != fingerprint(json.dumps(found).encode()):
        raise refusal(path, "was changed after it was written: its digest differs", path.parent)
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


class Checkpoint:
    """The weights after the last epoch or step, the optimizer's among them, and the best ones.

    `state.json` holds the digest of every weights file; a file that differs is refused.

    Args:
        directory: a folder of its own.
        arguments: all that the result depends on, as JSON can hold it.
        unit: what is counted, "epoch" or "step".
    """

    def __init__(self, directory, arguments, unit="epoch"):
        self.directory = pathlib.Path(directory)
        self.unit = unit
        self.state = {"arguments": arguments, unit: 0, "history": [], "best": None, "digests": {}}
        self.state = read_state(self.directory / "state.json", self.state)

    def restore(self, model):
        """Puts the last saved state, if there is one, into a compiled model; returns its number."""
        count = self.state[self.unit]
        for name in self.state["digests"]:
            self._read(name)  # the best weights too, before any work is done
        make_folder(self.directory)
        if count:
            model.optimizer.build(model.trainable_variables)
            self._load(model, self._name(self.unit, count))
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
                _remove(old)

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
