"""Every public layer, in its important configurations, times every duty of a Keras layer.

A new layer joins by entries in CASES; a test fails until it and each of its arguments are there.
"""

import inspect
import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import keras
import numpy as np
import pytest
import tensorflow as tf
from helpers import assert_close, gradients, normal, numpy, randomize
from keras import layers, tree

import keras_attention
from keras_attention import (
    AttentionPooling,
    AttentionRNN,
    BahdanauAttention,
    BiDAFAttentionFlow,
    HierarchicalAttention,
    LuongAttention,
    MemoryHop,
    MemoryNetwork,
)

VOCABULARY = 9


@dataclass(frozen=True)
class Argument:
    """A call argument: `steps` of `features`, embedded words with a mask; no steps, no mask.

    Of several numbers of steps the last is of words, those before it of groups of them. Without
    features the layer takes the ids themselves, and knows padding by the id 0.
    """

    name: str
    steps: tuple
    features: int | None

    @property
    def size(self):
        return () if self.features is None else (self.features,)

    @property
    def dtype(self):
        return "int32" if self.features is None else "float32"


@dataclass(frozen=True)
class Case:
    layer: type
    options: dict
    arguments: tuple
    # Of each tensor of weights, without the batch.
    scores: tuple
    # Arguments that are layers, made anew in the dtype of the case.
    parts: dict[str, Callable] = field(default_factory=dict)
    # The argument whose mask may forbid to read anything.
    memory: str = "value"
    # Whether the output is then zero.
    reads_zeros: bool = True
    # The argument whose mask the output has.
    masked_like: str | None = None
    # Whether the number of steps must be known, as in an unrolled loop.
    fixed: bool = False
    # Of random weights and inputs: smaller where numbers grow, as without a softmax.
    scale: float = 1.0

    def make(self, dtype="float32"):
        parts = {name: make(dtype) for name, make in self.parts.items()}
        return self.layer(**self.options, **parts, dtype=dtype)

    def mask_of(self, argument):
        """What the mask of a call argument is called; None where there is none."""
        known = inspect.signature(self.layer.call).parameters
        return next((name for name in (f"{argument}_mask", "mask") if name in known), None)

    def shapes(self, batch, known=True):
        return [
            (batch, *(step if known or self.fixed else None for step in a.steps), *a.size)
            for a in self.arguments
        ]

    def tensors(self, batch):
        """What the layer itself is called on, nothing of it padding."""
        return [
            np.random.default_rng(n).integers(1, VOCABULARY, shape).astype(argument.dtype)
            if argument.features is None
            else (self.scale * normal(n, *shape, dtype=argument.dtype)).astype(argument.dtype)
            for n, (argument, shape) in enumerate(
                zip(self.arguments, self.shapes(batch), strict=True)
            )
        ]

    def symbols(self):
        shapes = self.shapes(None, known=False)
        return [
            keras.Input(batch_shape=shape, dtype=argument.dtype)
            for argument, shape in zip(self.arguments, shapes, strict=True)
        ]

    def built(self, dtype="float32"):
        layer = self.make(dtype)
        layer.build(*self.shapes(None, known=False))
        return randomize(layer, scale=0.5 * self.scale)

    def model(self, batch=None, dtype="float32", scores=True, then=None):
        """From words to all that the layer returns, in a flat list, or to `then` of the first."""
        keras.utils.set_random_seed(7)
        inputs, tensors = [], []
        shapes = self.shapes(batch, known=batch is not None)
        for argument, shape in zip(self.arguments, shapes, strict=True):
            name = f"{argument.name}_in"
            if argument.steps and argument.size:
                inputs.append(keras.Input(batch_shape=shape[:-1], dtype="int32", name=name))
                embed = layers.Embedding(VOCABULARY, argument.features, mask_zero=True)
                tensors.append(embed(inputs[-1]))
            else:
                inputs.append(keras.Input(batch_shape=shape, dtype=argument.dtype, name=name))
                tensors.append(inputs[-1])
        layer = self.make(dtype)
        outputs = tree.flatten(layer(*tensors, return_attention_scores=scores))
        model = keras.Model(inputs, outputs if then is None else then(outputs[0]))
        return randomize(model, scale=0.5 * self.scale)

    def inputs(self, batch, more=0):
        """Words, 0 as padding behind, each sequence with at least one; `more` steps than usual."""
        rng, made = np.random.default_rng(batch), []
        for argument in self.arguments:
            if not argument.steps:
                made.append(normal(batch, batch, argument.features).astype("float32"))
                continue
            steps = tuple(step + (0 if self.fixed else more) for step in argument.steps)
            words = rng.integers(1, VOCABULARY, (batch, *steps)).astype("int32")
            for axis, step in enumerate(steps):
                # Of groups too some are padding, each document with at least one.
                lengths = rng.integers(1, step + 1, (batch, *steps[:axis], 1))
                kept = np.arange(step) < lengths
                words *= np.expand_dims(kept, tuple(range(axis + 2, words.ndim)))
            made.append(words)
        return made


