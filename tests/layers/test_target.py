"""Target attention against loops of the paper, and the session encoder that it makes."""

import keras
import numpy as np
import pytest
from keras import ops

from keras_attention import AttentionRNN, TargetAttention
from tests.backends import dtypes
from tests.helpers import (
    DTYPES,
    assert_all_close,
    assert_close,
    assert_gradients,
    assert_refused,
    gradients,
    lengths_mask,
    normal,
    numpy,
    randomize,
    selected,
    weight_arrays,
)
from tests.oracles import attend, narm, target

B, TQ, TK, D, DV, U = 2, 3, 7, 5, 13, 11
# A gap, and padding at both ends.
MASK = np.stack([np.arange(TK) >= 1, lengths_mask([5], TK)[0] & (np.arange(TK) != 2)])
every_normalizer = pytest.mark.parametrize("normalizer", ["none", "sigmoid", "softmax"])
masked_or_not = pytest.mark.parametrize("mask", [None, MASK], ids=["whole", "masked"])


def built(normalizer="none", dtype="float64", dv=DV, **kwargs):
    layer = TargetAttention(U, normalizer, dtype=dtype, **kwargs)
    layer.build((None, None, D), (None, None, dv), (None, None, D))
    return randomize(layer)


def tensors(dtype="float64"):
    shapes = (B, TQ, D), (B, TK, DV), (B, TK, D)
    return [normal([1, n], *shape, dtype=dtype) for n, shape in enumerate(shapes)]


def run(layer, *inputs, mask=None, **kwargs):
    return list(layer(*inputs, value_mask=mask, return_attention_scores=True, **kwargs))


def paper(layer, inputs, mask=None, weights=None):
    names = [weight.name for weight in layer.trainable_weights]
    named = dict(zip(names, weights or weight_arrays(layer), strict=True))
    return list(attend(target(named, layer.normalizer), *inputs, value_mask=mask))


@every_normalizer
@masked_or_not
@pytest.mark.parametrize("dtype", DTYPES)
def test_equals_the_paper(normalizer, mask, dtype):
    layer, inputs = built(normalizer, dtype), tensors(dtype)
    result = run(layer, *(ops.cast(x, dtype) for x in inputs), mask=mask)
    assert dtypes(*result) == [dtype, dtype]
    # In half precision the sums of kernels are rounded too, and a sum of several weights is large.
    assert_all_close(result, paper(layer, inputs, mask), dtype, times=4, before=2)


@every_normalizer
@pytest.mark.parametrize("jit", [False, True], ids=["eager", "jit"])
@pytest.mark.each_value
def test_gradients_are_those_of_the_paper(normalizer, jit):
    layer = built(normalizer)

    def oracle(inputs, weights):
        return paper(layer, inputs, MASK, weights)

    assert_gradients(layer, lambda *x: run(layer, *x, mask=MASK), tensors(), oracle, jit=jit)


@every_normalizer
@pytest.mark.parametrize("fill", [np.inf, np.nan])
def test_masking_is_truncating_whatever_the_padding_holds(normalizer, fill):
    layer, (query, value, key) = built(normalizer), tensors()
    places = [0, 3, TK]
    long = [np.insert(x, places, fill, axis=1) for x in (value, key)]
    kept = np.insert(np.ones(TK, bool), places, False)
    outputs, expected = gradients(layer, lambda *x: run(layer, *x), [query, value, key])

    def masked(*x):
        context, weights = run(layer, *x, mask=np.tile(kept, (B, 1)))
        return [context, selected(weights, kept, 2)]

    found_outputs, found = gradients(layer, masked, [query, *long])
    assert_all_close(found_outputs, outputs)
    for n in (1, 2):
        assert not numpy(found[n])[:, ~kept].any()
        found[n] = selected(found[n], kept, 1)
    assert_all_close(found, expected)


@every_normalizer
def test_the_order_of_the_history_goes_into_the_weights_alone(normalizer):
    layer, (query, value, key) = built(normalizer), tensors()
    order = np.random.default_rng(7).permutation(TK)
    context, weights = run(layer, query, value, key, mask=MASK)
    moved = run(layer, query, value[:, order], key[:, order], mask=MASK[:, order])
    assert_all_close(moved, [context, numpy(weights)[:, :, order]])


def test_one_candidate_is_one_step_and_a_prepared_history_serves_all():
    layer, (query, value, key) = built(), tensors()
    context, weights = run(layer, query, value, key, mask=MASK)
    memory = layer.prepare(value, key, MASK)
    for t in range(TQ):
        one = layer.attend(query[:, t], memory)
        assert_all_close([one.output, one.weights], [context[:, t], weights[:, t]])


def test_in_a_decoder_it_is_the_layer_at_every_step():
    cell = keras.layers.GRUCell(D)
    layer = AttentionRNN(cell, TargetAttention(U), query="current", output_mode="concat")
    words, memory = keras.Input((None, 3)), keras.Input((None, D))
    model = keras.Model([words, memory], layer(words, memory))
    inputs = [normal(n, B, t, d).astype("float32") for n, (t, d) in enumerate([(TQ, 3), (TK, D)])]
    both = numpy(model(inputs))
    again = numpy(layer.attention(both[..., D:].astype("float32"), inputs[1]))
    assert_close(both[..., :D], again, "float32")


def test_the_session_encoder_of_narm():
    """NARM's score is that of the layer without the difference and the product."""
    layer, states = built(dv=D), normal(5, B, TK, D)
    a1, a2 = normal(6, D, U), normal(7, D, U)
    zeros = np.zeros((D, U))
    layer.kernel.assign(np.concatenate([a1, a2, zeros, zeros]))
    layer.bias.assign(np.zeros(U))
    layer.score_bias.assign(0.0)
    last = [max(np.flatnonzero(row)) for row in MASK]
    query = states[np.arange(B), last]
    encoded = np.concatenate([query, numpy(layer(query, states, value_mask=MASK))], axis=-1)
    vector = numpy(layer.score_vector)
    expected = [narm(a1, a2, vector, states[b], MASK[b]) for b in range(B)]
    assert_close(encoded, np.array(expected))


def test_a_history_where_nothing_is_valid_reads_zero_even_with_a_bias():
    layer = built()
    assert numpy(layer.score_bias) != 0
    context, weights = run(layer, *tensors(), mask=np.zeros((B, TK), bool))
    assert not numpy(context).any()
    assert not numpy(weights).any()


def test_weights():
    alone, normalised = built(), built("softmax")
    assert {w.name: w.shape for w in alone.weights} == {
        "kernel": (4 * D, U),
        "bias": (U,),
        "score_vector": (U,),
        "score_bias": (),
    }
    assert normalised.score_bias is None


def test_what_is_refused():
    assert_refused(lambda: TargetAttention(0), "`units` must be a positive integer")
    choices = "`normalizer` must be one of 'none', 'sigmoid', 'softmax'"
    assert_refused(lambda: TargetAttention(U, "no"), choices)
    query, value, _ = tensors()
    assert_refused(lambda: built()(query, value), "5", "13")
    assert_refused(
        lambda: TargetAttention(U)(query, value), "because `query` has 5 features", "13)"
    )
