"""The protocol that all scoring attentions share: masks, steps, dropout, hooks, refusals."""

import functools
import itertools

import keras
import numpy as np
import pytest

from keras_attention import AttentionRNN, BahdanauAttention, LuongAttention, ScoringMixin
from keras_attention.attention import Window
from keras_attention.backend import ops
from tests import fast, helpers
from tests.helpers import DQ, TK, TQ, B, assert_all_close, assert_close, normal, numpy
from tests.helpers import MASKS as PAPER_MASKS
from tests.layers.papers import run
from tests.oracles import attend, luong

EVERY = {
    **helpers.MECHANISMS,
    **{f"bahdanau, {name}": x for name, x in helpers.BAHDANAU.items() if name != "sparse"},
    **helpers.RECURRENT,
}
SPARSE = helpers.LUONG["general-local-p"].options | {"normalizer": "sparsemax"}
EVERY["sparse windows"] = helpers.Mechanism(LuongAttention, SPARSE)
FEW = ["bahdanau", "concat-local-p", "general-local-m", "vector", "past weights"]
few_mechanisms = pytest.mark.parametrize("name", FEW)
# Every kind of score, window and state, for tests that take seconds a case.
KINDS = [
    *FEW,
    "location-global",
    "sparse windows",
    "location",
    "forward, agent",
    "monotonic, chunks",
]
KINDS += ["stepwise", "gmm V2b", "dynamic convolution", "heads, concat-local-m"]
most_mechanisms = pytest.mark.parametrize("name", fast(EVERY, KINDS, slow=6))

QUERY_MASK = np.array([[True, False, True], [True, True, False]])
VALUE_MASK = np.stack([helpers.lengths_mask([5], TK)[0], np.arange(TK) >= 1])
PAIRS, OF_SAMPLES = (np.random.default_rng(5).random(x) < 0.7 for x in ((TQ, TK), (B, TQ, TK)))
MASKS = {
    "query_mask": (None, QUERY_MASK),
    "value_mask": (None, VALUE_MASK),
    "attention_mask": (None, PAIRS, OF_SAMPLES),
    "use_causal_mask": (False, True),
}


def given(name):
    layer = EVERY[name].built(dtype="float64")
    return layer, *EVERY[name].tensors(), EVERY[name].row(layer)


# Mechanisms of every kind of arithmetic, for other dtypes.
HALVES = ["bahdanau", "bahdanau, bias", "concat-local-p", "vector", "location", "monotonic, chunks"]
HALVES += ["gmm V2b", "heads, bahdanau"]


@pytest.mark.parametrize(("name", "dtype", "jit"), [
    *((name, "float64", False) for name in EVERY),
    *((name, dtype, False) for name in HALVES for dtype in helpers.DTYPES if dtype != "float64"),
    ("location", "float32", True),
    *(pytest.param(*x, marks=pytest.mark.exhaustive)
      for x in itertools.product(helpers.RECURRENT | helpers.HEADS, helpers.DTYPES, [False, True])),
])  # fmt: skip
def test_equals_the_paper(name, dtype, jit):
    # The density of a Gaussian magnifies the rounding errors of its centre, and may be above one.
    # Heads and attentional vectors are one more product.
    again = name.startswith(("gmm", "heads", "vector"))
    options = {"before": 1 if again else 0.5, "scaled": name.startswith("gmm")}
    helpers.assert_equals_the_paper(EVERY[name], dtype, jit, **options)


@pytest.mark.parametrize("name", [
    *fast([x for x in EVERY if "bahdanau" in x[:8]], ["bahdanau", "bahdanau, plain"]),
    *(name for name in EVERY if name.endswith("global")),
    *fast(helpers.RECURRENT, ["location", "forward, agent", "gmm V2b"]),
])  # fmt: skip
def test_gradients_are_those_of_the_paper(name):
    layer, *inputs, _ = given(name)

    def oracle(inputs, weights):
        return attend(EVERY[name].row(layer, weights), *inputs, **PAPER_MASKS)

    helpers.assert_gradients(layer, lambda *x: run(layer, *x, **PAPER_MASKS), inputs, oracle)


@few_mechanisms
def test_every_combination_of_masks_equals_the_oracle(name):
    layer, *inputs, row = given(name)
    for combination in itertools.product(*MASKS.values()):
        masks = dict(zip(MASKS, combination, strict=True))
        assert_all_close(run(layer, *inputs, **masks), attend(row, *inputs, **masks))