def cell(kind, units, **kwargs):
    kwargs["recurrent_initializer"] = "glorot_uniform"
    return lambda dtype: kind(units, dtype=dtype, **kwargs)


def cells(*makers):
    return lambda dtype: [make(dtype) for make in makers]


def part(kind, *args, **kwargs):
    return lambda dtype: kind(*args, **kwargs, dtype=dtype)


def both_ways(units):
    def make(dtype):
        gru = cell(layers.GRU, units, return_sequences=True)(dtype)
        return layers.Bidirectional(gru, dtype=dtype)

    return make


def functional(units, features):
    def make(dtype):
        inputs = keras.Input((None, features), dtype=keras.DTypePolicy(dtype).compute_dtype)
        return keras.Model(inputs, layers.Dense(units, "tanh", dtype=dtype)(inputs))

    return make


def sequential(*makers):
    return lambda dtype: keras.Sequential([make(dtype) for make in makers])


TQ, TK, DQ, DV = 3, 7, 5, 11
QUERY, STEP = Argument("query", (TQ,), DQ), Argument("query", (), DQ)
VALUE = Argument("value", (TK,), DV)
CONTEXT, QUESTION = Argument("context", (TK,), DQ), Argument("query", (TQ,), DQ)
SEQUENCES, MEMORY = Argument("sequences", (TQ,), DQ), Argument("memory", (TK,), DV)
STORY, ASKED = Argument("story", (5, 7), None), Argument("question", (3,), None)
WORDS, SENTENCES = Argument("inputs", (TK,), DV), Argument("inputs", (TQ, TK), DQ)

