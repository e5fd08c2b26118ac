"""The trials of a search: which completed, and why others did not."""

import warnings
from typing import Literal

import keras_tuner

from keras_attention._spec import check_choice, described

__all__ = ["completed_trials", "failure_cause"]


def completed_trials(
    tuner: keras_tuner.Tuner, failed: Literal["raise", "warn"] = "raise"
) -> list[keras_tuner.engine.trial.Trial]:
    """Returns the completed trials of a search, the best first.

    A search of keras-tuner may end without an error although trials failed. This function tells.

    Args:
        tuner: a `keras_tuner.Tuner` after its `search`.
        failed: "raise" raises an error if a trial failed; "warn" warns, and returns the others.

    Returns:
        A list of `keras_tuner.engine.trial.Trial`.

    Raises:
        ValueError: `tuner` is not a tuner, or `failed` is unknown.
        RuntimeError: no trial completed, or, with failed="raise", not all did. The message names
            each of the others and the cause, as does the warning.

    Example:
        >>> import keras_tuner, tempfile
        >>> from keras_attention.tuning import completed_trials
        >>> class Tuner(keras_tuner.GridSearch):  # its trials train no model
        ...     def run_trial(self, trial, **options):
        ...         return abs(trial.hyperparameters.Int("units", 1, 3) - 2)
        >>> tuner = Tuner(directory=tempfile.mkdtemp())
        >>> tuner.search(verbose=0)
        >>> [trial.hyperparameters["units"] for trial in completed_trials(tuner)]
        [2, 1, 3]
    """
    check_choice("completed_trials", "failed", failed, ("raise", "warn"))
    if not hasattr(tuner, "oracle"):
        raise ValueError(
            f"completed_trials: `tuner` must be a keras_tuner.Tuner; received {described(tuner)}."
        )
    trials = list(tuner.oracle.trials.values())
    completed = [trial for trial in trials if trial.status == "COMPLETED"]
    others = [trial for trial in trials if trial.status != "COMPLETED"]
    if others:
        causes = "\n".join(f"  {x.trial_id}: {x.status}, {failure_cause(x)}" for x in others)
        message = f"{len(others)} of {len(trials)} trials did not complete:\n{causes}"
        if failed == "raise" or not completed:
            raise RuntimeError(message)
        warnings.warn(message, RuntimeWarning, stacklevel=2)
    if not trials:
        raise RuntimeError("There are no trials: call `search` first, with a larger max_trials.")
    backwards = tuner.oracle.objective.direction == "max"
    return sorted(completed, key=lambda trial: trial.score, reverse=backwards)


def failure_cause(trial: keras_tuner.engine.trial.Trial) -> str:
    """Says in one line why a trial did not complete.

    Args:
        trial: a `keras_tuner.engine.trial.Trial`.

    Returns:
        The last line of its error, or a sentence about its status if there was no error.

    Example:
        >>> import keras_tuner
        >>> from keras_tuner.engine.trial import Trial
        >>> from keras_attention.tuning import failure_cause
        >>> message = "Traceback (most recent call last):\\n...\\nMemoryError: 9 GiB"
        >>> failure_cause(Trial(keras_tuner.HyperParameters(), status="FAILED", message=message))
        'MemoryError: 9 GiB'
        >>> failure_cause(Trial(keras_tuner.HyperParameters(), status="RUNNING"))
        'it was stopped from outside'
    """
    if trial.message:
        return trial.message.strip().splitlines()[-1].strip()
    if trial.status == "RUNNING":
        return "it was stopped from outside"
    return "its objective was not a number, which a training that diverges gives"