@pytest.mark.parametrize("name", [*FEW, "location", "heads, bahdanau"])
def test_the_key_is_the_value_if_not_given(name):
    layer = EVERY[name].built(dtype="float64", dk=EVERY[name].dk, dv=EVERY[name].dk)
    query, _, key = EVERY[name].tensors()
    assert_close(layer(query, key), numpy(layer(query, key, key)))
    assert_close(layer(query, key), attend(EVERY[name].row(layer), query, key)[0])


# docs/concepts/masks.md names these: a masked step between valid ones keeps its place.
COUNT_GAPS = "local", "location", "forward", "chunks", "gmm", "convolution", "vector", "windows"


@most_mechanisms
def test_masking_is_truncating_whatever_the_padding_holds(name):
    layer, *inputs, _ = given(name)
    middle = [] if any(x in name for x in COUNT_GAPS) else [3]

    def call(*inputs):
        return run(layer, *inputs[:-1], value_mask=inputs[-1])

    helpers.assert_masking_is_truncating(layer, call, inputs, [1, 2], [0, *middle, TK])


@most_mechanisms
def test_masked_queries_have_no_gradient_whatever_they_hold(name):
    layer, query, *memory, _ = given(name)
    spoiled = np.where(QUERY_MASK[..., None], query, np.nan)
    call = lambda *x: run(layer, *x, query_mask=QUERY_MASK)  # noqa: E731
    _, found = helpers.gradients(layer, call, (spoiled, *memory))
    assert all(np.isfinite(numpy(x)).all() for x in found)
    assert not numpy(found[0])[~QUERY_MASK].any()


@few_mechanisms
def test_no_memory_steps_and_no_samples(name):
    layer, query, value, key, row = given(name)
    for samples, steps in ((B, 1), (B, 0), (0, TK)):
        inputs = query[:samples], value[:samples, :steps], key[:samples, :steps]
        output, weights = layer(*inputs, return_attention_scores=True)
        whole = numpy(layer(query, value, key)).shape[-1]
        assert output.shape == (samples, TQ, whole)
        assert weights.shape == (samples, TQ, steps)
        if samples:
            assert_close(output, attend(row, *inputs)[0])


@most_mechanisms
def test_one_step_is_a_row_of_the_full_run(name):
    layer, query, value, key, _ = given(name)
    masks = {"query_mask": QUERY_MASK, "value_mask": VALUE_MASK, "attention_mask": OF_SAMPLES}
    whole = run(layer, query, value, key, **masks)
    memory, state = layer.prepare(value, key, VALUE_MASK), None
    for i in range(TQ):
        options = {"query_mask": QUERY_MASK[:, i], "attention_mask": OF_SAMPLES[:, i]}
        options |= {"position": i} if getattr(layer, "uses_position", False) else {}
        called = run(layer, query[:, i], value, key, value_mask=VALUE_MASK, **options)
        output, state, weights = layer.attend(query[:, i], memory, state, **options)
        # A call of one step is the first step of an attention with a state.
        for step in [(output, weights), *[called] * (i == 0 or state is None)]:
            assert_all_close(step, [x[:, i] for x in whole])


@pytest.mark.parametrize("make", [
    functools.partial(BahdanauAttention, 17),
    functools.partial(LuongAttention, "general", "local-p", half_width=2),
], ids=["bahdanau", "luong"])  # fmt: skip
def test_dropout(make):
    """With unit vectors as memory, the context shows which weights were read, and their scale."""
    query, value = normal(1, 211, TQ, DQ, dtype="float32"), np.tile(np.eye(TK), (211, 1, 1))

    def built():
        layer = make(seed=3, dropout=0.4)
        layer.build(query.shape, value.shape)
        return helpers.randomize(layer)

    context, weights = map(numpy, run(built(), query, value, training=True))
    inside = weights > 1e-6
    helpers.assert_drops(context[inside], weights[inside])
    assert np.abs(context[~inside]).max(initial=0) < 1e-5
    helpers.assert_dropout_is_for_training(built, [query, value])


@keras.saving.register_keras_serializable(package="test_scoring")
class Dot(ScoringMixin):
    def score(self, query, key):
        return ops.einsum("bqd,bkd->bqk", query, key)


class OwnBuild(Dot):  # without the mixin, it does not store the widths of its inputs
    def build(self, query_shape, value_shape):
        self.built = True

    @staticmethod
    def score(query, key):
        return Dot.score(None, query, key)


DOT = luong({}, "dot")


