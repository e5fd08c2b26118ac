"""Runs a search in this process."""

import json
import pathlib
import time
import warnings

import keras

from examples.tuning import tuner_files
from examples.tuning.model import make_hypermodel
from examples.tuning.tuner_files import kept, naming_files, note_digests

SEARCHES = ("hyperband", "bayesian")


class Failed(Exception):
    """A trial failed: its number, why, and the traceback."""


def search(name, options, data):
    """Runs a search. A process of a distributed search does its part of it.

    Returns:
        The tuner.
    """
    keras.utils.set_random_seed(options.seed)
    # Hyperband continues with the weights of an earlier trial, but not with its optimizer.
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


def open_tuner(name, options):
    """Like `make_tuner`, but first restores files that a kill has damaged.

    Raises:
        SystemExit: there is no copy of a damaged file, or a file of a finished trial was changed.
            The message says what to do.
    """
    folder = options.output / name
    tuner_files.check_digests(folder)
    tuner_files.restore_copies(folder)
    tuner_files.forget_begun(folder)
    try:
        return make_tuner(name, options)
    except json.JSONDecodeError as error:
        raise SystemExit(
            f"{options.output / name} is damaged, as a kill may leave it ({error}). Delete it to "
            "start the search again."
        ) from None


def make_tuner(name, options):
    """Makes the tuner of one of `SEARCHES`. It resumes after the trials in its folder."""
    import keras_tuner

    from keras_attention.tuning import failure_cause

    class Reporting:
        """Prints what every trial has found, or why it failed."""

        def on_trial_begin(self, trial):
            super().on_trial_begin(trial)
            # Every trial begins with the same seed, so a resumed search finds the same.
            keras.utils.set_random_seed(options.seed)
            tuner_files.keep_copies(options.output / name)
            self._begin = time.time()

        def on_trial_end(self, trial):
            # The chief of a distributed search does not learn why a trial failed.
            if trial.message:
                raise Failed(trial.trial_id, failure_cause(trial), trial.message)
            try:
                super().on_trial_end(trial)
            except Exception:
                if self.oracle.get_trial(trial.trial_id).status != "FAILED":
                    raise
                trial.status = "FAILED"
                raise Failed(trial.trial_id, failure_cause(trial), "") from None
            tuner_files.keep_copies(options.output / name)
            note_digests(pathlib.Path(self.get_trial_dir(trial.trial_id)))
            # A worker only knows its own trials.
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
        # The first failure ends the search, so that no failure is hidden.
        "max_consecutive_failed_trials": 1,
    }
    if name == "hyperband":
        kind = type("Hyperband", (Reporting, keras_tuner.Hyperband), {})
        return kind(max_epochs=options.epochs, factor=3, **common)
    kind = type("Bayesian", (Reporting, keras_tuner.BayesianOptimization), {})
    return kind(max_trials=options.trials, num_initial_points=3, **common)