CASES = {
    "bahdanau with keys": Case(
        BahdanauAttention,
        {"units": 13},
        (QUERY, VALUE, Argument("key", (TK,), 2)),
        ((TQ, TK),),
        masked_like="query",
    ),
    "bahdanau, all options": Case(
        BahdanauAttention,
        {
            "units": 13,
            "use_bias": True,
            "weight_norm": True,
            "normalizer": "sparsemax",
            "dropout": 0.2,
            "seed": 3,
        },
        (QUERY, VALUE),
        ((TQ, TK),),
        masked_like="query",
    ),
    "bahdanau, one step": Case(BahdanauAttention, {"units": 13}, (STEP, VALUE), ((TK,),)),
    "luong general": Case(
        LuongAttention, {"score_mode": "general"}, (QUERY, VALUE), ((TQ, TK),), masked_like="query"
    ),
    "luong concat local-m": Case(
        LuongAttention,
        {"score_mode": "concat", "alignment": "local-m", "half_width": 2},
        (QUERY, VALUE),
        ((TQ, TK),),
        masked_like="query",
    ),
    "luong location, one step": Case(
        LuongAttention, {"score_mode": "location", "max_length": 17}, (STEP, VALUE), ((TK,),)
    ),
    "luong dot local-p, all options": Case(
        LuongAttention,
        {
            "score_mode": "dot",
            "alignment": "local-p",
            "half_width": 2,
            "units": 13,
            "normalizer": "sparsemax",
            "dropout": 0.2,
            "seed": 3,
        },
        (QUERY, Argument("value", (TK,), DQ)),
        ((TQ, TK),),
        masked_like="query",
        reads_zeros=False,
    ),
    "flow": Case(
        BiDAFAttentionFlow,
        {},
        (CONTEXT, QUESTION),
        ((TK, TQ), (TK,)),
        memory="query",
        masked_like="context",
        reads_zeros=False,
    ),
    "flow, context to query, all options": Case(
        BiDAFAttentionFlow,
        {"query_to_context": False, "normalizer": "sparsemax", "dropout": 0.2, "seed": 3},
        (CONTEXT, QUESTION),
        ((TK, TQ),),
        memory="query",
        masked_like="context",
        reads_zeros=False,
    ),
    "flow, query to context": Case(
        BiDAFAttentionFlow,
        {"context_to_query": False},
        # Where one step of the query wins every maximum, query_vector has no gradient: more steps.
        (Argument("context", (13,), DQ), Argument("query", (11,), DQ)),
        ((13, 11), (13,)),
        memory="query",
        masked_like="context",
        reads_zeros=False,
    ),
    "decoder": Case(
        AttentionRNN,
        {"query": "previous", "output_mode": "attention"},
        (SEQUENCES, MEMORY),
        ((TQ, TK),),
        {"cell": cell(layers.GRUCell, 13), "attention": part(BahdanauAttention, 2)},
        memory="memory",
        masked_like="sequences",
    ),
    "decoder, stacked, input feeding": Case(
        AttentionRNN,
        {"query": "current", "input_feeding": True, "output_mode": "concat", "return_state": True},
        (SEQUENCES, MEMORY),
        ((TQ, TK),),
        {
            "cell": cells(cell(layers.LSTMCell, 13), cell(layers.GRUCell, 2)),
            "attention": part(LuongAttention, "general", "local-p", half_width=2, units=13),
        },
        memory="memory",
        reads_zeros=False,
        masked_like="sequences",
    ),
    "decoder, unrolled": Case(
        AttentionRNN,
        {"query": "current", "unroll": True, "return_state": True},
        (SEQUENCES, MEMORY),
        ((TQ, TK),),
        {
            "cell": cell(layers.LSTMCell, 13),
            "attention": part(LuongAttention, "concat", "local-m", half_width=2),
        },
        memory="memory",
        masked_like="sequences",
        fixed=True,
    ),
    "pooling": Case(AttentionPooling, {"units": 13}, (WORDS,), ((TK,),), memory="inputs"),
    "pooling, all options": Case(
        AttentionPooling,
        {"units": 13, "normalizer": "sparsemax", "dropout": 0.2, "seed": 3},
        (WORDS,),
        ((TK,),),
        memory="inputs",
    ),
    "hierarchical": Case(
        HierarchicalAttention,
        {"units": 13},
        (SENTENCES,),
        ((TQ, TK), (TQ,)),
        memory="inputs",
    ),
    "hierarchical, all options": Case(
        HierarchicalAttention,
        {
            "units": 13,
            "sentence_units": 2,
            "normalizer": "sparsemax",
            "dropout": 0.2,
            "seed": 3,
        },
        (SENTENCES,),
        ((TQ, TK), (TQ,)),
        {"word_encoder": both_ways(2), "sentence_encoder": both_ways(3)},
        memory="inputs",
    ),
    "hierarchical, models as encoders": Case(
        HierarchicalAttention,
        {"units": 13},
        (SENTENCES,),
        ((TQ, TK), (TQ,)),
        {
            "word_encoder": functional(2, DQ),
            "sentence_encoder": sequential(
                part(layers.Dense, 11, "tanh"), cell(layers.GRU, 3, return_sequences=True)
            ),
        },
        memory="inputs",
    ),
    "memory hop": Case(
        MemoryHop,
        {"update": "add"},
        (STEP, Argument("value", (TK,), DQ), Argument("key", (TK,), DQ)),
        ((TK,),),
        reads_zeros=False,
    ),
    "memory hop, all options": Case(
        MemoryHop,
        {
            "update": "linear",
            "normalizer": "sparsemax",
            "dropout": 0.2,
            "seed": 3,
        },
        (QUERY, Argument("value", (TK,), DQ)),
        ((TQ, TK),),
        masked_like="query",
        reads_zeros=False,
        scale=0.25,
    ),
    "memory network": Case(
        MemoryNetwork,
        {"vocabulary_size": VOCABULARY, "units": 13},
        (STORY, ASKED),
        ((3, 5),),
        memory="story",
        reads_zeros=False,
        scale=0.2,
    ),
    "memory network, all options": Case(
        MemoryNetwork,
        {
            "vocabulary_size": VOCABULARY,
            "units": 13,
            "hops": 2,
            "tying": "layerwise",
            "position_encoding": 4,
            "memory_size": 4,
            "null_memories": True,
        },
        (STORY, ASKED),
        ((2, 5),),
        memory="story",
        reads_zeros=False,
        scale=0.2,
    ),
}
every_case = pytest.mark.parametrize("case", CASES.values(), ids=CASES)