def test_a_custom_layer_needs_only_a_score(tmp_path):
    query, value = normal(1, B, TQ, DQ), normal(2, B, TK, DQ)
    for kind in (Dot, OwnBuild):
        found = run(kind(dtype="float64"), query, value, value_mask=VALUE_MASK)
        assert_all_close(found, attend(DOT, query, value, value_mask=VALUE_MASK))
    ids = np.array([[3, 1, 2], [2, 5, 4]])
    words = np.array([[1, 2, 2, 3, 4, 0, 0], [5, 4, 1, 0, 0, 0, 0]])
    inputs = [keras.Input((None,), dtype="int32") for _ in range(2)]
    embed = keras.layers.Embedding(7, DQ, mask_zero=True)
    attention = Dot(dropout=0.1, seed=2, normalizer="softmax", name="dot")
    model = keras.Model(inputs, run(attention, *map(embed, inputs)))
    before = model.predict([ids, words], verbose=0)
    expected = attend(DOT, numpy(embed(ids)), numpy(embed(words)), value_mask=words > 0)
    assert_all_close(before, expected, "float32")
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    for x, y in zip(before, loaded.predict([ids, words], verbose=0), strict=True):
        assert np.array_equal(x, y)
    assert loaded.get_layer("dot").get_config() == attention.get_config()


class Hooked(Dot):
    """Uses every hook: it triples queries, doubles keys, reverses weights and appends the query."""

    def project_query(self, query):
        return 3.0 * query

    def project_key(self, key):
        self.projections = getattr(self, "projections", 0) + 1
        return 2.0 * key

    def weigh(self, scores, mask):
        return ops.flip(super().weigh(scores, mask), axis=-1)

    def combine(self, query, context):
        return ops.concatenate([context, query], axis=-1)

    def output_size(self, query_size, value_size):
        return value_size + query_size


def hooked_row(query, keys, values, valid, allowed, position):
    a = np.exp(6.0 * keys @ query) * allowed
    a = a[::-1] / a.sum()
    return np.concatenate([a @ values, query]), a


def test_hooks():
    query, value, key = normal(1, B, TQ, DQ), normal(2, B, TK, helpers.DV), normal(3, B, TK, DQ)
    layer = Hooked(dtype="float64")
    found, expected = run(layer, query, value, key), attend(hooked_row, query, value, key)
    assert layer.projections == 1
    assert_all_close(found, expected)
    shape = layer.compute_output_shape(query.shape, value.shape, key.shape)
    assert shape == expected[0].shape
    memory = layer.prepare(value, key)
    for i in range(TQ):
        assert_close(layer.attend(query[:, i], memory)[0], expected[0][:, i])
    assert layer.projections == 2


def test_masked_queries_give_zeros_whatever_the_last_hook_makes_of_them():
    class Shifted(Dot):
        def combine(self, query, context):
            # A masked query is zero when it comes here.
            empty = ops.all(query == 0, axis=-1, keepdims=True)
            return ops.where(empty, ops.full_like(context, np.nan), context)

    query, value = normal(1, B, TQ, DQ), normal(2, B, TK, DQ)
    layer = Shifted(dtype="float64")
    expected = attend(DOT, query, value)[0] * QUERY_MASK[..., None]
    assert_close(layer(query, value, query_mask=QUERY_MASK), expected)
    for i in range(TQ):
        step = layer(query[:, i], value, query_mask=QUERY_MASK[:, i])
        assert_close(step, expected[:, i])


X = np.ones((2, 3, 5), "float32")
VALUES, STEPS = "must return floating-point values of shape (2, 3, 3)", "of shape (2, 3, features)"
MISTAKEN_HOOKS = [
    ({"score": lambda self, query, key: keras.ops.ones((2, 3, 3), "int32")},
     f"`score` {VALUES}; received int32 of shape (2, 3, 3)."),
    ({"score": lambda self, query, key: keras.ops.sum(query, axis=-1)}, f"`score` {VALUES}; rec"),
    ({"weigh": lambda self, scores, mask: scores[..., :1]},
     f"`weigh` {VALUES}; received float32 of shape (2, 3, 1)."),
    ({"weigh": lambda self, scores, mask: None}, "`weigh`", "received None."),
    ({"project_query": lambda self, query: query[:, 0]},
     f"`project_query` must return floating-point values {STEPS}; received float32 of shape "
     "(2, 5)."),
    ({"project_key": lambda self, key: None},
     f"`project_key` must return floating-point values {STEPS}; received None."),
    ({"__init__": lambda self: None},
     "Mistaken: the constructor of the mixin has not run. Begin __init__ with "
     "super().__init__(**kwargs)."),
]  # fmt: skip


