"""Search spaces of attention for keras-tuner, and a report on what a search has tried.

Needs keras-tuner and the packages that it uses: `pip install "keras-attention-layers[tuner]"`.
"""

import inspect
import warnings
from collections.abc import Callable
from functools import partial
from typing import Any, Literal

import keras

try:
    import keras_tuner
except ImportError as error:
    raise ImportError(
        'keras_attention.tuning needs keras-tuner: pip install "keras-attention-layers[tuner]"'
    ) from error

from keras_attention._spec import (
    LONGEST,
    WIDEST,
    Words,
    check_bool,
    check_choice,
    check_int,
    check_rate,
    refuse,
)
from keras_attention.layers.bahdanau import BahdanauAttention
from keras_attention.layers.coverage import CoverageAttention
from keras_attention.layers.dynamic_convolution import DynamicConvolutionAttention
from keras_attention.layers.forward import ForwardAttention
from keras_attention.layers.gmm import VERSIONS, GMMAttention
from keras_attention.layers.location_sensitive import LocationSensitiveAttention
from keras_attention.layers.luong import ALIGNMENTS, SCORES, LuongAttention
from keras_attention.layers.monotonic import MonotonicAttention
from keras_attention.layers.pooling import AttentionPooling
from keras_attention.layers.scoring import ScoringMixin
from keras_attention.layers.stepwise_monotonic import StepwiseMonotonicAttention

__all__ = ["AttentionHyperModel", "attention_space", "completed_trials", "failure_cause"]

MECHANISMS = ("bahdanau", "luong")
# All mechanisms but "luong", and the choices of their own arguments.
OTHERS = {
    "bahdanau": (BahdanauAttention, {"weight_norm": (False, True), "use_bias": (False, True)}),
    "location_sensitive": (LocationSensitiveAttention, {"cumulative": (True, False)}),
    "coverage": (CoverageAttention, {"loss_weight": (1.0, 0.3, 0.1)}),
    "monotonic": (MonotonicAttention, {"initial_offset": (-4.0, -1.0), "noise": (1.0, 0.3)}),
    "stepwise": (StepwiseMonotonicAttention, {"initial_offset": (0.0, 1.0), "noise": (1.0, 0.3)}),
    "forward": (ForwardAttention, {"transition_agent": (False, True)}),
    "gmm": (GMMAttention, {"version": VERSIONS[::-1], "components": (5, 10)}),
    "dynamic_convolution": (DynamicConvolutionAttention, {"filters": (8, 16)}),
    "pooling": (
        AttentionPooling,
        {
            "gated": (True, False),
            "temperature": (1.0, 0.3, 3.0),
            "normalizer": ("softmax", "normalized_sigmoid", "sparsemax"),
        },
    ),
}
# The alignments that need only a query and a value.
SEARCHED_ALIGNMENTS = tuple(choice for choice in ALIGNMENTS if choice != "local-m")


