"""The loss of a model with every reduction, and targets without steps."""

import keras
import numpy as np
import pytest

from keras_attention import AttentionRNN, BahdanauAttention, RecurrentEncoder, Seq2Seq
from keras_attention.ops import compiling
from tests.helpers import numpy
from tests.seq2seq.cases import CASES, END, SOURCES, START, TARGETS, V, make_model

VALID = TARGETS != 0


def model_of(mask_zero):
    keras.utils.set_random_seed(3)
    embedding = keras.layers.Embedding(V, 5, mask_zero=mask_zero)
    gru = keras.layers.GRU(7, return_sequences=True)
    encoder = RecurrentEncoder(keras.layers.Embedding(V, 3), gru)
    decoder = AttentionRNN(keras.layers.GRUCell(7), BahdanauAttention(11))
    return Seq2Seq(encoder, decoder, embedding, keras.layers.Dense(V), START, END)


LOSSES = {
    "none": None,
    "function": lambda y, logits: keras.losses.sparse_categorical_crossentropy(y, logits, True),
    **{
        reduction: keras.losses.SparseCategoricalCrossentropy(True, reduction=reduction)
        for reduction in ("sum_over_batch_size", "mean", "mean_with_sample_weight")
    },
}


@pytest.mark.parametrize("mask_zero", [False, True])
@pytest.mark.parametrize("name", LOSSES)
def test_a_mean_is_that_of_the_valid_tokens(name, mask_zero):
    """Keras applies the mask of an embedding to the logits too, and would divide twice."""
    model = model_of(mask_zero)
    logits = numpy(model((SOURCES, TARGETS)))
    logits = logits - np.log(np.exp(logits).sum(-1, keepdims=True))
    losses = -np.take_along_axis(logits, TARGETS[..., None], -1)[..., 0]
    with compiling(False):
        model.compile(keras.optimizers.SGD(0.0), LOSSES[name], run_eagerly=True)
        found = model.train_on_batch(SOURCES, TARGETS)
    np.testing.assert_allclose(float(found), (losses * VALID).sum() / VALID.sum(), rtol=1e-5)


@pytest.mark.parametrize("name", CASES)
def test_a_target_without_steps(name):
    model = make_model(name)
    empty = TARGETS[:, :0]
    assert tuple(model((SOURCES, empty)).shape[:2]) == empty.shape
    scores = model.log_probability(SOURCES, empty).scores
    np.testing.assert_array_equal(numpy(scores), np.zeros(len(empty)))