def public_layers():
    exported = (getattr(keras_attention, name) for name in keras_attention.__all__)
    return {x for x in exported if inspect.isclass(x) and issubclass(x, keras.layers.Layer)}


def arguments_of(layer):
    own = layer.__mro__[: layer.__mro__.index(keras.layers.Layer)]
    names = {name for c in own for name in inspect.signature(c.__init__).parameters}
    return names - {"self", "args", "kwargs"}


def test_every_public_layer_is_in_the_table():
    assert public_layers() == {case.layer for case in CASES.values()}


@pytest.mark.parametrize("layer", sorted(public_layers(), key=lambda layer: layer.__name__))
def test_every_argument_is_in_the_table(layer):
    cases = [case for case in CASES.values() if case.layer is layer]
    assert arguments_of(layer) == {name for case in cases for name in (*case.options, *case.parts)}


@every_case
def test_config(case):
    layer = case.make()
    config = layer.get_config()
    assert arguments_of(case.layer) <= set(config)
    assert {name: config[name] for name in case.options} == case.options
    twin = case.layer.from_config(config)
    assert type(twin) is case.layer
    text = json.dumps(keras.saving.serialize_keras_object(layer))
    again = keras.saving.deserialize_keras_object(json.loads(text))
    for copy in (twin, again):
        assert json.dumps(keras.saving.serialize_keras_object(copy)) == text
    for name in case.parts:
        assert type(getattr(again, name)) is type(getattr(layer, name))


def flat_shapes(shapes):
    """A shape, or a list of them, nested for stacked cells."""
    if isinstance(shapes, tuple) and not (shapes and isinstance(shapes[0], (tuple, list))):
        return [shapes]
    return [flat for shape in shapes for flat in flat_shapes(shape)]


@every_case
def test_compute_output_shape(case):
    layer = case.built()
    tensors = case.tensors(2)
    result = layer(*tensors)
    assert layer.compute_output_shape(*case.shapes(2)) == tree.map_structure(
        lambda x: tuple(x.shape), result
    )
    outputs = tree.flatten(layer(*case.symbols(), return_attention_scores=True))
    unknown = flat_shapes(layer.compute_output_shape(*case.shapes(None, known=False)))
    assert [tuple(x.shape) for x in outputs[: -len(case.scores)]] == unknown
    for output, shape in zip(outputs[-len(case.scores) :], case.scores, strict=True):
        assert len(output.shape) == 1 + len(shape)
    actual = tree.flatten(layer(*tensors, return_attention_scores=True))[-len(case.scores) :]
    assert [tuple(x.shape) for x in actual] == [(2, *shape) for shape in case.scores]


