"""The session encoder that target attention makes, and what it refuses."""

import numpy as np

from keras_attention import TargetAttention
from tests.helpers import B, assert_close, normal, numpy, refusals
from tests.layers.papers import GAPS, PAPERS, D, T, U
from tests.oracles import narm

NONE = PAPERS["target, none"]


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
