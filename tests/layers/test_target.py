"""Target attention in steps and in a decoder, and the session encoder that it makes."""

import keras
import numpy as np

from keras_attention import AttentionRNN, TargetAttention
from tests.helpers import B, assert_all_close, assert_close, normal, numpy, refusals
from tests.layers.papers import GAPS, PAPERS, D, T, U, run
from tests.oracles import narm

TQ = 3
NONE = PAPERS["target, none"]


def test_one_candidate_is_one_step_and_a_prepared_history_serves_all():
    layer, (query, value, key) = NONE.built(), NONE.inputs()
    context, weights = run(layer, query, value, key, value_mask=GAPS)
    memory = layer.prepare(value, key, GAPS)
    for t in range(TQ):
        one = layer.attend(query[:, t], memory)
        assert_all_close([one.output, one.weights], [context[:, t], weights[:, t]])


def test_in_a_decoder_it_is_the_layer_at_every_step():
    cell = keras.layers.GRUCell(D)
    layer = AttentionRNN(cell, TargetAttention(U), query="current", output_mode="concat")
    words, memory = normal(0, B, TQ, 3, dtype="float32"), normal(1, B, T, D, dtype="float32")
    both = numpy(layer(words, memory)).astype("float32")
    assert_close(both[..., :D], numpy(layer.attention(both[..., D:], memory)), "float32")


def test_the_session_encoder_of_narm():
    """NARM's score is that of the layer without the difference and the product."""
    layer, states = TargetAttention(U, dtype="float64"), normal(5, B, T, D)
    layer.build((None, D), (None, None, D))
    a1, a2, vector = normal(6, D, U), normal(7, D, U), numpy(layer.score_vector)
    layer.kernel.assign(np.concatenate([a1, a2, np.zeros((2 * D, U))]))
    last = [max(np.flatnonzero(row)) for row in GAPS]
    query = states[np.arange(B), last]
    encoded = np.concatenate([query, numpy(layer(query, states, value_mask=GAPS))], axis=-1)
    expected = [narm(a1, a2, vector, states[b], GAPS[b]) for b in range(B)]
    assert_close(encoded, np.array(expected))


WRONG = NONE.inputs()[:2]
test_the_values_alone_must_fit_the_query_if_they_are_the_keys = refusals(
    (lambda: NONE.built()(*WRONG), "5", "13"),
    (lambda: TargetAttention(U)(*WRONG), "because `query` has 5 features", "13)"),
)
