"""A search space of attention for keras-tuner, and a report on what a search has tried.

Needs keras-tuner and the packages that it uses: `pip install "keras-attention-layers[tuner]"`.
"""

import contextlib
import inspect
import warnings
from collections.abc import Callable
from typing import Any, Literal

import keras

try:
    import keras_tuner
except ImportError:
    expected = (
        'keras_attention.tuning needs keras-tuner: pip install "keras-attention-layers[tuner]"'
    )
    raise ImportError(expected) from None

from keras_attention._spec import Words, check_bool, check_choice, refuse
from keras_attention.layers import (
    AttentionPooling,
    BahdanauAttention,
    CoverageAttention,
    DynamicConvolutionAttention,
    ForwardAttention,
    GMMAttention,
    LocationSensitiveAttention,
    LuongAttention,
    MonotonicAttention,
    StepwiseMonotonicAttention,
)
from keras_attention.layers.base import arguments_of

__all__ = ["AttentionHyperModel", "attention_space", "completed_trials"]

MECHANISMS = {
    "bahdanau": BahdanauAttention,
    "luong": LuongAttention,
    "location_sensitive": LocationSensitiveAttention,
    "coverage": CoverageAttention,
    "monotonic": MonotonicAttention,
    "stepwise": StepwiseMonotonicAttention,
    "forward": ForwardAttention,
    "gmm": GMMAttention,
    "dynamic_convolution": DynamicConvolutionAttention,
    "pooling": AttentionPooling,
}
DEFAULT = "bahdanau", "luong"
UNNORMALISED = "monotonic", "stepwise", "gmm"
SPACE = {
    "units": [32, 64, 128, 256],
    "score_mode": ["general", "concat"],
    "normalizer": ["softmax", "sparsemax", "entmax15"],
    "dropout": [0.0, 0.2, 0.4],
}


def attention_space(
    hp: keras_tuner.HyperParameters,
    prefix: str = "attention",
    *,
    mechanisms: list[str] | tuple[str, ...] = DEFAULT,
    **arguments: Any,
) -> keras.layers.Layer:
    """Chooses an attention layer by hyperparameters, `attention_mechanism` and its arguments.

    Each keyword is an argument of the layers. A list is searched, and its first value is the
    default; the hyperparameter `attention_units` chooses `units`. Any other value is passed to the
    layer, and is not searched. An argument that only some of the mechanisms take is active for them
    alone. These are searched unless you pass another list or a value:

        units        32, 64, 128, 256; of "luong" the width of the attentional vector
        score_mode   "general", "concat", of "luong"
        normalizer   "softmax", "sparsemax", "entmax15"
        dropout      0, 0.2, 0.4

    A hyperparameter that `hp` has already, such as `hp.Fixed("attention_units", 64)`, is kept.

    Args:
        hp: the hyperparameters that keras-tuner passes to your build function.
        prefix: the first part of all names. Layers with the same prefix are chosen alike, so give
            the layers of a model different ones.
        mechanisms: some of "bahdanau", "luong", "location_sensitive", "coverage", "monotonic",
            "stepwise", "forward", "gmm" and "dynamic_convolution"; or "pooling" alone, which reads
            one sequence.
        arguments: arguments of the layers, see above.

    Returns:
        An attention layer, not yet built.

    Raises:
        ValueError: `hp` holds no hyperparameters; a mechanism is unknown; no mechanism takes an
            argument, or one refuses one of its values.

    Example:
        >>> import keras_tuner
        >>> from keras_attention.tuning import attention_space
        >>> hp = keras_tuner.HyperParameters()
        >>> attention_space(hp, units=[16, 32], dropout=0.1).units
        16
        >>> hp.values["attention_mechanism"], "attention_dropout" in hp.values
        ('bahdanau', False)
    """
    if not isinstance(hp, keras_tuner.HyperParameters):
        remedy = "Pass the `hp` that keras-tuner gives to your build function."
        refuse("attention_space", "`hp` must be keras_tuner.HyperParameters", hp, remedy)
    space, options, mechanism = _checked(mechanisms, arguments), {}, f"{prefix}_mechanism"
    declared = {x.name for x in hp.space if not x.conditions}
    chosen = hp.Choice(mechanism, list(mechanisms))
    for argument, (values, takers) in space.items():
        name, scope = f"{prefix}_{argument}", contextlib.nullcontext()
        if not isinstance(values, list):
            value = values
        elif name in declared:
            value = hp.values[name]
        else:
            if len(takers) < len(mechanisms):
                # Entered also for another choice, because keras-tuner knows what it has seen.
                scope = hp.conditional_scope(mechanism, takers)
            with scope:
                # A Choice would turn booleans into numbers.
                boolean = isinstance(values[0], bool)
                value = hp.Boolean(name, values[0]) if boolean else hp.Choice(name, values)
        if chosen in takers:
            options[argument] = value
    return MECHANISMS[chosen](**options)


