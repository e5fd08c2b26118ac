"""`BidirectionalEnsemble` against its two models."""

import keras
import numpy as np
import pytest

from keras_attention import (
    BidirectionalEnsemble,
    Ensemble,
    bidirectional_search,
    reverse_tokens,
)
from tests.backends import only_on
from tests.helpers import assert_refused, numpy
from tests.models.cases import END, SOURCES, START, TARGETS, V, make_model
from tests.models.test_seq2seq import other_tokens

SETTINGS = {"start_token": START, "end_token": END, "max_length": 6}


@pytest.fixture(scope="module")
def both():
    return BidirectionalEnsemble(make_model(seed=1), make_model("hard, monotonic", seed=2))


def test_generate_is_the_search_in_both_directions(both):
    states, memories = both.start(SOURCES)
    options = {"beam_width": 3, "length_penalty": 0.5}
    expected = bidirectional_search(both.step, states, memories, **SETTINGS, **options)
    found = both.generate(SOURCES, 6, n_best=3, **options)
    for x, y in zip(found, expected, strict=True):
        np.testing.assert_allclose(x, numpy(y), atol=1e-5)
    best = both.generate(SOURCES, 6, **options)
    assert np.array_equal(best.tokens, found.tokens[:, 0])


def test_the_log_probability_is_the_mean_of_both_directions(both):
    ahead = both.forward.log_probability(SOURCES, TARGETS)
    back = both.backward.log_probability(SOURCES, reverse_tokens(TARGETS, END))
    found = both.log_probability(SOURCES, TARGETS)
    np.testing.assert_allclose(found.scores, (ahead.scores + back.scores) / 2, atol=1e-5)
    np.testing.assert_allclose(found.weights, ahead.weights, atol=1e-6)
    # The terms of the backward model are in reading order: two words, then the end token.
    row, terms = back.log_probs[1], (ahead.log_probs[1] + back.log_probs[1]) / 2
    assert row[0] != pytest.approx(row[1])
    np.testing.assert_allclose(found.log_probs[0, 3], (ahead.log_probs + back.log_probs)[0, 3] / 2)
    mirrored = (ahead.log_probs[0, :3] + back.log_probs[0, 2::-1]) / 2
    np.testing.assert_allclose(found.log_probs[0, :3], mirrored, atol=1e-6)
    np.testing.assert_allclose(found.log_probs[1, 1:], terms[1:], atol=1e-6)


def test_the_scores_are_log_probabilities_without_a_length_penalty(both):
    found = both.generate(SOURCES, 6, length_penalty=0.0)
    steps = np.arange(6) < found.lengths[:, None]
    again = both.log_probability(SOURCES, np.where(steps, found.tokens, 0))
    np.testing.assert_allclose(again.scores, found.scores, atol=2e-5)
    np.testing.assert_allclose(again.log_probs, found.log_probs, atol=2e-5)
    np.testing.assert_allclose(again.weights, found.weights, atol=1e-5)


def test_a_call_returns_the_mean_of_log_probabilities(both):
    found = numpy(both((SOURCES, TARGETS)))
    assert found.shape == (3, 4, V)
    ahead, back = (
        numpy(keras.ops.log_softmax(model((SOURCES, target))))
        for model, target in ((both.forward, TARGETS), (both.backward, reverse_tokens(TARGETS, 2)))
    )
    np.testing.assert_allclose(found[0, 0], (ahead[0, 0] + back[0, 2]) / 2, atol=1e-6)


@pytest.mark.slow
def test_a_loaded_file_generates_the_same(both, tmp_path):
    members = Ensemble([both.forward, make_model("tied", seed=3)])
    model = BidirectionalEnsemble(members, both.backward)
    expected = model.generate(SOURCES, 6)
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    for x, y in zip(loaded.generate(SOURCES, 6), expected, strict=True):
        np.testing.assert_allclose(x, y, atol=1e-5)


@only_on("tensorflow", reason="SavedModels")
@pytest.mark.slow
def test_an_export_generates_the_same(both, tmp_path):
    import tensorflow as tf

    expected = both.generate(SOURCES, 6)
    both.export_generate(tmp_path / "saved", 6)
    serve = tf.saved_model.load(str(tmp_path / "saved")).signatures["serving_default"]
    for name, x in serve(tf.constant(SOURCES)).items():
        np.testing.assert_allclose(x, getattr(expected, name), atol=1e-5)


def test_wrong_models_are_refused(both):
    for name in ("forward", "backward"):
        for wrong in (keras.layers.Dense(3), None, both):
            models = {"forward": both.forward, "backward": both.backward, name: wrong}
            message = f"`{name}` must be a Seq2Seq or an Ensemble; received"
            assert_refused(lambda models=models: BidirectionalEnsemble(**models), message)
    with pytest.raises(ValueError, match="must have the same start_token"):
        BidirectionalEnsemble(both.forward, other_tokens(both.forward))
    with pytest.raises(ValueError, match="`models` must be a list of Seq2Seq"):
        Ensemble([both, both.forward])


def test_wrong_searches_are_refused(both):
    with pytest.raises(ValueError, match="must be one of 'beam'; received 'greedy'"):
        both.generate(SOURCES, 6, "greedy")
    with pytest.raises(
        ValueError, match=r"no option coverage_penalty\. Its options are beam_width"
    ):
        both.generate(SOURCES, 6, coverage_penalty=0.1)
    with pytest.raises(ValueError, match=r"takes no `prefix`; received one\. Call `generate` of"):
        both.generate(SOURCES, 6, prefix=[[3]] * 3)
