"""Hard attention against sums over all positions, and over all paths."""

import itertools

import keras
import numpy as np
import pytest
from keras import ops

from keras_attention.seq2seq import HardAttention
from tests import fast, helpers
from tests.backends import dtypes, gradients_by, tensor
from tests.helpers import assert_close, gradients, normal, numpy, randomize, refusals, weight_arrays
from tests.seq2seq.cases import softmax

B, T, TK, H, D, U, V = 2, 3, 4, 5, 3, 2, 6
WORDS = np.random.default_rng(5).integers(1, V, (B, T))
TOKENS = np.concatenate([np.full((B, 1), 1), WORDS[:, :-1]], axis=1)
# Padding behind, and padding in front.
MASK = np.stack([helpers.lengths_mask([3], TK)[0], np.arange(TK) >= 1])
whole_or_monotonic = pytest.mark.parametrize("monotonic", [False, True])


def built(**options):
    layer = HardAttention(V, U, **{"dtype": "float64", **options})
    layer.build((None, None, H), (None, None, D))
    return randomize(layer, scale=1.0)


def tensors():
    """Outputs, scores and memory."""
    return [normal([3, n], B, *shape) for n, shape in enumerate([(T, H), (T, TK), (TK, D)])]


def attention(scores, mask=None):
    """Weights, as an attention makes them."""
    if mask is None:
        return ops.softmax(scores)
    mask = np.broadcast_to(mask[:, None], (len(mask), T, mask.shape[1]))
    shares = ops.softmax(ops.where(mask, scores, -1e30))
    return ops.where(mask, shares, ops.zeros_like(shares))


def run(layer, output, scores, memory, mask=None, tokens=TOKENS):
    options = {"tokens": tensor(tokens, "int32")} if layer.monotonic else {}
    mask_tensor = None if mask is None else tensor(mask)
    weights = attention(scores, mask)
    return layer(output, weights=weights, memory=memory, memory_mask=mask_tensor, **options)


def step_by_step(layer, output, weights, memory, mask=None, tokens=TOKENS):
    """The same as `run`, one step after the other, given the weights."""
    state, found = layer.initial_state(memory, mask), []
    for i in range(T):
        options = {"tokens": tensor(tokens[:, i], "int32")} if layer.monotonic else {}
        options |= {"memory": memory, "memory_mask": mask, "state": state}
        logits, state = layer(output[:, i], weights=weights[:, i], **options)
        found.append(logits)
    return ops.stack(found, axis=1)


def loops(layer, inputs, weights, mask=None):
    """The oracle of every sample."""
    rows = zip(*inputs, WORDS, np.ones((B, TK), bool) if mask is None else mask, strict=True)
    return np.stack([
        hard_attention(outputs, np.stack([softmax(x[row]) for x in scores]), memory[row], words,
                       weights, layer.monotonic)
        for outputs, scores, memory, words, row in rows
    ])  # fmt: skip


def emissions(outputs, memory, weights):
    """p(v | h_j, s_i) of one sample, `(T, Tk, V)`."""
    state_kernel, bias, memory_kernel, kernel, output_bias = weights
    found = np.zeros((len(outputs), len(memory), len(output_bias)))
    for i, j in np.ndindex(found.shape[:2]):
        hidden = np.tanh(outputs[i] @ state_kernel + memory[j] @ memory_kernel + bias)
        found[i, j] = softmax(hidden @ kernel + output_bias)
    return found


def hard_attention(outputs, attention, memory, words, weights, monotonic):
    """log p(v | y[<i]) of one sample, `(T, V)`, from sums over all paths through its positions."""
    emitted = emissions(outputs, memory, weights)
    steps, length, size = emitted.shape
    joint = np.zeros((steps, size))  # p(y[<i], v)
    for i in range(steps):
        for path in itertools.product(range(length), repeat=i + 1):
            product, last = 1.0, 0
            for n, j in enumerate(path):
                product *= attention[n, j]
                if monotonic:
                    product = product / attention[n, last:].sum() if j >= last else 0.0
                    last = j
                if n < i:
                    product *= emitted[n, j, words[n]]
            joint[i] += product * emitted[i, path[-1]]
    return np.log(joint / joint.sum(-1, keepdims=True))