def _checked(mechanisms, arguments):
    """The values and the mechanisms of each argument, after every layer has taken each value."""
    if not isinstance(mechanisms, (list, tuple)) or not mechanisms:
        expected = f"`mechanisms` must be a list of at least one of {', '.join(MECHANISMS)}"
        refuse("attention_space", expected, mechanisms, f"Write mechanisms=[{mechanisms!r}].")
    for one in mechanisms:
        check_choice("attention_space", "mechanisms", one, tuple(MECHANISMS))
    space, first = {}, {one: {} for one in mechanisms}
    for argument, values in {**SPACE, **arguments}.items():
        takers = [one for one in mechanisms if _takes(one, argument)]
        if not takers and argument in arguments:
            expected = f"`{argument}` must be an argument of one of {', '.join(mechanisms)}"
            refuse("attention_space", expected, Words())
        if isinstance(values, (list, tuple)):
            expected = f"`{argument}` must be a value or a list of at least one"
            values = list(values) or refuse("attention_space", expected, values)
        if takers:
            space[argument] = values, takers
        for one in takers:
            first[one][argument] = values[0] if isinstance(values, list) else values
    for argument, (values, takers) in space.items():
        for value in values if isinstance(values, list) else [values]:
            for one in takers:
                MECHANISMS[one](**{**first[one], argument: value}, name="attention_space")
    return space


def _takes(mechanism, argument):
    normalised = argument != "normalizer" or mechanism not in UNNORMALISED
    return normalised and argument in arguments_of(MECHANISMS[mechanism])


class AttentionHyperModel(keras_tuner.HyperModel):
    """A hypermodel whose attention layer keras-tuner searches.

    Args:
        build: function of hyperparameters and an attention layer, which returns a compiled model.
        name: name of the hypermodel, or None.
        tunable: False keeps the hyperparameters of `build` out of the search.
        space: keyword arguments of `attention_space`, such as `mechanisms` and `units`.

    Raises:
        ValueError: `build` is not a function of two arguments; `tunable` is not a boolean. Also
            what `attention_space` raises, of all its values.

    Example:
        >>> import keras, keras_tuner
        >>> from keras_attention.tuning import AttentionHyperModel
        >>> def build(hp, attention):
        ...     words, question = keras.Input((7, 5)), keras.Input((3, 5))
        ...     model = keras.Model([question, words], attention(question, words))
        ...     model.compile(keras.optimizers.Adam(hp.Float("rate", 1e-4, 1e-2)), "mse")
        ...     return model
        >>> model = AttentionHyperModel(build).build(keras_tuner.HyperParameters())
        >>> model.layers[-1].name.startswith("bahdanau_attention")
        True
    """

    def __init__(
        self,
        build: Callable[[keras_tuner.HyperParameters, keras.layers.Layer], keras.Model],
        name: str | None = None,
        tunable: bool = True,
        **space: Any,
    ) -> None:
        super().__init__(name, check_bool("AttentionHyperModel", "tunable", tunable))
        try:
            inspect.signature(build).bind(None, None)
        except TypeError as error:
            expected = "`build` must be a function of two arguments, build(hp, attention)"
            refuse("AttentionHyperModel", expected, Words(f"{build!r:.80}, {error}"))
        own = {x: values for x, values in space.items() if x not in ("prefix", "mechanisms")}
        _checked(space.get("mechanisms", DEFAULT), own)
        self._make_model, self._space = build, space

    def build(self, hp: keras_tuner.HyperParameters) -> keras.Model:
        """Returns the model for these hyperparameters, compiled."""
        return self._make_model(hp, attention_space(hp, **self._space))


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
        refuse("completed_trials", "`tuner` must be a keras_tuner.Tuner", tuner)
    # The best comes first, and those that did not complete come last.
    trials = tuner.oracle.get_best_trials(len(tuner.oracle.trials))
    if not trials:
        raise RuntimeError("There are no trials: call `search` first, with a larger max_trials.")
    completed = [trial for trial in trials if trial.status == "COMPLETED"]
    others = trials[len(completed) :]
    if others:
        causes = "\n".join(f"  {x.trial_id}: {x.status}, {_cause(x)}" for x in others)
        message = f"{len(others)} of {len(trials)} trials did not complete:\n{causes}"
        if failed == "raise" or not completed:
            raise RuntimeError(message)
        warnings.warn(message, RuntimeWarning, stacklevel=2)
    return completed


def _cause(trial):
    """Says in one line why a trial did not complete."""
    if trial.message:
        return trial.message.strip().splitlines()[-1].strip()
    if trial.status == "RUNNING":
        return "it was stopped from outside"
    return "its objective was not a number, which a training that diverges gives"
