"""The pointer-generator against loops, and numbers for the words that a vocabulary lacks."""

import numpy as np
import pytest
from keras import ops

from keras_attention.seq2seq import ExtendedVocabulary, PointerGenerator
from tests import helpers
from tests.backends import dtypes, on_tensorflow, tensor
from tests.helpers import assert_close, gradients, normal, numpy, randomize, refusals, weight_arrays
from tests.seq2seq.cases import softmax

B, T, TK, H, D, E, V, X = 2, 3, 8, 5, 3, 7, 4, 2
# Every extra word occurs, and token 3 and an extra word twice.
SOURCE = np.array([[3, 4, 0, 3, 5, 2, 1, 4], [5, 1, 4, 2, 5, 3, 3, 0]])
every_width = pytest.mark.parametrize("units", [None, 2])


def built(**options):
    layer = PointerGenerator(V, X, **{"dtype": "float64", **options})
    layer.build((None, None, H), (None, None, D), (None, None, E))
    return randomize(layer)


def tensors(dtype="float64"):
    """Outputs, contexts, inputs and scores."""
    sizes = H, D, E, TK
    return [normal([2, n], B, T, size, dtype=dtype) for n, size in enumerate(sizes)]


def run(layer, output, context, inputs, scores, source=SOURCE):
    weights = ops.softmax(scores)
    read = {"context": context, "inputs": inputs, "weights": weights}
    return layer(output, **read, source=tensor(source, "int32"))


def paper(layer, output, context, inputs, scores, weights):
    """The probabilities of every step."""
    names = ["/".join(x.path.split("/")[-2:]) for x in layer.trainable_weights]
    named = dict(zip(names, weights, strict=True))

    def dense(name, *x):
        return np.concatenate(x) @ named[f"{name}/kernel"] + named[f"{name}/bias"]

    found = np.zeros((B, T, V + X))
    for b, i in np.ndindex(B, T):
        both = output[b, i], context[b, i]
        gate = 1 / (1 + np.exp(-dense("gate", *both, inputs[b, i])[0]))
        found[b, i, :V] = gate * softmax(dense("logits", dense("hidden", *both)))
        for word, share in zip(SOURCE[b], softmax(scores[b, i]), strict=True):
            found[b, i, word] += (1 - gate) * share
    return found


@every_width
@pytest.mark.parametrize("dtype", ["float64", "float32", "mixed_bfloat16", "mixed_float16"])
@pytest.mark.each_value
def test_equals_the_paper(units, dtype):
    layer, inputs = built(units=units, dtype=dtype), tensors()
    given = [ops.cast(x, layer.compute_dtype) for x in inputs]
    found = run(layer, *given)
    assert dtypes(found) == [layer.log_dtype]
    expected = paper(layer, *inputs, weight_arrays(layer))
    # Inputs and weights are rounded too.
    assert_close(np.exp(numpy(found)), expected, dtype, before=1.5)
    # Half-precision weights sum to one no better.
    assert_close(np.exp(numpy(found)).sum(-1), np.ones((B, T)), dtype, times=0.5)
    steps = [run(layer, *(x[:, i] for x in given)) for i in range(T)]
    assert_close(ops.stack(steps, axis=1), numpy(found), layer.log_dtype)


@every_width
@pytest.mark.parametrize("jit", [False, True], ids=["eager", "jit"])
@pytest.mark.each_value
def test_gradients(units, jit):
    layer = built(units=units)
    oracle = lambda inputs, weights: [np.log(paper(layer, *inputs, weights))]  # noqa: E731
    helpers.assert_gradients(layer, lambda *x: [run(layer, *x)], tensors(), oracle, jit=jit)


@pytest.mark.parametrize("dtype", ["float32", "mixed_float16"])
def test_nothing_to_copy(dtype):
    """Without a valid position the token is generated; words of no source are improbable."""
    layer = built(dtype=dtype)
    output, context, inputs, _ = (x.astype("float32") for x in tensors())
    weights = np.full((B, T, TK), 1 / TK, "float32")
    weights[0] = 0

    def call(output, context, inputs, weights):
        read = {"context": context, "inputs": inputs, "weights": weights}
        return [layer(output, **read, source=tensor(np.zeros((B, TK)), "int32"))]

    (log_p,), found = gradients(layer, call, [output, context, inputs, weights])
    log_p, found = numpy(log_p), [numpy(x) for x in found]
    assert all(np.isfinite(x).all() for x in (log_p, *found))
    np.testing.assert_allclose(np.exp(log_p).sum(-1), 1, rtol=0, atol=1e-3)
    assert (log_p[..., V:] < -60).all()
    both = ops.cast(np.concatenate([output, context], axis=-1), layer.compute_dtype)
    generated = ops.softmax(ops.cast(layer.logits(layer.hidden(both)), "float32"))
    np.testing.assert_allclose(np.exp(log_p[0, :, :V]), numpy(generated)[0], rtol=0, atol=1e-5)
    for gate in (-300.0, 300.0):
        layer.gate.bias.assign([gate])
        (log_p,), found = gradients(layer, call, [output, context, inputs, weights])
        assert all(np.isfinite(numpy(x)).all() for x in (log_p, *found))
        np.testing.assert_allclose(np.exp(numpy(log_p)).sum(-1), 1, rtol=0, atol=1e-3)