def expected_loss(outputs, attention, memory, words, weights, entropy_weight):
    """The expectation of REINFORCE for one sample: the sum over its words, and positions."""
    emitted = emissions(outputs, memory, weights)
    total = 0.0
    for i, word in enumerate(words):
        for j, share in enumerate(attention[i]):
            total -= share * (np.log(emitted[i, j, word]) - entropy_weight * np.log(share))
    return total


@whole_or_monotonic
@pytest.mark.parametrize("mask", [None, MASK], ids=["whole", "masked"])
@pytest.mark.parametrize("jit", fast([False, True], [False]))
@pytest.mark.each_value
def test_equals_the_sum_over_all_paths(monotonic, mask, jit):
    """Whatever the padding holds; its gradient is zero."""
    layer, inputs = built(monotonic=monotonic), tensors()
    if mask is not None:
        inputs[2][~mask] = np.nan
    expected = loops(layer, inputs, weight_arrays(layer), mask)
    assert_close(run(layer, *map(tensor, inputs), mask), expected)
    oracle = lambda inputs, weights: [loops(layer, inputs, weights, mask)]  # noqa: E731
    helpers.assert_gradients(layer, lambda *x: [run(layer, *x, mask)], inputs, oracle, jit=jit)


@whole_or_monotonic
@pytest.mark.parametrize("dtype", ["float64", "float32", "mixed_float16"])
@pytest.mark.parametrize("mask", [None, MASK], ids=["whole", "masked"])
@pytest.mark.each_value
def test_one_step_after_the_other_is_the_whole_run(monotonic, dtype, mask):
    layer = built(monotonic=monotonic, dtype=dtype)
    output, scores, memory = (ops.cast(x, layer.compute_dtype) for x in tensors())
    expected = run(layer, output, scores, memory, mask)
    weights = attention(scores, mask)
    mask = None if mask is None else tensor(mask)
    found = step_by_step(layer, output, weights, memory, mask)
    assert dtypes(found) == dtypes(expected) == [layer.log_dtype]
    assert_close(found, numpy(expected), "float64" if dtype == "float64" else "float32")
    # The start token may lie outside of the vocabulary.
    tokens = np.concatenate([np.full((B, 1), V), TOKENS[:, 1:]], axis=1)
    again = step_by_step(layer, output, weights, memory, mask, tokens)
    assert np.array_equal(numpy(again), numpy(found))
    np.testing.assert_allclose(np.exp(numpy(found)).sum(-1), 1, rtol=0, atol=2e-6)


@pytest.mark.parametrize(
    "options", [{}, {"monotonic": True}, {"estimator": "reinforce"}], ids=["whole", "path", "one"]
)
@pytest.mark.parametrize("dtype", ["float32", "mixed_float16"])
@pytest.mark.parametrize("jit", fast([False, True], [False]))
@pytest.mark.each_value
def test_nothing_valid_reads_zeros(options, dtype, jit):
    layer = built(dtype=dtype, **options)
    output, _, memory = (x.astype("float32") for x in tensors())
    mask = np.array([[False] * TK, [True] * TK])
    weights = np.repeat(mask[:, None] / np.float32(TK), T, axis=1).astype("float32")
    memory[0] = np.nan

    def call(output, weights, memory):
        given = {"weights": weights, "memory": memory, "memory_mask": tensor(mask)}
        return [layer(output, **given, tokens=tensor(TOKENS, "int32"))]

    outputs, found = gradients(layer, call, [output, weights, memory], jit)
    assert all(np.isfinite(numpy(x)).all() for x in (*outputs, *found))
    assert not numpy(found[2])[0].any()
    (zeros,) = call(tensor(output), tensor(weights[[1, 1]]), ops.zeros((B, TK, D)))
    limit = 2e-6 if dtype == "float32" else 2e-2
    np.testing.assert_allclose(numpy(outputs[0])[0], numpy(zeros)[0], rtol=0, atol=limit)


