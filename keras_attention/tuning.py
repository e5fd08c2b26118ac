"""A search space for keras-tuner, which `pip install "keras-attention-layers[tuner]"` installs."""

from collections.abc import Sequence

import keras

try:
    import keras_tuner
except ImportError:
    needs = 'keras_attention.tuning needs keras-tuner: pip install "keras-attention-layers[tuner]"'
    raise ImportError(needs) from None

import keras_attention.layers as layers
from keras_attention._spec import check_choice
from keras_attention.attention.checked_layer import arguments_of
from keras_attention.attention.scoring import ScoringMixin

__all__ = ["attention_space", "completed_trials"]

# The layers that have `units`, by the names of their modules.
MECHANISMS: dict[str, type[keras.layers.Layer]] = {
    layer.__module__.rpartition(".")[2]: layer
    for layer in (getattr(layers, name) for name in layers.__all__)
    if issubclass(layer, (ScoringMixin, layers.AttentionPooling)) and "units" in arguments_of(layer)
}
UNUSED = [("normalizer", x) for x in ("monotonic", "stepwise_monotonic", "gmm")]
SPACE: dict[str, Sequence[object]] = {
    "units": [32, 64, 128, 256],
    "score_mode": ["general", "concat"],
    "normalizer": ["softmax", "sparsemax", "entmax15"],
    "dropout": [0.0, 0.2, 0.4],
}


def attention_space(
    hp: keras_tuner.HyperParameters,
    prefix: str = "attention",
    *,
    mechanisms: list[str] | tuple[str, ...] = ("bahdanau", "luong"),
    **arguments: object,
) -> keras.layers.Layer:
    """Return a new attention layer, whose mechanism and arguments keras-tuner chooses.

    Each keyword is an argument of the layers. A list is searched with `hp.Choice`, where the chosen
    mechanism takes it; `units` is `attention_units` there, and the first value is the default. Any
    other value is passed on. Without keywords, `units`, `normalizer`, `dropout` and, of "luong",
    `score_mode` are searched. What `hp` has, as after `hp.Fixed("attention_units", 64)`, is kept.

    Args:
        hp: the hyperparameters that keras-tuner passes to your build function.
        prefix: the first part of the names. Each attention of a model needs its own.
        mechanisms: some of the keys of `MECHANISMS`; "pooling", which takes one sequence, alone.

    Raises:
        ValueError: a mechanism is unknown, or a layer refuses an argument or one of its values.

    Example:
        >>> import keras_tuner
        >>> from keras_attention.tuning import attention_space
        >>> attention_space(keras_tuner.HyperParameters(), units=[16, 32], dropout=0.1).units
        16
    """
    for one in mechanisms:
        check_choice("attention_space", "mechanisms", one, tuple(MECHANISMS))
    space, options = {}, {}
    for argument, value in {**SPACE, **arguments}.items():
        takers = [x for x in mechanisms if argument in arguments_of(MECHANISMS[x])]
        takers = [x for x in takers if (argument, x) not in UNUSED]
        if takers or argument in arguments:  # which the layers refuse if none takes it
            values = list(value) if isinstance(value, (list, tuple)) else None
            space[argument] = value, values, takers or list(mechanisms)
    for one in mechanisms:
        taken = {x: y or [value] for x, (value, y, takers) in space.items() if one in takers}
        first = {x: y[0] for x, y in taken.items()}
        for argument, values in taken.items():
            for value in values:
                MECHANISMS[one](**{"name": "attention_space", **first, argument: value})
    declared = {x.name for x in hp.space if not x.conditions}
    chosen = str(hp.Choice(f"{prefix}_mechanism", list(mechanisms)))
    check_choice("attention_space", f"{prefix}_mechanism", chosen, tuple(mechanisms))
    for argument, (value, values, takers) in space.items():
        name = f"{prefix}_{argument}"
        if values and name in declared:
            value = hp.values[name]
        elif values:
            # Entered also for another choice, because keras-tuner knows what it has seen.
            with hp.conditional_scope(f"{prefix}_mechanism", takers):
                value = hp.Choice(name, values)  # which makes numbers of booleans
        value = bool(value) if values and isinstance(values[0], bool) else value
        if chosen in takers:
            options[argument] = value
    return MECHANISMS[chosen](**options)


def completed_trials(tuner: keras_tuner.Tuner) -> list[keras_tuner.engine.trial.Trial]:
    """Return the trials of a search, the best first; raise a RuntimeError if one failed.

    keras-tuner may end a search without an error. This error names each failed trial and its cause.

    Example:
        >>> import keras_tuner, tempfile
        >>> from keras_attention.tuning import completed_trials
        >>> tuner = keras_tuner.GridSearch(lambda hp: None, directory=tempfile.mkdtemp())
        >>> tuner.run_trial = lambda trial, **_: trial.hyperparameters.Choice("units", [3, 1, 2])
        >>> tuner.search(verbose=0)
        >>> [trial.hyperparameters["units"] for trial in completed_trials(tuner)]
        [1, 2, 3]
    """
    trials = tuner.oracle.get_best_trials(len(tuner.oracle.trials))
    unknown = "no error, but its objective was not a number, or it was stopped"
    failed = {x.trial_id: x.message or unknown for x in trials if x.status != "COMPLETED"}
    if failed:
        causes = [f"\n  {trial}: {text.splitlines()[-1]}" for trial, text in failed.items()]
        raise RuntimeError(f"{len(failed)} of {len(trials)} trials failed:{''.join(causes)}")
    return trials