@pytest.mark.parametrize("mistake", MISTAKEN_HOOKS, ids=lambda x: str([*x[0]]))
def test_what_hooks_return(mistake):
    hooks, *fragments = mistake
    mistaken = type("Mistaken", (Dot,), hooks)
    helpers.assert_refused(lambda: mistaken()(X, X), *fragments)
    start = fragments[0].split(" of shape")[0].split(", here")[0]
    helpers.assert_refused(lambda: AttentionRNN(keras.layers.GRUCell(5), mistaken())(X, X), start)


def test_hooks_that_take_too_little_or_are_none():
    for hooks, message in (
        ({"score": lambda self, query: query},
         r"must define score\(self, query, key\); found score\(self, query\)"),
        ({"build": lambda self, input_shape: None},
         r"must define build\(self, query_shape, value_shape, key_shape\); found build\(self, "),
        # Calls and decoders would not use these.
        *(({name: lambda self: None}, f"Mistaken: `{name}` is no hook.* Override one of score, ")
          for name in ("prepare", "attend")),
    ):  # fmt: skip
        with pytest.raises(TypeError, match=message):
            type("Mistaken", (Dot,), hooks)

    with pytest.raises(NotImplementedError, match=r"Forgetful must define score\(query, key\)"):
        type("Forgetful", (ScoringMixin,), {})()(X, X)


def test_a_wrong_window_is_refused():
    for window, given in (
        (lambda q: Window(q[..., :1], 3), "float32 of shape (2, 3, 1)"),
        (lambda q: Window(keras.ops.cast(q[..., 0], "int32"), 3), "half_width=3, center=int32"),
        (lambda q: Window(q[..., 0], 3.0), "half_width=3.0"),
        (lambda q: Window(q[..., 0], -1), "half_width=-1"),
        (lambda q: (q[..., 0], 3), "center=(float32"),
    ):
        hooks = {"window": lambda self, query, memory, position, f=window: f(query)}
        windowed = type("Windowed", (Dot,), hooks)
        message = "`window` must return None or Window(center, half_width)"
        helpers.assert_refused(lambda x=windowed: x()(X, X), message, given)
    helpers.assert_refused(lambda: windowed()(keras.Input((3, 5)), keras.Input((7, 5))), message)


@pytest.mark.parametrize("dtype", ["float32", "mixed_bfloat16"])
def test_the_center_of_a_window_may_have_any_dtype(dtype):
    class BfloatWindow(Dot):
        def window(self, query, memory, position):
            center = ops.full(ops.shape(query)[:2], 1000, "bfloat16")
            return Window(center, 1, gaussian=True)

    query, value = np.ones((1, 2, 5)), np.ones((1, 1300, 5))
    _, weights = BfloatWindow(dtype=dtype)(query, value, return_attention_scores=True)
    expected = np.zeros((1, 2, 1300))
    expected[..., 999:1002] = np.exp([-2.0, 0.0, -2.0]) / 3
    assert_close(weights, expected, dtype)


STEP, NOT_BUILT = {"query": (B, DQ), "value": (B, TK, 2)}, BahdanauAttention(17, name="mine")
test_refusals = helpers.refusals(
    *((lambda x=x: type("Both", (Dot,), {"combine": Hooked.combine})()(x, x),
       "`combine` must return floating-point values of shape", "3, 10). Override output_size")
      for x in (keras.Input((3, 5)), X)),
    *((lambda symbolic=symbolic: BahdanauAttention(17)(
        **helpers.arguments(STEP, symbolic), use_causal_mask=True),
       "`use_causal_mask=True` needs a query of rank 3", "received one step, (2, 5)")
      for symbolic in (False, True)),
    (lambda: NOT_BUILT.prepare(np.ones((B, TK, 2))), "mine", "no weights yet", "prepare()"),
    (lambda: NOT_BUILT.compute_output_spec(*[keras.KerasTensor((B, TK, 2))] * 2),
     "no weights yet"),
    (lambda: AttentionRNN(
        keras.layers.GRUCell(5), type("Wrong", (Dot,), {"decoder_query": "curent"})(name="mine")),
     "mine: `decoder_query` must be one of 'previous', 'current'; received 'curent'."),
)  # fmt: skip


def test_an_argument_that_cannot_be_saved_is_refused():
    class Scaled(Dot):
        def __init__(self, scale=1.0, **kwargs):
            super().__init__(**kwargs)
            self._scale = scale

    class Saved(Scaled):
        def get_config(self):
            return {**super().get_config(), "scale": self._scale}

    helpers.assert_refused(Scaled(3.0).get_config, "`scale` cannot be saved", "self.scale = scale")
    assert Saved.from_config(Saved(3.0).get_config())._scale == 3