@every_case
# The first finds inputs that are not cast, the second weights.
@pytest.mark.parametrize("policy", ["float64", "mixed_float16"])
def test_compute_output_spec(case, policy):
    """Called directly, where Keras casts no inputs, it tells the shapes and dtypes of a call."""
    layer = case.built(policy)
    called = layer(*case.symbols(), return_attention_scores=True)
    for dtype in ("float32", layer.compute_dtype):
        symbols = [
            keras.KerasTensor(x.shape, x.dtype if x.dtype == "int32" else dtype)
            for x in case.symbols()
        ]
        told = layer.compute_output_spec(*symbols, return_attention_scores=True)
        tree.assert_same_structure(told, called)
        for x, y in zip(tree.flatten(told), tree.flatten(called), strict=True):
            assert (x.shape, x.dtype) == (y.shape, y.dtype)


def levels(mask):
    """The mask of words, that of groups with a word in them, and so on."""
    while mask.ndim > 1:
        yield mask
        mask = mask.any(axis=-1)


@every_case
def test_symbolic_calls_and_masks_from_embeddings(case):
    """A functional model of unknown sizes is the layer called on arrays and explicit masks."""
    model = case.model()
    layer = next(x for x in model.layers if type(x) is case.layer)
    for batch, more in ((2, 0), (3, 5)):
        inputs = case.inputs(batch, more)
        embeddings = (x for x in model.layers if isinstance(x, layers.Embedding))
        tensors, masks, words = [], {}, []
        for argument, x in zip(case.arguments, inputs, strict=True):
            embedded = argument.steps and argument.size
            tensors.append(numpy(next(embeddings)(x)) if embedded else x)
            if argument.steps and (not argument.size or case.mask_of(argument.name)):
                words.append(x != 0)
            if embedded and case.mask_of(argument.name):
                masks[case.mask_of(argument.name)] = x != 0
        expected = tree.flatten(layer(*tensors, **masks, return_attention_scores=True))
        result = model.predict_on_batch(inputs)
        for x, y in zip(result, expected, strict=True):
            assert_close(x, numpy(y), "float32")
        for weights in result[-len(case.scores) :]:
            # No two axes are of one length, so that it tells which one the weights go over.
            every = [level for mask in words for level in levels(mask)]
            over = [mask for mask in every if mask.shape[-1] == weights.shape[-1]]
            assert len(over) == 1
            padding = ~over[0]
            hidden = padding[:, None] if weights.ndim > padding.ndim else padding
            assert not weights[np.broadcast_to(hidden, weights.shape)].any()


class Probe(layers.Layer):
    """Puts out the mask it is given."""

    supports_masking = True

    def call(self, inputs, mask=None):
        self.masked = mask is not None
        return keras.ops.cast(mask, "int32") if self.masked else keras.ops.zeros((1,))


@every_case
def test_the_output_is_masked_like(case):
    probe = Probe()
    model = case.model(then=probe)
    assert probe.masked == (case.masked_like is not None)
    if probe.masked:
        inputs = case.inputs(5)
        like = inputs[[argument.name for argument in case.arguments].index(case.masked_like)]
        assert np.array_equal(model.predict_on_batch(inputs), like != 0)
        assert (like == 0).any()


BLOCKED = """
import json, pathlib, sys

# What is None here cannot be imported.
sys.modules.update({"keras": None, "keras_attention": None})
import numpy as np, tensorflow as tf

root, found = pathlib.Path(sys.argv[1]), {}
for case in sorted(root.glob("*/saved")):
    arrays = np.load(case.parent / "data.npz")
    inputs = [tf.constant(arrays[n]) for n in sorted(arrays) if n.startswith("input")]
    module = tf.saved_model.load(case)
    outputs = tf.nest.flatten(module.serve(inputs))
    found[case.parent.name] = [
        float(np.abs(x.numpy() - arrays[f"output{n}"]).max()) for n, x in enumerate(outputs)
    ]
assert sys.modules["keras"] is sys.modules["keras_attention"] is None
print(json.dumps(found))
"""

