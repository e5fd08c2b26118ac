"""Searches the attention of a date translator with keras-tuner.

    python examples/tune.py

reads "the third of May, 1998" letter by letter and writes "1998-05-03" with an `AttentionRNN`.
Mechanism, score, alignment, window, units, dropout and normalizer of its attention, the width of
the decoder and the learning rate are searched by Hyperband and by Bayesian optimisation; then the
best and the default configuration are trained for as many epochs each, and tried on unseen dates.
In five to seven minutes on two cores the best one is far ahead. A search that was killed goes on
when the same command is given again. A trial that fails stops the script with its cause.

    python examples/tune.py --distributed 2

runs every search with a chief and two workers, as processes of this machine. If one of them dies,
or `--timeout` seconds have passed, the search ends with a message, and all finished trials are
kept.

Needs keras-tuner: pip install "keras-attention-layers[tuner]".
"""

import argparse
import contextlib
import json
import os
import pathlib
import signal
import socket
import subprocess
import sys
import threading
import time
import warnings

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import dates
import keras
import numpy as np
import tensorflow as tf
from arguments import check_at_least_one, check_seed, fill
from checkpoint import (
    Results,
    fingerprint,
    make_folder,
    read_unchanged,
    refusal,
    seed_model,
    weights_as_bytes,
    write_bytes,
    write_text,
)
from extras import check_extras
from keras import layers, ops

from keras_attention import AttentionRNN

SEARCHES = ("hyperband", "bayesian")
SIGNS = "\t" + "0123456789-" + "abcdefghijklmnopqrstuvwxyz ,./"  # the first begins a target
SOURCE_LENGTH, TARGET_LENGTH = 40, 10


# --- data and model ------------------------------------------------------------------------------


def load_data(sizes, seed):
    """For each size `((source, shifted target), target)`, ids with 0 for padding."""
    found = []
    for sources, targets in dates.make_pairs(sizes, seed):
        source = encode([text.lower() for text in sources], SOURCE_LENGTH)
        target = encode(targets, TARGET_LENGTH)
        shifted = np.pad(target[:, :-1], ((0, 0), (1, 0)), constant_values=1)
        found.append(((source, shifted), target))
    return found


def encode(texts, length):
    ids = np.zeros((len(texts), length), "int32")
    for row, text in zip(ids, texts, strict=True):
        row[: len(text)] = [SIGNS.index(sign) + 1 for sign in text]
    return ids


class Model(keras.Model):
    """Writes its weights whole or not at all; keras-tuner does it after every better epoch."""

    def save_weights(self, filepath, overwrite=True):
        write_bytes(pathlib.Path(filepath), weights_as_bytes(super()))


