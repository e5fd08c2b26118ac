"""The search space of an attention layer."""

from functools import partial

import keras_tuner

from keras_attention._spec import (
    LONGEST,
    WIDEST,
    check_choice,
    check_int,
    check_rate,
    is_integer,
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
from keras_attention.layers.scoring import ScoringMixin

__all__ = ["attention_space"]

MECHANISMS = ("bahdanau", "luong")
# Attentions with a state, and the choices of their own arguments.
RECURRENT = {
    "location_sensitive": (LocationSensitiveAttention, {"cumulative": (True, False)}),
    "coverage": (CoverageAttention, {"loss_weight": (1.0, 0.3, 0.1)}),
    "monotonic": (MonotonicAttention, {"initial_offset": (-4.0, -1.0), "noise": (1.0, 0.3)}),
    "forward": (ForwardAttention, {"transition_agent": (False, True)}),
    "gmm": (GMMAttention, {"version": VERSIONS[::-1], "components": (5, 10)}),
    "dynamic_convolution": (DynamicConvolutionAttention, {"filters": (8, 16)}),
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
) -> ScoringMixin:
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
        forward_...               `units`, transition_agent
        gmm_...                   `units`, version, components
        dynamic_convolution_...   `units`, filters

    Args:
        hp: the hyperparameters that keras-tuner passes to your build function.
        prefix: the first part of all names. Layers with the same prefix are chosen alike, so give
            the layers of a model different ones. A search that resumes in its folder keeps the
            names and bounds that it began with.
        mechanisms: some of "bahdanau", "luong", "location_sensitive", "coverage", "monotonic",
            "forward", "gmm" and "dynamic_convolution". All but the first two have a state; put them
            into an `AttentionRNN`.
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
        raise ValueError(f"prefix: a string, the first part of all names; received {prefix!r}.")
    _check_all("mechanisms", mechanisms, (*MECHANISMS, *RECURRENT))
    if "luong" in mechanisms:
        _check_all("scores", scores, SCORES)
        _check_all("alignments", alignments, ALIGNMENTS)
        if "location" in scores:
            if max_length is None:
                raise ValueError('The score "location" needs max_length, the longest memory.')
            check_int("attention_space", "max_length", max_length, most=LONGEST)
    _check_bounds("units", units, WIDEST)
    _check_bounds("half_widths", half_widths, LONGEST)
    rates = _rates(check_rate("attention_space", "most_dropout", most_dropout))

    def name(of):
        return f"{prefix}_{of}"

    def width(of):
        return hp.Int(name(of), *units, step=2, sampling="log")

    mechanism = hp.Choice(name("mechanism"), list(mechanisms))
    common = {"normalizer": hp.Choice(name("normalizer"), ["softmax", "sparsemax", "entmax15"])}
    if len(rates) > 1:
        common["dropout"] = hp.Choice(name("dropout"), rates, ordered=True)

    def bahdanau():
        return BahdanauAttention(
            width("units"),
            weight_norm=hp.Boolean(name("weight_norm")),
            use_bias=hp.Boolean(name("use_bias")),
            **common,
        )

    def luong():
        options = dict(common)
        options["score_mode"] = hp.Choice(name("score_mode"), list(scores))
        options["alignment"] = hp.Choice(name("alignment"), list(alignments))
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
        return LuongAttention(**options)

    def recurrent(choice):
        layer, arguments = RECURRENT[choice]
        chosen = dict(common)
        if layer in (GMMAttention, MonotonicAttention):
            chosen.pop("normalizer")  # their weights are not normalised
        for argument, values in arguments.items():
            kind = hp.Boolean if isinstance(values[0], bool) else partial(hp.Choice, values=values)
            chosen[argument] = kind(name(f"{choice}_{argument}"), default=values[0])
        return layer(width(f"{choice}_units"), **chosen)

    makers = {"bahdanau": bahdanau, "luong": luong}
    makers |= {choice: partial(recurrent, choice) for choice in RECURRENT}
    layer = None
    # Every scope is entered, chosen or not, because keras-tuner knows only the scopes it has seen.
    for choice, make in makers.items():
        if choice in mechanisms:
            with hp.conditional_scope(name("mechanism"), [choice]):
                layer = make() if mechanism == choice else layer
    return layer


def _rates(most):
    """The tenths from 0 up to the largest rate, and the largest itself."""
    rates = [round(0.1 * n, 1) for n in range(10)]
    return sorted({*(rate for rate in rates if rate <= most), most})


def _check_bounds(name, bounds, most):
    right = isinstance(bounds, (list, tuple)) and len(bounds) == 2
    right = right and all(map(is_integer, bounds))
    if not right or not 1 <= bounds[0] <= bounds[1] <= most:
        expected = f"(smallest, largest), both positive integers, at most {most}"
        refuse(name, expected, bounds)


def _check_all(name, given, known):
    if not isinstance(given, (list, tuple)) or not given:
        remedy = f" Write {name}=[{given!r}]." if isinstance(given, str) else ""
        raise ValueError(
            f"{name}: a list of at least one of {', '.join(known)}; received {given!r}.{remedy}"
        )
    for choice in given:
        check_choice("attention_space", name, choice, known)