JAX = """
import json, pathlib, sys, traceback
import keras, keras_attention, numpy as np

def check(folder):
    arrays = np.load(folder / "data.npz")
    inputs = [arrays[n] for n in sorted(arrays) if n.startswith("input")]
    model = keras.saving.load_model(folder / "model.keras")
    outputs = [np.asarray(x) for x in model.predict_on_batch(inputs)]
    errors = [float(np.abs(x - arrays[f"output{n}"]).max()) for n, x in enumerate(outputs)]
    training = keras.Model(model.inputs, model.outputs[0])
    training.compile(keras.optimizers.SGD(0.1), "mse", jit_compile=True)
    before = [np.array(w) for w in training.trainable_weights]
    training.train_on_batch(inputs, np.ones_like(outputs[0]))
    moved = [np.asarray(w) - old for w, old in zip(training.trainable_weights, before)]
    return errors, all(np.isfinite(x).all() and x.any() for x in moved)

assert keras.backend.backend() == "jax"
found = {}
for folder in sorted(pathlib.Path(sys.argv[1]).iterdir()):
    try:
        found[folder.name] = check(folder)
    except Exception:
        found[folder.name] = traceback.format_exc()
print(json.dumps(found))
"""


def in_subprocess(script, root, **environment):
    """What a script prints at the end, of all the models saved under `root`."""
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1]), **environment}
    done = subprocess.run(
        [sys.executable, "-c", script, str(root)],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.fixture(scope="module")
def saved(tmp_path_factory):
    """Every case as `.keras` and as SavedModel, beside inputs of another size and the outputs."""
    root = tmp_path_factory.mktemp("saved")
    for name, case in CASES.items():
        folder = root / name
        model, inputs = case.model(), case.inputs(3, more=5)
        outputs = model.predict_on_batch(inputs)
        model.save(folder.with_suffix(".keras"))
        folder.mkdir()
        folder.with_suffix(".keras").rename(folder / "model.keras")
        model.export(folder / "saved", verbose=False)
        arrays = {f"input{n}": x for n, x in enumerate(inputs)}
        np.savez(folder / "data.npz", **arrays, **{f"output{n}": x for n, x in enumerate(outputs)})
    return root


@pytest.fixture(scope="module")
def served(saved):
    return in_subprocess(BLOCKED, saved)


@pytest.fixture(scope="module")
def run_by_jax(saved):
    return in_subprocess(JAX, saved, KERAS_BACKEND="jax", JAX_PLATFORMS="cpu")


@pytest.mark.parametrize("name", CASES)
def test_saving_and_loading(name, saved):
    model = keras.saving.load_model(saved / name / "model.keras")
    arrays = np.load(saved / name / "data.npz")
    inputs = [arrays[n] for n in sorted(arrays) if n.startswith("input")]
    for n, output in enumerate(model.predict_on_batch(inputs)):
        assert np.array_equal(output, arrays[f"output{n}"])


@pytest.mark.parametrize("name", CASES)
def test_serving_without_keras(name, served):
    errors = served[name]
    assert len(errors) == len(CASES[name].model().outputs)
    assert max(errors) <= 1e-6


@pytest.mark.parametrize("name", CASES)
def test_jax(name, request):
    pytest.importorskip("jax", reason="JAX is not installed")
    result = request.getfixturevalue("run_by_jax")[name]
    assert isinstance(result, list), result
    errors, trained = result
    assert len(errors) == len(CASES[name].model().outputs)
    assert max(errors) <= 2e-6
    assert trained


@every_case
def test_cloning(case):
    model, inputs = case.model(), case.inputs(5)
    clone = keras.models.clone_model(model)
    assert [w.shape for w in clone.weights] == [w.shape for w in model.weights]
    clone.set_weights(model.get_weights())
    for x, y in zip(clone.predict_on_batch(inputs), model.predict_on_batch(inputs), strict=True):
        assert np.array_equal(x, y)


@every_case
@pytest.mark.parametrize("jit", [False, True], ids=["graph", "jit"])
@pytest.mark.parametrize("static", [False, True], ids=["dynamic", "static"])
def test_training(case, jit, static):
    """Of unknown sizes the model also takes a smaller last batch, of longer sequences."""
    model = case.model(batch=4 if static else None)
    training = keras.Model(model.inputs, model.outputs[0])
    training.compile(keras.optimizers.SGD(0.1), "mse", jit_compile=jit)
    for inputs in (case.inputs(4), case.inputs(3, more=2))[: 1 if static else 2]:
        before = [numpy(w) for w in training.trainable_weights]
        loss = training.train_on_batch(inputs, np.ones(training(inputs).shape))
        assert np.isfinite(loss)
        for old, new in zip(before, training.trainable_weights, strict=True):
            assert np.isfinite(numpy(new)).all(), new.path
            assert not np.array_equal(old, numpy(new)), new.path


@every_case
@pytest.mark.parametrize("policy", ["mixed_bfloat16", "mixed_float16"])
def test_mixed_precision(case, policy):
    mixed, plain = case.built(policy), case.built()
    tolerance = 5e-2 if policy == "mixed_bfloat16" else 5e-3
    # Switches, such as that of a linear start, are boolean.
    assert {weight.dtype for weight in mixed.weights} <= {"float32", "bool"}
    tensors = case.tensors(2)
    outputs, expected = (
        tree.flatten(layer(*tensors, return_attention_scores=True)) for layer in (mixed, plain)
    )
    for x, y in zip(outputs, expected, strict=True):
        assert x.dtype.name == policy.removeprefix("mixed_")
        np.testing.assert_allclose(numpy(x), numpy(y), rtol=0, atol=tolerance)
    outputs = tree.flatten(mixed(*case.symbols(), return_attention_scores=True))
    assert all(x.dtype == mixed.compute_dtype for x in outputs)


def read_nothing(case, dtype, jit):
    """Outputs and gradients where the first sample has no memory, the second one step of it."""
    layer, tensors = case.built(dtype), case.tensors(3)
    names = [argument.name for argument in case.arguments]
    memory = case.arguments[names.index(case.memory)]
    mask = np.ones((3, *memory.steps), bool)
    mask[0], mask[1, 1:] = False, False
    # Of ids padding is the mask, and there are no gradients.
    masks = {case.mask_of(case.memory): mask} if memory.size else {}
    if not memory.size:
        tensors[names.index(case.memory)] *= mask
    ids = {a.name: x for a, x in zip(case.arguments, tensors, strict=True) if not a.size}
    floats = {a.name: x for a, x in zip(case.arguments, tensors, strict=True) if a.size}

    def call(*tensors):
        named = dict(zip(floats, tensors, strict=True))
        return tree.flatten(layer(**ids, **named, **masks, return_attention_scores=True))

    inputs = [tf.cast(x, layer.compute_dtype) for x in floats.values()]
    outputs, found = gradients(layer, call, inputs, jit)
    outputs, found = [numpy(x) for x in outputs], [numpy(x) for x in found]
    for weights in outputs[-len(case.scores) :]:
        assert not weights[0].any()
        assert weights[2].any()
    if case.reads_zeros:
        assert not outputs[0][0].any()
    assert outputs[0][2].any()
    assert all(np.isfinite(x).all() for x in (*outputs, *found))
    return outputs, found


HALVES = ["bfloat16", "float16", "mixed_bfloat16", "mixed_float16"]


@every_case
@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("jit", [False, True], ids=["eager", "jit"])
def test_nothing_valid_reads_zero_with_finite_gradients(case, dtype, jit):
    read_nothing(case, dtype, jit)


@every_case
def test_jit_calculates_the_same(case):
    outputs, found = read_nothing(case, "float32", jit=False)
    fast_outputs, fast_found = read_nothing(case, "float32", jit=True)
    for x, y in zip(fast_outputs, outputs, strict=True):
        np.testing.assert_allclose(x, y, rtol=0, atol=2e-6)
    for x, y in zip(fast_found, found, strict=True):
        np.testing.assert_allclose(x, y, rtol=1e-4, atol=1e-5)