def build(hp, attention):
    """The compiled model with an attention layer that the search has chosen."""
    units = hp.Choice("units", [32, 64, 128])
    source = keras.Input((SOURCE_LENGTH,), dtype="int32")
    shifted = keras.Input((TARGET_LENGTH,), dtype="int32")
    x = layers.Embedding(len(SIGNS) + 1, 32, mask_zero=True)(source)
    encoded = layers.Bidirectional(layers.GRU(units // 2, return_sequences=True))(x)
    words = layers.Embedding(len(SIGNS) + 1, 32)(shifted)
    hidden = AttentionRNN(layers.GRUCell(units), attention)(words, encoded)
    model = Model([source, shifted], layers.Dense(len(SIGNS) + 1)(hidden))
    model.compile(
        keras.optimizers.Adam(hp.Float("learning_rate", 1e-3, 1e-2, sampling="log")),
        keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        metrics=["accuracy", right_dates],
        jit_compile=False,
    )
    return model


@keras.saving.register_keras_serializable(package="keras_attention_examples")
def right_dates(target, logits):
    """Share of the dates whose letters are all right, each after the right ones before it."""
    right = ops.equal(ops.cast(target, "int32"), ops.cast(ops.argmax(logits, -1), "int32"))
    return ops.cast(ops.all(right, -1), "float32")


# --- search --------------------------------------------------------------------------------------


def make_hypermodel():
    from keras_attention.tuning import AttentionHyperModel

    return AttentionHyperModel(build, units=(32, 128), most_dropout=0.3)


def make_tuner(name, options):
    """One of `SEARCHES`, which goes on where the trials in its folder end."""
    import keras_tuner

    from keras_attention.tuning import failure_cause

    class Reporting:
        """Says what every trial has found, or why it failed."""

        def on_trial_begin(self, trial):
            super().on_trial_begin(trial)
            # Each begins alike, also after a kill.
            keras.utils.set_random_seed(options.seed)
            keep_copies(options.output / name)
            self._begin = time.time()

        def on_trial_end(self, trial):
            # The chief of a distributed search is not told, and its error does not say.
            if trial.message:
                raise Failed(trial.trial_id, failure_cause(trial), trial.message)
            try:
                super().on_trial_end(trial)
            except Exception:
                if self.oracle.get_trial(trial.trial_id).status != "FAILED":
                    raise
                trial.status = "FAILED"
                raise Failed(trial.trial_id, failure_cause(trial), "") from None
            keep_copies(options.output / name)
            note_digests(pathlib.Path(self.get_trial_dir(trial.trial_id)))
            # A worker only knows its own.
            trials = getattr(self.oracle, "trials", {trial.trial_id: trial})
            done = [x for x in trials.values() if x.status == "COMPLETED"]
            score = f"{trial.score:.3f}" if trial.score is not None else trial.status
            best = max((x.score for x in done if x.score is not None), default=float("nan"))
            print(
                f"{name}: trial {trial.trial_id}: {score} in {time.time() - self._begin:.0f} s; "
                f"best of {len(done)}: {best:.3f}",
                flush=True,
            )

    common = {
        "hypermodel": make_hypermodel(),
        "objective": keras_tuner.Objective("val_accuracy", "max"),
        "directory": str(options.output),
        "project_name": name,
        "seed": options.seed,
        # Nothing is hidden: the first failure is the last.
        "max_consecutive_failed_trials": 1,
    }
    if name == "hyperband":
        kind = type("Hyperband", (Reporting, keras_tuner.Hyperband), {})
        return kind(max_epochs=options.epochs, factor=3, **common)
    kind = type("Bayesian", (Reporting, keras_tuner.BayesianOptimization), {})
    return kind(max_trials=options.trials, num_initial_points=3, **common)


def open_tuner(name, options):
    """As `make_tuner`; goes back to copies where a kill has left half of a file of keras-tuner.

    Raises:
        SystemExit: there are none, or a file of a finished trial was changed; says what to do.
    """
    folder = options.output / name
    check_digests(folder)
    for path in (folder / name for name in STATES):
        copy = path.with_suffix(".kept")
        if path.exists() and not can_be_read(path) and copy.exists():
            print(f"{path} is damaged, as a kill may leave it; its copy is taken instead.")
            write_bytes(path, copy.read_bytes())
    try:
        return make_tuner(name, options)
    except json.JSONDecodeError as error:
        raise SystemExit(
            f"{options.output / name} is damaged, as a kill may leave it ({error}): delete it, "
            "and the search begins anew."
        ) from None


# What keras-tuner writes anew at every step, not whole or not at all.
STATES = ("oracle.json", "tuner0.json")


def keep_copies(folder):
    for path in (folder / name for name in STATES):
        if can_be_read(path):
            write_bytes(path.with_suffix(".kept"), path.read_bytes())


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
    for path in folder.glob("trial_*/digests.json"):
        try:
            digests = dict(json.loads(path.read_bytes()))
        except (OSError, ValueError, TypeError) as error:
            raise refusal(path, f"cannot be read ({error})", folder) from error
        for name, digest in digests.items():
            read_unchanged(path.with_name(name), digest, folder)


@contextlib.contextmanager
def naming_files(options, name):
    """Ends a search that cannot write a file with a message that names the file."""
    try:
        yield
    except (OSError, tf.errors.OpError) as error:
        raise SystemExit(kept(options, name, f"a file cannot be written: {error}")) from error


class Failed(Exception):
    """A trial failed: its number, why, and the traceback."""


def search(name, options, data):
    """Runs a search here; in a process of a distributed one, the part of this process.

    Returns:
        The tuner.
    """
    keras.utils.set_random_seed(options.seed)
    # Hyperband goes on with the weights of an earlier trial, but not with its optimizer.
    warnings.filterwarnings("ignore", "Skipping variable loading for optimizer")
    tuner = open_tuner(name, options)
    try:
        with naming_files(options, name):
            tuner.search(
                *data[0],
                validation_data=data[1],
                epochs=options.epochs,
                batch_size=32,
                verbose=0,
            )
    except Failed as error:
        number, why, details = error.args
        raise SystemExit(
            kept(options, name, f"trial {number} failed: {why}") + f"\n{details}".rstrip()
        ) from None
    return tuner


def search_distributed(name, options, argv):
    """Runs a search with a chief and workers; ends all of them when one dies.

    Raises:
        SystemExit: a process died or the time is over; says what is kept.
    """
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    logs = options.output / "logs"
    processes = {}
    began = time.time()

    def start(role):
        environment = {
            **os.environ,
            "KERASTUNER_TUNER_ID": role,
            "KERASTUNER_ORACLE_IP": "127.0.0.1",
            "KERASTUNER_ORACLE_PORT": str(port),
        }
        command = [sys.executable, os.path.abspath(__file__), *argv, "--part", name]
        with naming_files(options, name), open(logs / f"{name}-{role}.log", "ab") as log:
            processes[role] = subprocess.Popen(
                command,
                env=environment,
                stdin=subprocess.PIPE,
                stdout=log,
                stderr=subprocess.STDOUT,
            )

    def finished():
        return sum(x["status"] == "COMPLETED" for x in read_trials(options.output / name))

    try:
        start("chief")
        for number in range(options.distributed):
            start(f"worker-{number + 1}")
        print(f"{name}: processes " + ", ".join(f"{x} {p.pid}" for x, p in processes.items()))
        known, ended_since = -1, None
        while any(process.poll() is None for process in processes.values()):
            time.sleep(0.5)
            if finished() != known:
                known = finished()
                print(f"{name}: {known} trials finished, {time.time() - began:.0f} s", flush=True)
            dead = {x: p.returncode for x, p in processes.items() if p.poll() not in (None, 0)}
            if dead:
                what = ", ".join(f"{x} {how_it_ended(code)}" for x, code in dead.items())
                raise SystemExit(kept(options, name, what) + last_words(logs, name, dead))
            if time.time() - began > options.timeout:
                what = f"not done within --timeout {options.timeout} seconds"
                raise SystemExit(kept(options, name, what))
            workers = [p for x, p in processes.items() if x != "chief"]
            if all(process.poll() == 0 for process in workers):
                # The chief looks up every 20 seconds only.
                ended_since = ended_since or time.time()
                if time.time() - ended_since > 2:
                    stop(processes["chief"])
                    return
    except KeyboardInterrupt:
        raise SystemExit(kept(options, name, "interrupted")) from None
    finally:
        # The chief last: it writes down what workers report.
        for role in sorted(processes, key=lambda x: x == "chief"):
            stop(processes[role])


def follow_parent():
    """Leaves it to the parent when this process ends, which is when the parent does at the latest.

    Its end of the pipe to the standard input is closed even where it was killed.
    """

    def watch():
        os.read(0, 1)
        os._exit(1)

    # Ctrl-C is sent to all processes; the first one decides.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=watch, daemon=True).start()


def stop(process):
    if process.poll() is not None:
        return
    process.terminate()
    try:
        process.wait(10)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def how_it_ended(code):
    if code < 0:
        return f"was killed by {signal.Signals(-code).name}"
    return f"ended with status {code}"


def last_words(logs, name, dead):
    """What processes that died by themselves wrote last, from their last message on."""
    texts = []
    for role, code in dead.items():
        if code > 0:
            log = (logs / f"{name}-{role}.log").read_text(errors="replace").strip()
            message = max(log.rfind(f"\n{name}: "), len(log) - 8000, 0)
            texts.append(f"\n{role}: {log[message:].strip()}")
    return "".join(texts)


def kept(options, name, what):
    done = sum(x["status"] == "COMPLETED" for x in read_trials(options.output / name))
    what = what if what.endswith(".") else what + "."
    return (
        f"{name}: {what} The search has ended; {done} finished trials are kept in "
        f"{options.output / name}, and the same command goes on with them."
    )


def read_trials(folder):
    """What keras-tuner has written about all trials, as dictionaries."""
    found = []
    for path in sorted(folder.glob("trial_*/trial.json")):
        try:
            found.append(json.loads(path.read_text(encoding="utf-8")))
        except ValueError:  # just being written
            continue
    return found


# --- comparison ----------------------------------------------------------------------------------


def print_trials(name, trials):
    print(f"\n{name}, {len(trials)} trials, all completed:")
    print(f"{'trial':>6} {'letters right':>13} {'epochs':>7}  configuration")
    for trial in trials:
        values = trial.hyperparameters.values
        epochs = values.get("tuner/epochs", "")
        print(f"{trial.trial_id:>6} {trial.score:13.3f} {epochs:>7}  {describe(values)}")


def describe(values):
    """Hyperparameters in one line, only those that count for the mechanism."""
    other = {"bahdanau": "luong", "luong": "bahdanau"}[values["attention_mechanism"]]
    skip = {
        "bahdanau": ("attention_units", "attention_weight_norm", "attention_use_bias"),
        "luong": (
            *("attention_score_mode", "attention_alignment", "attention_half_width"),
            *("attention_vector", "attention_vector_units"),
        ),
    }[other]
    shown = {
        name: value
        for name, value in values.items()
        if not name.startswith("tuner/") and name not in skip
    }
    if shown.get("attention_alignment") == "global":
        shown.pop("attention_half_width", None)
    if shown.get("attention_vector") is False:
        shown.pop("attention_vector_units", None)
    texts = []
    for name, value in shown.items():
        # As short as they are told apart: the decoder has units, too.
        short = name.removeprefix("attention_")
        short = name if short != name and short in shown else short
        texts.append(f"{short} {value:.4g}" if isinstance(value, float) else f"{short} {value}")
    return ", ".join(texts)


def train(values, options, data):
    """Trains a configuration anew: shares of right letters and dates in the test data."""
    import keras_tuner

    seed_model(options.seed)
    hp = keras_tuner.HyperParameters()
    hp.values = dict(values)
    model = make_hypermodel().build(hp)
    model.fit(*data[0], epochs=options.epochs, batch_size=32, verbose=0)
    found = model.evaluate(*data[2], verbose=0, return_dict=True)
    return {"letters": found["accuracy"], "dates": found["right_dates"]}


def compare(tuners, options, data, results):
    """Trains the best and the default configuration alike; returns their shares of letters."""
    import keras_tuner

    from keras_attention.tuning import completed_trials

    best = {}
    for name, tuner in tuners.items():
        try:
            trials = completed_trials(tuner)
        except RuntimeError as error:
            raise SystemExit(
                f"{name}: {error}\nWhat failed is not tried again: delete "
                f"{options.output / name} to search anew."
            ) from None
        print_trials(name, trials)
        best[name] = trials[0]
    winner = max(best.values(), key=lambda trial: trial.score).hyperparameters.values
    default = keras_tuner.HyperParameters()
    make_hypermodel().build(default)  # which registers the space
    shares = {}
    print(f"\nTrained anew for {options.epochs} epochs, of {len(data[2][1]):,} unseen dates right:")
    for title, values in (("default", default.values), ("best", winner)):
        found = results.find(title=title, values=values)
        if found is None:
            found = {"title": title, "values": values, **train(values, options, data)}
            results.add(found)
        shares[title] = found["letters"]
        print(
            f"{title:>8}: letters {found['letters']:.3f}, whole dates {found['dates']:.3f}  "
            f"({describe(values)})",
            flush=True,
        )
    return shares


# --- command line --------------------------------------------------------------------------------


def parse(argv):
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--output", type=pathlib.Path, default=pathlib.Path("output/tune"))
    parser.add_argument("--searches", nargs="+", choices=SEARCHES, default=list(SEARCHES))
    parser.add_argument("--epochs", type=int, help="of a trial, at most (default: 4)")
    parser.add_argument("--trials", type=int, help="of the Bayesian search (default: 5)")
    parser.add_argument("--pairs", type=int, help="to train with (default: 2500)")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--distributed", type=int, metavar="N", help="workers, and a chief")
    parser.add_argument(
        "--timeout", type=float, help="seconds of a distributed search (default: 1800)"
    )
    parser.add_argument("--smoke", action="store_true", help="the shortest run that searches")
    parser.add_argument("--part", choices=SEARCHES, help=argparse.SUPPRESS)
    options = parser.parse_args(argv)
    check_at_least_one(parser, options, ("epochs", "trials", "pairs", "distributed"))
    check_seed(parser, options)
    most = (dates.LAST - dates.FIRST).days + 1 - 1500
    if (options.pairs or 0) > most:
        parser.error(f"--pairs must be at most {most:,}: there are no more dates")
    if options.timeout is not None:
        if not options.distributed:
            parser.error("--timeout goes with --distributed")
        if not options.timeout > 0:
            parser.error("--timeout must be positive")
    options.timeout = options.timeout or 1800.0
    smallest, usual = (2, 2, 500), (4, 5, 2500)
    sizes = smallest if options.smoke else usual
    return fill(options, dict(zip(("epochs", "trials", "pairs"), sizes, strict=True)))


def settings_of(options):
    """What must be the same for a search to go on."""
    settings = {name: getattr(options, name) for name in ("epochs", "trials", "pairs", "seed")}
    # keras-tuner does not find the trials of the other kind.
    return {**settings, "distributed": bool(options.distributed)}


def main(argv=None):
    argv = sys.argv[1:] if argv is None else argv
    options = parse(argv)
    # As Ctrl-C: processes of a distributed search must be ended too.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    if options.part:
        follow_parent()
    check_extras("keras_tuner", "tensorboard", "scipy", "sklearn", extra="tuner")
    data = load_data([options.pairs, 500, 1000], options.seed)
    if options.part:
        search(options.part, options, data)
        return
    make_folder(options.output)
    for name in (*options.searches, *(["logs"] if options.distributed else [])):
        make_folder(options.output / name)
    results = Results(options.output / "results.json", settings_of(options))
    results.save()
    tuners = {}
    for name in options.searches:
        if options.distributed:
            search_distributed(name, options, argv)
            tuners[name] = open_tuner(name, options)
            # It has not searched; the files are those of the chief.
            tuners[name].oracle.reload()
            continue
        try:
            tuners[name] = search(name, options, data)
        except KeyboardInterrupt:
            raise SystemExit(kept(options, name, "interrupted")) from None
    try:
        shares = compare(tuners, options, data, results)
    except KeyboardInterrupt:
        raise SystemExit("interrupted; the same command goes on with the comparison") from None
    ahead = shares["best"] - shares["default"]
    print(f"The best configuration is ahead by {100 * ahead:.1f} points of letters.")
    if ahead <= 0:
        raise SystemExit("The search found nothing better than the default configuration.")


if __name__ == "__main__":
    main()
