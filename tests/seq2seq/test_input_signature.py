"""The record of the first call of a model: `generate` relies on it, and loading builds from it."""

import keras
import numpy as np
import pytest
from keras import layers

from keras_attention import Ensemble, RecurrentEncoder, beam_search
from keras_attention.seq2seq import BidirectionalEnsemble
from tests import fast
from tests.helpers import assert_refused, numpy
from tests.seq2seq import cases
from tests.seq2seq.cases import END, SOURCES, START, TARGETS, Changed, E, H, V, make_model, seq2seq


def hiding(hides):
    """A model whose encoder hides its mask from the decoder as long as `hides` is not empty."""
    model = make_model()

    def change(*found):
        return cases.without_mask(*found) if hides else (found[0] * 1.0, *found[1:])

    model = cases.with_other(model, encoder=Changed(model.encoder, change))
    model((SOURCES, TARGETS))
    return model


@pytest.mark.slow
def test_a_later_call_does_not_change_what_generate_cuts():
    hides = [True]
    model = hiding(hides)
    hides.clear()
    model((SOURCES, TARGETS))
    hides.append(True)
    found = model.generate(SOURCES[1:], 6)  # whose rows are all shorter
    options = {"start_token": START, "end_token": END, "max_length": 6}
    expected = beam_search(model.step, *model.start(SOURCES[1:]), **options)
    np.testing.assert_allclose(found.scores, numpy(expected.scores)[:, 0], atol=1e-5)
    assert found.weights[:, 0, 2:].any()


def test_an_encoder_that_returns_no_mask_any_more_is_refused():
    hides = []
    model = hiding(hides)
    hides.append(True)
    message = "the encoder must return a mask, as at the first call"
    assert_refused(lambda: model.generate(SOURCES, 4), message)


def twin():
    """A new model of the parts of `make_model`, without weights."""
    rnn = layers.Bidirectional(layers.GRU(H // 2, return_sequences=True, return_state=True))
    return seq2seq(RecurrentEncoder(layers.Embedding(V, E), rnn))


JOINED = {
    "alone": lambda *models: models[0],
    "ensemble": lambda *models: Ensemble(models),
    "both directions": lambda *models: BidirectionalEnsemble(*models),
}


@pytest.mark.parametrize("kind", fast(JOINED, ["alone"]))
def test_a_model_that_was_only_built_loads_weights(kind, tmp_path):
    model = JOINED[kind](make_model(seed=1), make_model(seed=2))
    expected = numpy(model((SOURCES, TARGETS)))
    model.save_weights(tmp_path / "model.weights.h5")
    new = JOINED[kind](twin(), twin())
    if kind == "alone":
        for built in (False, True):
            if built:
                new.build(((None, None), (None, None)))  # as Keras calls it before the first call
            message = "the model has no weights yet. Call build() first"
            assert_refused(lambda: new.load_weights(tmp_path / "model.weights.h5"), message)
    new.build()
    new.load_weights(tmp_path / "model.weights.h5")
    np.testing.assert_allclose(numpy(new((SOURCES, TARGETS))), expected, atol=1e-6)


@pytest.mark.slow
def test_a_clone_generates_like_a_model_that_was_called():
    other = make_model(seed=3)
    model = keras.models.clone_model(make_model())
    model.set_weights(other.get_weights())
    expected, found = other.generate(SOURCES, 4), model.generate(SOURCES, 4, batch_size=1)
    np.testing.assert_allclose(found.scores, expected.scores, atol=1e-5)
