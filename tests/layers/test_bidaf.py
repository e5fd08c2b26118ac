"""What sets the attention flow of BiDAF apart: two directions, two masks, one maximum."""

import numpy as np

from keras_attention import BiDAFAttentionFlow
from tests.helpers import assert_close, assert_drops, numpy, refusals
from tests.layers.papers import FLOW_MASKS, PAPERS, D, T, run

J = 3
BOTH = PAPERS["flow, both"]


def test_nan_in_a_valid_query_propagates_in_both_directions():
    context, query = BOTH.inputs()
    query[0, 2] = np.nan  # valid
    merged, a, b = (numpy(x) for x in run(BOTH.built(), context, query, **BOTH.all_masks()))
    assert np.isnan(a[0][FLOW_MASKS["context_mask"][0][0]]).any(axis=-1).all()
    assert np.isnan(b[0]).any()
    assert all(np.isfinite(x[1]).all() for x in (merged, a, b))


def test_dropout_drops_weights_of_both_directions_and_keeps_their_expectation():
    """With unit vectors G shows which weights were read, and their scale."""
    layer = BiDAFAttentionFlow(dropout=0.4, seed=3)
    context, query = (np.tile(np.eye(T)[:n], (211, 1, 1)) for n in (T, J))
    merged, a, b = (numpy(x) for x in run(layer, context, query, training=True))
    assert_drops(merged[..., T : T + J], a)
    # h_t is the unit vector t, and so h_t * h~ is b_t at t.
    assert_drops(np.diagonal(merged[..., 3 * T :], axis1=1, axis2=2), b)


test_refusals = refusals(
    (lambda: BiDAFAttentionFlow(query_to_context=False, context_to_query=False, name="flow"),
     "flow: `query_to_context` or `context_to_query` must be True; received False for both."),
)  # fmt: skip


def test_half_precision_scores_are_summed_in_float32():
    """The better of two words wins, even if the scores differ only in the fourth digit."""
    layer = BOTH.built("float16")
    for weight in layer.trainable_weights:
        weight.assign(np.full(D, weight.name == "query_vector", "float16"))
    query = np.full((1, 2, D), 100.0)
    query[0, 1, 0] += 0.0625
    _, a, _ = run(layer, np.ones((1, T, D)), query)
    weights = np.array([1, np.exp(0.0625)]) / (1 + np.exp(0.0625))
    assert_close(a, np.tile(weights, (1, T, 1)), "float16")


def test_a_fresh_layer_compares_by_the_dot_product():
    layer = BiDAFAttentionFlow()
    layer.build((None, None, 300), (None, None, 300))
    assert (numpy(layer.product_vector) == 1).all()
    for vector in (layer.context_vector, layer.query_vector):
        assert 0 < np.abs(numpy(vector)).max() <= 0.1 + 1e-6
