"""Search spaces of attention for keras-tuner, and a look at what a search has tried.

Needs keras-tuner with all that it uses: `pip install "keras-attention-layers[tuner]"`.
"""

try:
    import keras_tuner
except ImportError as error:
    raise ImportError(
        'keras_attention.tuning needs keras-tuner: pip install "keras-attention-layers[tuner]"'
    ) from error

from keras_attention.layers.bahdanau import BahdanauAttention
from keras_attention.layers.checks import check_choice
from keras_attention.layers.luong import ALIGNMENTS, SCORES, LuongAttention

MECHANISMS = ("bahdanau", "luong")


def attention_space(
    hp,
    prefix="attention",
    *,
    mechanisms=MECHANISMS,
    scores=("general", "concat"),
    alignments=ALIGNMENTS,
    units=(32, 256),
    windows=(2, 10),
    most_dropout=0.5,
    max_length=None,
):
    """An attention layer, chosen by hyperparameters.

    The first value of each is the default, and those that only some choices have are in conditional
    scopes: `<prefix>_mechanism`; of bahdanau `_units`, `_normalize`, `_use_bias`; of luong
    `_score`, `_alignment`, and of a local one `_window`, `_vector` (whether it returns the
    attentional vector) and, if it does, `_vector_units`; of both `_normalizer` and `_dropout`.

    Args:
        hp: `keras_tuner.HyperParameters`.
        prefix: of all names; give different ones to different layers of a model.
        mechanisms: of "bahdanau" and "luong".
        scores: of `LuongAttention`. "dot" needs a query as wide as the key, "location"
            `max_length`.
        alignments: of `LuongAttention`.
        units: smallest and largest width, in which powers of two are tried.
        windows: smallest and largest D of local alignments.
        most_dropout: largest rate, in steps of 0.1; 0 for none.
        max_length: for the score "location".

    Returns:
        A `BahdanauAttention` or a `LuongAttention`, not yet built.

    Raises:
        ValueError: an unknown mechanism, score or alignment, or none of them; bounds in the wrong
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
    _check_all("mechanisms", mechanisms, MECHANISMS)
    if "luong" in mechanisms:
        _check_all("scores", scores, SCORES)
        _check_all("alignments", alignments, ALIGNMENTS)
    for name, bounds in (("units", units), ("windows", windows)):
        if len(bounds) != 2 or not 1 <= bounds[0] <= bounds[1]:
            raise ValueError(f"{name}: (smallest, largest), both positive; received {bounds!r}.")
    if not 0 <= most_dropout < 1:
        raise ValueError(f"most_dropout must be in [0, 1); received {most_dropout!r}.")
    if "luong" in mechanisms and "location" in scores and max_length is None:
        raise ValueError('The score "location" needs max_length, the longest memory.')

    def name(of):
        return f"{prefix}_{of}"

    def width(of):
        return hp.Int(name(of), *units, step=2, sampling="log")

    mechanism = hp.Choice(name("mechanism"), list(mechanisms))
    common = {"normalizer": hp.Choice(name("normalizer"), ["softmax", "sparsemax"])}
    if most_dropout:
        common["dropout"] = hp.Float(name("dropout"), 0.0, most_dropout, step=0.1)
    if mechanism == "bahdanau":
        with hp.conditional_scope(name("mechanism"), ["bahdanau"]):
            return BahdanauAttention(
                width("units"),
                normalize=hp.Boolean(name("normalize")),
                use_bias=hp.Boolean(name("use_bias")),
                **common,
            )
    with hp.conditional_scope(name("mechanism"), ["luong"]):
        score = hp.Choice(name("score"), list(scores))
        alignment = hp.Choice(name("alignment"), list(alignments))
        if alignment != "global":
            local = [x for x in alignments if x != "global"]
            with hp.conditional_scope(name("alignment"), local):
                common["window"] = hp.Int(name("window"), *windows)
        if hp.Boolean(name("vector")):
            with hp.conditional_scope(name("vector"), [True]):
                common["units"] = width("vector_units")
        if score == "location":
            common["max_length"] = max_length
        return LuongAttention(score, alignment, **common)


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
        super().__init__(name, tunable)
        if not callable(build):
            raise ValueError(
                f"build must be a function of hyperparameters and a layer; received {build!r}."
            )
        self._make_model, self._space = build, space

    def build(self, hp):
        return self._make_model(hp, attention_space(hp, **self._space))


def completed_trials(tuner):
    """The trials of a search, the best first.

    A search of keras-tuner may end without an error although trials failed; this does not.

    Args:
        tuner: a `keras_tuner.Tuner` after its `search`.

    Returns:
        A list of `keras_tuner.engine.trial.Trial`, all completed.

    Raises:
        RuntimeError: there is none, or one did not complete; the message says which and why.
    """
    trials = list(tuner.oracle.trials.values())
    failed = [trial for trial in trials if trial.status != "COMPLETED"]
    if failed:
        causes = "\n".join(f"  {x.trial_id}: {x.status}, {_cause(x)}" for x in failed)
        raise RuntimeError(f"{len(failed)} of {len(trials)} trials did not complete:\n{causes}")
    if not trials:
        raise RuntimeError("There are no trials: call `search` first, with a larger max_trials.")
    backwards = tuner.oracle.objective.direction == "max"
    return sorted(trials, key=lambda trial: trial.score, reverse=backwards)


def _cause(trial):
    lines = (trial.message or "no message; it was stopped from outside").strip().splitlines()
    return lines[-1].strip()


def _check_all(name, given, known):
    if not given:
        raise ValueError(f"{name}: at least one of {', '.join(known)}; received none.")
    for choice in given:
        check_choice("attention_space", name, choice, known)
