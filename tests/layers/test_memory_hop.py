"""The switch of a hop, several queries, and memories that are empty."""

import keras
import numpy as np
import pytest

from keras_attention import AttentionRNN, MemoryHop
from tests.backends import on_tensorflow, tensor
from tests.helpers import (
    B,
    assert_all_close,
    normal,
    numpy,
)
from tests.layers.papers import GAPS, PAPERS, D, run
from tests.layers.papers import T as N

T = 3


@pytest.mark.parametrize("name", [name for name in PAPERS if name.startswith("hop")])
def test_several_queries_are_each_a_hop(name):
    case = PAPERS[name]
    hop, (_, *memories) = case.built(), case.inputs()
    queries = normal(2, B, T, D) / 4
    allowed = np.random.default_rng(5).random((B, T, N)) < 0.6
    asked = np.array([[True, True, False], [True, False, True]])
    masks = {"query_mask": asked, "attention_mask": allowed, "value_mask": GAPS}
    result = run(hop, queries, *memories, **masks)
    for t in range(T):
        mask = GAPS & allowed[:, t] & asked[:, t, None]
        state, weights = case.paper(hop, [queries[:, t], *memories], value_mask=mask)
        state = np.where(asked[:, t, None], state, 0)
        assert_all_close([x[:, t] for x in result], [state, weights])


@on_tensorflow
def test_linear_is_put_back_in_compiled_functions():
    import tensorflow as tf

    case, traces = PAPERS["hop, linear update, no softmax"], []
    hop, inputs = case.built(), case.inputs()

    @tf.function(jit_compile=True)
    def function(*tensors):
        traces.append(1)
        return run(hop, *tensors, value_mask=GAPS)

    (switch,) = hop.non_trainable_weights
    assert (switch.name, switch.dtype) == ("linear", "bool")
    assert MemoryHop().linear is False
    for linear in (False, True, False):
        hop.linear = linear
        assert hop.linear is linear
        expected = case.paper(hop, inputs, value_mask=GAPS)
        assert_all_close(function(*map(tensor, inputs)), expected)
    assert len(traces) == 1


def test_a_decoder_trains_with_the_switch_of_today():
    """On JAX, `fit` takes the weights out of the layers, and compiles once."""
    decoder = AttentionRNN(keras.layers.GRUCell(D), MemoryHop())
    inputs = keras.Input((T, D)), keras.Input((N, D))
    model = keras.Model(inputs, decoder(*inputs))
    model.compile(keras.optimizers.SGD(0.0), "mse")
    x = [normal(n, 2, *one.shape[1:], dtype="float32") for n, one in enumerate(inputs)]
    losses = []
    for linear in (False, True, False):
        decoder.attention.linear = linear
        losses += model.fit(x, np.zeros((2, T, D)), verbose=0).history["loss"]
        assert losses[-1] == pytest.approx(np.square(numpy(model(x))).mean(), rel=1e-5)
    assert losses[0] == pytest.approx(losses[2], rel=1e-5) != pytest.approx(losses[1], rel=0.01)
