"""Every layer trains in `fit`, with static and dynamic sizes, in a graph and under XLA."""

import keras
import numpy as np
import pytest

from tests.backends import BACKEND
from tests.conformance.layers import compiled_cases
from tests.helpers import numpy


def square_from_one(_, output):
    return keras.ops.mean(keras.ops.square(output - 1))


@compiled_cases
@pytest.mark.parametrize("jit", [False, True], ids=["graph", "jit"])
@pytest.mark.parametrize("static", [False, True], ids=["dynamic", "static"])
@pytest.mark.each_value(slow=5)  # layers
def test_training(case, jit, static):
    if jit and BACKEND == "torch":
        pytest.skip("XLA does not compile for PyTorch")
    model = case.model(batch=4 if static else None)
    training = keras.Model(model.inputs, model.outputs[0])
    training.compile(keras.optimizers.SGD(0.1), square_from_one, jit_compile=jit)
    for inputs in (case.inputs(4), case.inputs(3, more=2))[: 1 if static else 2]:
        before = [numpy(w) for w in training.trainable_weights]
        loss = training.train_on_batch(inputs, np.ones(len(inputs[0])))
        assert np.isfinite(loss)
        for old, new in zip(before, training.trainable_weights, strict=True):
            assert np.isfinite(numpy(new)).all(), new.path
            assert not np.array_equal(old, numpy(new)), new.path
