"""What an encoder may leave out: its mask, and its state."""

import keras
import numpy as np
import pytest
from keras import layers, ops

from keras_attention import HierarchicalAttention, RecurrentEncoder
from tests import fast
from tests.backends import BACKEND
from tests.helpers import assert_close, numpy, randomize
from tests.seq2seq.cases import SOURCES, START, TARGETS, E, H, V, seq2seq

# What a functional encoder returns of (memory, state, mask).
RETURNED = {
    "a memory": lambda memory, state, mask: memory,
    "a memory and a state": lambda memory, state, mask: (memory, state),
    "a memory and a list of states": lambda memory, state, mask: [memory, [state]],
    "a memory, a state and a mask": lambda memory, state, mask: (memory, state, mask),
}


def model_of(encoder):
    model = seq2seq(encoder)
    model((SOURCES[:1], TARGETS[:1]))
    return randomize(model)


@pytest.fixture
def assert_consistent(served, reloaded):
    """Training, decoding, a loaded file and an export agree."""

    def check(model):
        pair, loaded = (SOURCES, TARGETS), reloaded(model)
        found = model.generate(SOURCES, 4, length_penalty=0.0)
        scores = model.log_probability(SOURCES, found.tokens).scores
        np.testing.assert_allclose(found.scores, scores, atol=1e-5)
        assert_close(loaded(pair), numpy(model(pair)), "float32")
        np.testing.assert_array_equal(loaded.generate(SOURCES, 4).tokens, found.tokens)
        if BACKEND == "tensorflow":
            serve = served(model, 4, length_penalty=0.0)
            np.testing.assert_array_equal(serve(SOURCES)["tokens"], found.tokens)

    return check


@pytest.mark.parametrize("name", fast(RETURNED, [], slow=2))
def test_a_functional_encoder_leaves_out_what_it_has_not(name, assert_consistent):
    source = keras.Input((None,), dtype="int32")
    gru = layers.GRU(H, return_sequences=True, return_state=True)
    memory, state = gru(layers.Embedding(V, E)(source))
    outputs = RETURNED[name](memory, state, ops.ones_like(memory[:, :, 0], dtype="bool"))
    model = model_of(keras.Model(source, outputs))
    # By hand: no mask, and zeros in place of a state that was left out.
    encoded = gru(model.encoder.layers[1](SOURCES))
    tokens = np.pad(TARGETS[:, :-1], [(0, 0), (1, 0)], constant_values=START)
    start = None if name == "a memory" else [encoded[1]]
    outputs = model.decoder(model.target_embedding(tokens), encoded[0], initial_state=start)
    valid = TARGETS != 0
    found, expected = (numpy(x)[valid] for x in (model((SOURCES, TARGETS)), model.head(outputs)))
    np.testing.assert_allclose(found, expected, atol=2e-6)
    assert_consistent(model)


@pytest.mark.slow
def test_a_mask_that_keras_passes_on_is_read_in_decoding_too(assert_consistent):
    """In training Keras passes it to the decoder."""
    reading = [layers.Embedding(V, E, mask_zero=True), layers.Dense(H)]
    model = model_of(keras.Sequential(reading))
    # Padding is cut off and changes nothing.
    longer = np.pad(SOURCES, [(0, 0), (0, 3)])
    assert_close(model((longer, TARGETS)), numpy(model((SOURCES, TARGETS))), "float32")
    scores = [model.generate(x, 4, length_penalty=0.0).scores for x in (SOURCES, longer)]
    np.testing.assert_allclose(*scores, atol=1e-5)
    alone = model.generate(SOURCES[1:2, :2], 4, length_penalty=0.0)
    np.testing.assert_allclose(scores[0][1:2], alone.scores, atol=1e-5)
    assert_consistent(model)


def test_a_functional_encoder_of_a_fixed_number_of_steps_is_loaded(reloaded):
    """Its weights need that number, which no call of the model tells."""
    source = keras.Input((SOURCES.shape[1],), dtype="int32")
    memory = layers.Embedding(V, E)(source)
    state = layers.Dense(H)(layers.Flatten()(memory))
    model = model_of(keras.Model(source, (layers.Dense(H)(memory), state)))
    assert_close(reloaded(model)((SOURCES, TARGETS)), numpy(model((SOURCES, TARGETS))), "float32")


@pytest.mark.parametrize("make", [
    lambda rnn: RecurrentEncoder(layers.Embedding(V, E), rnn),
    lambda rnn: HierarchicalAttention(3, word_encoder=rnn),
    lambda rnn: HierarchicalAttention(3, sentence_encoder=rnn),
])  # fmt: skip
def test_a_layer_that_returns_its_steps_in_reverse_is_refused(make):
    options = {"return_sequences": True}
    with pytest.raises(ValueError, match=r"go_backwards=True.*use keras\.layers\.Bidirectional"):
        make(layers.GRU(H, go_backwards=True, **options))
    make(layers.Bidirectional(layers.GRU(H, **options)))