def test_the_mean_of_reinforce_is_the_exact_gradient():
    """Ten thousand samples: their mean is within four standard errors of the enumeration."""
    count, steps, weight = 10_000, 2, 0.3
    layer = built(estimator="reinforce", entropy_weight=weight, seed=7)
    layer.baseline.assign(-1.3)
    inputs, words = [x[:1] for x in tensors()], np.concatenate([WORDS[:1, :steps], [[0]]], axis=1)
    targets = tensor(np.tile(words, (count, 1)), "int32")

    def loss(*inputs):
        given = {"weights": attention(inputs[1]), "memory": inputs[2], "targets": targets}
        # On JAX, a loss that no scope collects is lost.
        with keras.StatelessScope(collect_losses=True) as scope:
            log_p = layer(inputs[0], **given, training=True)
        picked = ops.take_along_axis(log_p, ops.expand_dims(targets, 2), axis=2)
        # The mean over valid steps, times all of them: gradients of the samples do not mix.
        return -ops.sum(picked[:, :steps]) + count * steps * scope.losses[-1], ()

    _, found = gradients_by(loss, [np.repeat(x, count, axis=0) for x in inputs], [])

    def exact(output, scores, memory):
        shares = np.stack([softmax(x) for x in scores[0]])
        named = weight_arrays(layer)
        return expected_loss(output[0], shares, memory[0], words[0, :steps], named, weight)

    for x, estimates in zip(inputs, found, strict=True):
        estimates = numpy(estimates)
        error = estimates.std(axis=0) / np.sqrt(count)
        for index in np.ndindex(x.shape[1:]):
            kept, values = x[(0, *index)], []
            for change in (1e-5, -1e-5):
                x[(0, *index)] = kept + change
                values.append(exact(*inputs))
            x[(0, *index)] = kept
            expected = (values[0] - values[1]) / 2e-5
            assert abs(estimates[:, *index].mean() - expected) <= 4 * error[index] + 1e-6


def test_reinforce_reads_one_position_and_moves_its_baseline():
    layer = built(estimator="reinforce", seed=7)
    output, scores, memory = tensors()
    weights, targets = numpy(attention(scores)), WORDS.copy()
    targets[1] = 0  # padding
    given = {"weights": weights, "memory": memory}
    quiet = numpy(layer(output, **given))
    assert not layer.losses
    best = np.eye(TK)[weights.argmax(-1)]
    assert_close(built()(output, weights=best, memory=memory), quiet)
    assert_close(layer(output[:, 0], weights=weights[:, 0], memory=memory), quiet[:, 0])

    loud = numpy(layer(output, **given, targets=targets, training=True))
    each = [
        numpy(built()(output, weights=np.tile(one, (B, T, 1)), memory=memory)) for one in np.eye(TK)
    ]
    read = [[min(range(TK), key=lambda j: abs(each[j][b, i] - loud[b, i]).max())
             for i in range(T)] for b in range(B)]  # fmt: skip
    log_a = np.log([[weights[b, i, read[b][i]] for i in range(T)] for b in range(B)])
    reward = np.array([loud[0, i, targets[0, i]] for i in range(T)])
    entropy = -(weights * np.log(weights)).sum(-1)
    assert_close(layer.losses[-1], -(reward * log_a[0] + 0.002 * entropy[0]).mean())
    assert_close(layer.baseline, 0.1 * reward.mean())


OUTPUT, WEIGHTS, MEMORY = tensors()
READ = {"weights": WEIGHTS, "memory": MEMORY}
POSITIVE = "a positive integer"
test_mistakes = refusals(
    (lambda: HardAttention(V, 0), "`units`", POSITIVE, "received 0"),
    (lambda: built(monotonic=1), "`monotonic`", "True or False", "received 1"),
    (lambda: built(estimator="reinforce", monotonic=True), "`estimator`", "one of 'exact'"),
    (lambda: built(entropy_weight=-1), "`entropy_weight`", "at least 0", "received -1"),
    (lambda: built()(OUTPUT, weights=WEIGHTS), "`memory` must be", "received None"),
    (lambda: built(monotonic=True)(OUTPUT, **READ),
     "`tokens` must be a tensor, of shape (2, 3)", "received None"),
    (lambda: built(monotonic=True)(
        OUTPUT[:, 0], weights=WEIGHTS[:, 0], memory=MEMORY, tokens=TOKENS[:, 0]),
     "`state` is missing", "received None", "initial_"),
    (lambda: built(monotonic=True)(OUTPUT[:, 0], **READ),
     "`weights` must be floating-point, of shape"),
    (lambda: built(estimator="reinforce")(OUTPUT, **READ, training=True), "`targets` must be"),
)  # fmt: skip