def test_ids_out_of_range_count_as_unknown():
    layer, inputs = built(unknown_token=2), tensors()
    far, unknown = np.where(SOURCE == 5, 99, SOURCE), np.where(SOURCE == 5, 2, SOURCE)
    expected = numpy(run(layer, *inputs, source=unknown))
    assert np.array_equal(numpy(run(layer, *inputs, source=far)), expected)
    replaced = ops.convert_to_numpy(layer.to_unk(np.array([[3, 4], [0, 9]])))
    assert replaced.tolist() == [[3, 2], [0, 2]]


OUTPUT, CONTEXT, INPUTS, WEIGHTS = tensors("float32")
READ = {"context": CONTEXT, "inputs": INPUTS, "weights": WEIGHTS}
POSITIVE, LISTED = "a positive integer", ["[PAD]", "[UNK]", "a", "b"]
test_mistakes = refusals(
    (lambda: PointerGenerator(V, 0), "`max_extra`", POSITIVE, "received 0"),
    (lambda: PointerGenerator(V, X, units=1.5), "`units`", POSITIVE, "received 1.5"),
    (lambda: PointerGenerator(V, X, unknown_token=4),
     "`unknown_token`", "from 0 to 3", "received 4"),
    (lambda: PointerGenerator(V, X)(OUTPUT, inputs=INPUTS),
     "`context` must be", "received None", "source=..."),
    (lambda: built()(OUTPUT, **READ), "`source` must be", "received None. Call head("),
    (lambda: ExtendedVocabulary(LISTED, 2, 4), "`unknown_token`", "from 0 to 3", "received 4"),
    (lambda: ExtendedVocabulary(LISTED, 2).encode_targets([["a"]], []), "zip"),
)  # fmt: skip


@on_tensorflow
def test_no_tensor_has_the_size_of_steps_positions_and_words():
    import tensorflow as tf

    layer, inputs = built(), tensors()
    shapes = [tf.TensorSpec(x.shape, "float64") for x in inputs]
    graph = tf.function(lambda *x: run(layer, *x)).get_concrete_function(*shapes).graph
    sizes = [y.shape.num_elements() or 0 for x in graph.get_operations() for y in x.outputs]
    assert max(sizes) < B * TK * (V + X) * T / 2


def test_sources_targets_and_back():
    vocabulary = ExtendedVocabulary(LISTED, 2)
    sources = [["a", "x", "b", "y", "x", "z"], [], ["z", "a"]]
    ids, extra = vocabulary.encode_sources(iter(sources))
    assert ids == [[2, 4, 3, 5, 4, 1], [], [4, 2]]  # z is the third extra word of the first
    assert extra == [["x", "y"], [], ["z"]]
    targets = vocabulary.encode_targets([["y", "z", "a"], ["x"], ["z", "x"]], extra)
    assert targets == [[5, 1, 2], [1], [4, 1]]
    assert vocabulary.decode(targets, extra) == [["y", "[UNK]", "a"], ["[UNK]"], ["z", "[UNK]"]]
    # An id that the source has no word for, which a model may return.
    assert vocabulary.decode([[5, -1]], [["x"]]) == [["[UNK]", "[UNK]"]]
    # A vocabulary that repeats a word, and another unknown token.
    vocabulary = ExtendedVocabulary([*LISTED, "a", "c"], 1)
    assert vocabulary.encode_sources([["x", "c"]]) == ([[6, 5]], [["x"]])
    assert vocabulary.decode([[6, 5]], [["x"]]) == [["x", "c"]]
    vocabulary = ExtendedVocabulary(["?", "a"], 1, unknown_token=0)
    assert vocabulary.decode(*vocabulary.encode_sources([["x", "y"]])) == [["x", "?"]]
