"""Padding changes no output of an example's model, on Keras 3.15 and 3.16."""

import keras
import numpy as np
import pytest

from examples.documents import model as documents
from examples.question_answering import model as bidaf
from examples.translation import model as translation
from examples.translation.__main__ import parse
from keras_attention import Seq2Seq
from tests.helpers import numpy

pytestmark = pytest.mark.slow

BATCH, STEPS, WORDS = 3, 5, 4  # known sizes of the inputs stay as they are
MORE = 3


@pytest.fixture(autouse=True)
def masks_end_at_recurrent_layers(monkeypatch):
    """Makes Keras 3.15 drop the masks that 3.16 drops."""
    for layer in (keras.layers.RNN, keras.layers.Bidirectional):
        monkeypatch.setattr(layer, "compute_mask", lambda *_: None)


def inputs_of(tensors, rng):
    """Ids from 1 to 4, with some padding in the first sample, normal numbers, or True."""
    for tensor in tensors:
        known = (BATCH, STEPS, WORDS)
        shape = [n or size for n, size in zip(tensor.shape, known, strict=False)]
        shape += tensor.shape[len(known) :]
        ids = rng.integers(1, 5, shape)
        if len(shape) > 1:
            ids[0, -1] = 0
        kinds = {"bool": np.ones(shape, "bool"), "float32": rng.normal(size=shape)}
        yield kinds.get(tensor.dtype, ids)


def assert_padding_changes_nothing(model):
    rng = np.random.default_rng(3)
    if isinstance(model, Seq2Seq):
        count = len(getattr(model.encoder, "inputs", [None]))
        tensors = [keras.KerasTensor((None, None), "int32")] * (count + 1)
    else:
        tensors, count = model.inputs, 1
    inputs = list(inputs_of(tensors, rng))
    longer = [
        np.pad(x, [(0, MORE * (axis > 0 and n is None)) for axis, n in enumerate(tensor.shape)])
        for x, tensor in zip(inputs, tensors, strict=True)
    ]
    assert sum(x.size for x in longer) > sum(x.size for x in inputs)
    inputs, longer = (((*x[:count],), x[-1]) if count > 1 else x for x in (inputs, longer))
    if not model.built:
        model(inputs)
    for variable in model.trainable_variables:
        variable.assign(variable + rng.normal(0, 0.1, variable.shape))
    outputs, others = (
        keras.tree.flatten(model(x if len(x) > 1 else x[0], training=False))
        for x in (inputs, longer)
    )
    for output, other in zip(map(numpy, outputs), map(numpy, others), strict=True):
        same = tuple(slice(0, n) for n in output.shape)
        np.testing.assert_allclose(other[same], output, rtol=0, atol=1e-6)


@pytest.mark.parametrize(
    ("name", "feeding"),
    [*((name, False) for name in translation.ATTENTIONS), ("luong-general", True)],
)
def test_translation(name, feeding):
    arguments = ["--attention", name, "--units", "6", "--embedding", "5", "--window", "2"]
    options = parse(arguments + ["--input-feeding"] * feeding)
    assert_padding_changes_nothing(translation.build_model((7, 9), options))


@pytest.mark.parametrize("flow", bidaf.FLOWS)
def test_question_answering(flow):
    for model in bidaf.build_model((7, 9), 3, flow, 0.1):
        assert_padding_changes_nothing(model)


@pytest.mark.parametrize("encoder", documents.ENCODERS[1:])  # "ngrams" has its own
@pytest.mark.parametrize("pooling", documents.POOLINGS)
def test_documents(pooling, encoder):
    for model in documents.build_model(7, 3, pooling, encoder, 5, 4, 0.1, 0.1):
        assert_padding_changes_nothing(model)