def attention_space(
    hp: keras_tuner.HyperParameters,
    prefix: str = "attention",
    *,
    mechanisms: list[str] | tuple[str, ...] = MECHANISMS,
    scores: list[str] | tuple[str, ...] = ("general", "concat"),
    alignments: list[str] | tuple[str, ...] = SEARCHED_ALIGNMENTS,
    units: tuple[int, int] = (32, 256),
    half_widths: tuple[int, int] = (2, 10),
    most_dropout: float = 0.5,
    max_length: int | None = None,
) -> ScoringMixin | AttentionPooling:
    """Chooses an attention layer by hyperparameters.

    The names of the hyperparameters begin with the prefix, and the first value is the default.
    Those that only some choices need are in conditional scopes:

        mechanism                 `mechanisms`
        normalizer, dropout       "softmax", "sparsemax" or "entmax15"; 0, 0.1, .. `most_dropout`
        bahdanau:
          units                   `units`
          weight_norm, use_bias   False or True
        luong:
          score_mode, alignment   `scores`, `alignments`
          half_width              `half_widths`, for a local alignment
          vector                  whether to return the attentional vector, False or True
          vector_units            `units`, with the attentional vector
        location_sensitive_...    `units`, cumulative
        coverage_...              `units`, loss_weight
        monotonic_...             `units`, initial_offset, noise
        stepwise_...              `units`, initial_offset, noise
        forward_...               `units`, transition_agent
        gmm_...                   `units`, version, components
        dynamic_convolution_...   `units`, filters
        pooling_...               `units`, gated, temperature, normalizer

    "pooling" is an `AttentionPooling`, which reads one bag or sequence: choose it alone.

    Args:
        hp: the hyperparameters that keras-tuner passes to your build function.
        prefix: the first part of all names. Layers with the same prefix are chosen alike, so give
            the layers of a model different ones. A search that resumes in its folder keeps the
            names and bounds that it began with.
        mechanisms: some of "bahdanau", "luong", "location_sensitive", "coverage", "monotonic",
            "stepwise", "forward", "gmm", "dynamic_convolution" and "pooling". All but the first
            two and the last have a state; put them into an `AttentionRNN`.
        scores: the scores of `LuongAttention` to search. "dot" needs a query as wide as the key;
            "location" needs `max_length`.
        alignments: the alignments of `LuongAttention` to search. "local-m" is left out by default:
            called on one step, the layer needs its `position`, which other alignments refuse.
            `AttentionRNN.step` accepts a position for all of them.
        units: smallest and largest width; the search tries the smallest and its doubles.
        half_widths: smallest and largest half-width D of local alignments, in memory steps.
        most_dropout: the largest dropout rate; the search also tries all tenths below it. With 0
            there is no dropout.
        max_length: the longest memory, for the score "location".

    Returns:
        An attention layer, not yet built.

    Raises:
        ValueError: `hp` holds no hyperparameters; the prefix is empty; a mechanism, score or
            alignment is unknown, or there is none; bounds are not integers, too large or in the
            wrong order; `most_dropout` is not in [0, 1); `max_length` is missing.

    Example:
        >>> import keras_tuner
        >>> from keras_attention.tuning import attention_space
        >>> hp = keras_tuner.HyperParameters()
        >>> attention_space(hp).units
        32
        >>> hp.values["attention_mechanism"]
        'bahdanau'
    """
    if not isinstance(hp, keras_tuner.HyperParameters):
        remedy = "Pass the `hp` that keras-tuner gives to your build function."
        refuse("attention_space", "`hp` must be keras_tuner.HyperParameters", hp, remedy)
    if not isinstance(prefix, str) or not prefix:
        refuse("attention_space", "`prefix` must be a string, the first part of all names", prefix)
    _check_choices("mechanisms", mechanisms, ["luong", *OTHERS])
    if "luong" in mechanisms:
        _check_choices("scores", scores, SCORES)
        _check_choices("alignments", alignments, ALIGNMENTS)
        if "location" in scores:
            hint = 'The score "location" needs it, the longest memory.'
            check_int("attention_space", "max_length", max_length, most=LONGEST, hint=hint)
    _check_bounds("units", units, WIDEST)
    _check_bounds("half_widths", half_widths, LONGEST)
    most_dropout = check_rate("attention_space", "most_dropout", most_dropout)

    def name(of):
        return f"{prefix}_{of}"

    def width(of):
        return hp.Int(name(of), *units, step=2, sampling="log")

    mechanism = hp.Choice(name("mechanism"), list(mechanisms))
    common = {"normalizer": hp.Choice(name("normalizer"), ["softmax", "sparsemax", "entmax15"])}
    if most_dropout > 0:
        # All tenths below the largest rate, and this rate.
        rates = sorted({most_dropout, *(n / 10 for n in range(10) if n / 10 < most_dropout)})
        common["dropout"] = hp.Choice(name("dropout"), rates, ordered=True)

    def luong():
        options = {
            "score_mode": hp.Choice(name("score_mode"), list(scores)),
            "alignment": hp.Choice(name("alignment"), list(alignments)),
        }
        local = [choice for choice in alignments if choice != "global"]
        if local:
            with hp.conditional_scope(name("alignment"), local):
                if options["alignment"] != "global":
                    options["half_width"] = hp.Int(name("half_width"), *half_widths)
        vector = hp.Boolean(name("vector"))
        with hp.conditional_scope(name("vector"), [True]):
            if vector:
                options["units"] = width("vector_units")
        if options["score_mode"] == "location":
            options["max_length"] = max_length
        return LuongAttention(**options, **common)

    def other(choice):
        layer, choices = OTHERS[choice]
        label = "" if choice == "bahdanau" else f"{choice}_"
        options = {**common, "units": width(f"{label}units")}
        for argument, values in choices.items():
            # A Choice would turn booleans into numbers.
            kind = hp.Boolean if isinstance(values[0], bool) else partial(hp.Choice, values=values)
            options[argument] = kind(name(f"{label}{argument}"), default=values[0])
        if layer in (GMMAttention, MonotonicAttention, StepwiseMonotonicAttention):
            del options["normalizer"]  # their weights are not normalised
        return layer(**options)

    layer = None
    # Every scope is entered, chosen or not, because keras-tuner knows only the scopes it has seen.
    for choice in mechanisms:
        with hp.conditional_scope(name("mechanism"), [choice]):
            if choice == mechanism:
                layer = luong() if choice == "luong" else other(choice)
    return layer


def _check_bounds(name, bounds, most):
    if not isinstance(bounds, (list, tuple)) or len(bounds) != 2:
        refuse("attention_space", f"`{name}` must be two integers, (smallest, largest)", bounds)
    check_int("attention_space", f"{name}[0]", bounds[0], most=most)
    check_int("attention_space", f"{name}[1]", bounds[1], least=bounds[0], most=most)


def _check_choices(name, chosen, choices):
    if not isinstance(chosen, (list, tuple)) or not chosen:
        remedy = f"Write {name}=[{chosen!r}]." if isinstance(chosen, str) else ""
        expected = f"`{name}` must be a list of at least one of {', '.join(choices)}"
        refuse("attention_space", expected, chosen, remedy)
    for choice in chosen:
        check_choice("attention_space", name, choice, choices)


class AttentionHyperModel(keras_tuner.HyperModel):
    """A hypermodel whose attention layer keras-tuner searches.

    Args:
        build: function of hyperparameters and an attention layer, which returns a compiled model.
        name: name of the hypermodel, or None.
        tunable: False keeps the hyperparameters of `build` out of the search.
        space: keyword arguments of `attention_space`, such as `prefix` and `units`.

    Raises:
        ValueError: `build` is not a function of two arguments; `tunable` is not a boolean; a
            keyword argument is unknown to `attention_space`.

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
        options = list(inspect.signature(attention_space).parameters)[1:]
        for option in space:
            check_choice("AttentionHyperModel", "**space", option, options)
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
        causes = "\n".join(f"  {x.trial_id}: {x.status}, {failure_cause(x)}" for x in others)
        message = f"{len(others)} of {len(trials)} trials did not complete:\n{causes}"
        if failed == "raise" or not completed:
            raise RuntimeError(message)
        warnings.warn(message, RuntimeWarning, stacklevel=2)
    return completed


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
