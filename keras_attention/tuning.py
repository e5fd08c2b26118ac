"""Search spaces of attention for keras-tuner, and a look at what a search has tried.

Needs keras-tuner with all that it uses: `pip install "keras-attention-layers[tuner]"`.
"""

import inspect
import warnings

try:
    import keras_tuner
except ImportError as error:
    raise ImportError(
        'keras_attention.tuning needs keras-tuner: pip install "keras-attention-layers[tuner]"'
    ) from error

from keras_attention._checks import (
    LONGEST,
    WIDEST,
    check_bool,
    check_choice,
    check_positive_int,
    check_rate,
    described,
    is_integer,
)
from keras_attention.layers.bahdanau import BahdanauAttention
from keras_attention.layers.luong import ALIGNMENTS, SCORES, LuongAttention

__all__ = ["AttentionHyperModel", "attention_space", "completed_trials", "failure_cause"]

MECHANISMS = ("bahdanau", "luong")
# Every alignment that needs nothing but query and value.
SEARCHED_ALIGNMENTS = tuple(choice for choice in ALIGNMENTS if choice != "local-m")


def attention_space(
    hp,
    prefix="attention",
    *,
    mechanisms=MECHANISMS,
    scores=("general", "concat"),
    alignments=SEARCHED_ALIGNMENTS,
    units=(32, 256),
    half_widths=(2, 10),
    most_dropout=0.5,
    max_length=None,
):
    """An attention layer, chosen by hyperparameters.

    The first value of each is the default, and those that only some choices have are in conditional
    scopes: `<prefix>_mechanism`; of bahdanau `_units`, `_weight_norm`, `_use_bias`; of luong
    `_score_mode`, `_alignment`, and of a local one `_half_width`, `_vector` (whether it returns the
    attentional vector) and, if it does, `_vector_units`; of both `_normalizer` and `_dropout`.

    Args:
        hp: `keras_tuner.HyperParameters`.
        prefix: of all names; give different ones to different layers of a model, for layers of one
            prefix are chosen alike. A search that goes on in its folder keeps the names and bounds
            that it began with.
        mechanisms: of "bahdanau" and "luong".
        scores: of `LuongAttention`. "dot" needs a query as wide as the key, "location"
            `max_length`.
        alignments: of `LuongAttention`. Pass "local-m" among them if your model can pass the
            position of every step: `AttentionRNN.step` takes it for all attentions, but the layer
            itself, called on one step, needs it for "local-m" and refuses it for others.
        units: smallest and largest width; tried are the smallest and its doubles.
        half_widths: smallest and largest D of local alignments.
        most_dropout: the largest rate, tried with all tenths below; 0 for none.
        max_length: for the score "location".

    Returns:
        A `BahdanauAttention` or a `LuongAttention`, not yet built.

    Raises:
        ValueError: `hp` holds no hyperparameters; an empty prefix; an unknown mechanism, score or
            alignment, or none of them; bounds that are no integers, too large or in the wrong
            order; `most_dropout` not in [0, 1); `max_length` missing.

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
        raise ValueError(
            "attention_space: `hp` must be keras_tuner.HyperParameters; received "
            f"{described(hp)}. Pass the `hp` that keras-tuner gives to your build function."
        )
    if not isinstance(prefix, str) or not prefix:
        raise ValueError(f"prefix: a string, the first part of all names; received {prefix!r}.")
    _check_all("mechanisms", mechanisms, MECHANISMS)
    if "luong" in mechanisms:
        _check_all("scores", scores, SCORES)
        _check_all("alignments", alignments, ALIGNMENTS)
        if "location" in scores:
            if max_length is None:
                raise ValueError('The score "location" needs max_length, the longest memory.')
            check_positive_int("attention_space", "max_length", max_length, LONGEST)
    _check_bounds("units", units, WIDEST)
    _check_bounds("half_widths", half_widths, LONGEST)
    rates = _rates(check_rate("attention_space", "most_dropout", most_dropout))

    def name(of):
        return f"{prefix}_{of}"

    def width(of):
        return hp.Int(name(of), *units, step=2, sampling="log")

    mechanism = hp.Choice(name("mechanism"), list(mechanisms))
    common = {"normalizer": hp.Choice(name("normalizer"), ["softmax", "sparsemax"])}
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

    layer = None
    # Every scope is entered, chosen or not: keras-tuner knows only those that it has seen.
    for choice, make in (("bahdanau", bahdanau), ("luong", luong)):
        if choice in mechanisms:
            with hp.conditional_scope(name("mechanism"), [choice]):
                layer = make() if mechanism == choice else layer
    return layer


class AttentionHyperModel(keras_tuner.HyperModel):
    """A model whose attention is searched.

    Args:
        build: function of hyperparameters and an attention layer; returns a compiled model.
        name, tunable: as of `keras_tuner.HyperModel`.
        prefix and others: as of `attention_space`.

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

    def __init__(self, build, name=None, tunable=True, **space):
        super().__init__(name, check_bool("AttentionHyperModel", "tunable", tunable))
        form = "build must be a function of hyperparameters and a layer"
        if not callable(build):
            raise ValueError(f"{form}; received {build!r}.")
        try:
            inspect.signature(build).bind(None, None)
        except TypeError:
            raise ValueError(
                f"{form}, build(hp, attention); received one that takes {inspect.signature(build)}."
            ) from None
        known = set(inspect.signature(attention_space).parameters) - {"hp"}
        if set(space) - known:
            raise ValueError(
                f"AttentionHyperModel: {', '.join(sorted(set(space) - known))} unknown; options of "
                f"attention_space: {', '.join(sorted(known))}."
            )
        self._make_model, self._space = build, space

    def build(self, hp):
        return self._make_model(hp, attention_space(hp, **self._space))


def completed_trials(tuner, failed="raise"):
    """The completed trials of a search, the best first.

    A search of keras-tuner may end without an error although trials failed; this tells.

    Args:
        tuner: a `keras_tuner.Tuner` after its `search`.
        failed: "raise", or "warn" for the completed ones although others failed.

    Returns:
        A list of `keras_tuner.engine.trial.Trial`.

    Raises:
        ValueError: `tuner` is no tuner.
        RuntimeError: none has completed; with failed="raise", also if one has not. The message says
            which and why, as does the warning.
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


def failure_cause(trial):
    """Why a trial did not complete, in a line.

    Args:
        trial: a `keras_tuner.engine.trial.Trial`.

    Returns:
        A string: the last line of its error, or what its status says.
    """
    if trial.message:
        return trial.message.strip().splitlines()[-1].strip()
    if trial.status == "RUNNING":
        return "it was stopped from outside"
    return "its objective was not a number, which a training that diverges gives"


def _rates(most):
    """0, 0.1, 0.2 and so on, and the largest."""
    rates = [round(0.1 * n, 1) for n in range(10)]
    return sorted({*(rate for rate in rates if rate <= most), most})


def _check_bounds(name, bounds, most):
    right = isinstance(bounds, (list, tuple)) and len(bounds) == 2
    right = right and all(map(is_integer, bounds))
    if not right or not 1 <= bounds[0] <= bounds[1] <= most:
        raise ValueError(
            f"{name}: (smallest, largest), both positive integers, at most {most}; received "
            f"{bounds!r}."
        )


def _check_all(name, given, known):
    if not isinstance(given, (list, tuple)) or not given:
        remedy = f" Write {name}=[{given!r}]." if isinstance(given, str) else ""
        raise ValueError(
            f"{name}: a list of at least one of {', '.join(known)}; received {given!r}.{remedy}"
        )
    for choice in given:
        check_choice("attention_space", name, choice, known)
