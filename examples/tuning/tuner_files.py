"""The files of keras-tuner: copies against damage, digests against changes.

keras-tuner overwrites the files that hold its state, so a kill can leave half of a file.
"""

import contextlib
import json

import tensorflow as tf

from examples.common.files import (
    fingerprint,
    read_unchanged,
    refusal,
    remove,
    write_bytes,
    write_text,
)

# The files that keras-tuner overwrites at every step.
STATES = ("oracle.json", "tuner0.json")


def keep_copies(folder):
    """Copies the state of a search, if it is not damaged."""
    for path in (folder / name for name in STATES):
        if can_be_read(path):
            write_bytes(path.with_suffix(".kept"), path.read_bytes())


def restore_copies(folder):
    """Replaces damaged files by their copies."""
    for path in (folder / name for name in STATES):
        copy = path.with_suffix(".kept")
        if path.exists() and not can_be_read(path) and copy.exists():
            print(f"{path} is damaged, as a kill may leave it. Its copy is used instead.")
            write_bytes(path, copy.read_bytes())


def forget_begun(folder):
    """Deletes trials that the state of the search does not name.

    keras-tuner writes the file of a new trial first, and then the state. A kill in between leaves a
    trial that would never end.
    """
    state = folder / "oracle.json"
    if not can_be_read(state):
        return
    known = json.loads(state.read_text(encoding="utf-8"))["start_order"]
    for trial in folder.glob("trial_*"):
        if trial.name.removeprefix("trial_") not in known:
            print(f"{trial} had only just begun; it begins again.")
            remove(trial)


def can_be_read(path):
    try:
        json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return False
    return True


def note_digests(trial):
    """Writes the digests of the files of a finished trial beside them."""
    files = [path for path in trial.iterdir() if path.name != "digests.json"]
    digests = {path.name: fingerprint(path.read_bytes()) for path in files}
    write_text(trial / "digests.json", json.dumps(digests))


def check_digests(folder):
    """Refuses a folder in which a file of a finished trial was changed."""
    for path in folder.glob("trial_*/digests.json"):
        try:
            digests = dict(json.loads(path.read_bytes()))
        except (OSError, ValueError, TypeError) as error:
            raise refusal(path, f"cannot be read ({error})", folder) from error
        for name, digest in digests.items():
            read_unchanged(path.with_name(name), digest, folder)


def read_trials(folder):
    """Reads what keras-tuner has written about all trials, as dictionaries."""
    found = []
    for path in sorted(folder.glob("trial_*/trial.json")):
        try:
            found.append(json.loads(path.read_text(encoding="utf-8")))
        except ValueError:  # keras-tuner is writing it
            continue
    return found


@contextlib.contextmanager
def naming_files(options, name):
    """Ends a search that cannot write a file with a message that names the file."""
    try:
        yield
    except (OSError, tf.errors.OpError) as error:
        raise SystemExit(kept(options, name, f"a file cannot be written: {error}")) from error


def kept(options, name, what):
    """The message at the end of a search that did not finish."""
    done = sum(x["status"] == "COMPLETED" for x in read_trials(options.output / name))
    what = what if what.endswith(".") else what + "."
    return (
        f"{name}: {what} The search has ended; {done} finished trials are kept in "
        f"{options.output / name}. Run the same command to resume."
    )
