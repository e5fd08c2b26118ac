"""The readout against loops."""

import numpy as np
import pytest
from keras import ops

from keras_attention.seq2seq import Readout
from tests.backends import dtypes
from tests.helpers import (
    DTYPES,
    assert_close,
    assert_gradients,
    normal,
    numpy,
    randomize,
    refusals,
    weight_arrays,
)
from tests.seq2seq.oracles import readout

B, T, H, E, U, V = 2, 3, 5, 7, 11, 13
FORMS = {
    "plain": {"vocabulary_size": V},
    "linear": {"vocabulary_size": V, "activation": None},
    "maxout": {"vocabulary_size": V, "activation": "maxout"},
    "tied": {},
}
every_form = pytest.mark.parametrize("options", FORMS.values(), ids=FORMS)


def built(options, scale=0.5, **more):
    layer = Readout(U, **options, **more)
    layer.build((None, None, H), (None, None, E))
    return randomize(layer, scale=scale)


def tensors(dtype="float64"):
    return [normal([1, n], B, T, size, dtype=dtype) for n, size in enumerate((H, E))]


def paper(layer, output, inputs, weights):
    steps = [[readout(*x, weights, layer.activation) for x in zip(*sample, strict=True)]
             for sample in zip(output, inputs, strict=True)]  # fmt: skip
    return np.array(steps)


@every_form
@pytest.mark.parametrize("dtype", DTYPES)
def test_equals_the_paper(options, dtype):
    layer = built(options, dtype=dtype)
    output, inputs = (x / 2 for x in tensors(dtype))
    given = [ops.cast(x, dtype) for x in (output, inputs)]
    found = layer(given[0], inputs=given[1])
    assert dtypes(found) == [dtype]
    assert layer.tied == ("vocabulary_size" not in options)
    expected = paper(layer, output, inputs, weight_arrays(layer))
    assert_close(found, expected, dtype, before=1)
    one = layer(given[0][:, 1], inputs=given[1][:, 1])
    assert_close(one, expected[:, 1], dtype, before=1)


@every_form
@pytest.mark.parametrize("jit", [False, True], ids=["eager", "jit"])
@pytest.mark.each_value
def test_gradients(options, jit):
    layer = built(options, dtype="float64")

    def oracle(inputs, weights):
        return [paper(layer, *inputs, weights)]

    assert_gradients(layer, lambda x, y: [layer(x, inputs=y)], tensors(), oracle, jit=jit)


def test_dropout_is_for_training():
    layer, (output, inputs) = built({}, dropout=0.5, seed=3), tensors("float32")
    quiet = numpy(built({})(output, inputs=inputs))
    assert_close(layer(output, inputs=inputs), quiet, "float32")
    loud = numpy(layer(output, inputs=inputs, training=True))
    dropped = loud == 0
    assert dropped.any()
    assert not dropped.all()
    assert_close(loud[~dropped], 2 * quiet[~dropped], "float32")


OUTPUT, INPUTS = tensors("float32")
test_mistakes = refusals(
    (lambda: Readout(None), "`units`", "a positive integer", "received None"),
    (lambda: Readout(3, vocabulary_size=0),
     "`vocabulary_size`", "a positive integer", "received 0"),
    (lambda: Readout(3, activation="max"), "activation", "max"),
    (lambda: Readout(3, dropout=1), "`dropout`", "[0, 1)", "received 1"),
    (lambda: Readout(3, seed="a"), "`seed`", "received 'a'"),
    (lambda: Readout(3)(OUTPUT), "`inputs` must be floating-point",
     "received None. Call head(output, inputs=...)"),
    (lambda: built({})(OUTPUT), "`inputs` must be floating-point", "received None"),
    (lambda: built({})(OUTPUT, inputs=INPUTS[:, 0]),
     "`inputs` must be floating-point, of shape", "of shape (2, 7)"),
    (lambda: built({})(OUTPUT, inputs=INPUTS[:1]),
     "`output` has batch size 2", "of shape (1, 3, 7)"),
    (lambda: built({})(OUTPUT[0, 0], inputs=INPUTS),
     "`output` must be floating-point, of shape"),
)  # fmt: skip
