"""`BidirectionalEnsemble` against its two models."""

import keras
import numpy as np
import pytest

from keras_attention import Ensemble
from keras_attention.search import bidirectional_search, reverse_tokens
from keras_attention.seq2seq import BidirectionalEnsemble
from tests.backends import BACKEND
from tests.helpers import assert_refused, numpy
from tests.seq2seq import cases
from tests.seq2seq.cases import END, SOURCES, START, TARGETS, V, joined, make_model, with_other

SETTINGS = {"start_token": START, "end_token": END, "max_length": 6}


@pytest.fixture(scope="module")
def both():
    return BidirectionalEnsemble(make_model(seed=1), make_model("hard, monotonic", seed=2))


@pytest.mark.slow
def test_generate_is_the_search_in_both_directions_and_both_score_it(both, served):
    states, memories = both.start(SOURCES)
    steps = both.left_to_right.step, both.right_to_left.step
    options = {"beam_width": 3, "length_penalty": 0.5}
    expected = bidirectional_search(steps, states, memories, **SETTINGS, **options)
    found = both.generate(SOURCES, 6, n_best=3, **options)
    for x, y in zip(found, expected, strict=True):
        np.testing.assert_allclose(x, numpy(y), atol=1e-5)
    best = both.generate(SOURCES, 6, **options)
    assert np.array_equal(best.tokens, found.tokens[:, 0])
    if BACKEND == "tensorflow":
        for name, x in served(both, 6, **options)(SOURCES).items():
            np.testing.assert_allclose(x, getattr(best, name), atol=1e-5)
    found, ahead = (x.log_probability(SOURCES, TARGETS) for x in (both, both.left_to_right))
    back = both.right_to_left.log_probability(SOURCES, reverse_tokens(TARGETS, END))
    np.testing.assert_allclose(found.scores, (ahead.scores + back.scores) / 2, atol=1e-5)
    np.testing.assert_allclose(found.weights, ahead.weights, atol=1e-6)
    # The terms of the right-to-left model are in reading order: the words, then the end token.
    for b, order in enumerate(([2, 1, 0, 3], [0, 1, 2, 3], [1, 0, 2, 3])):
        expected = (ahead.log_probs[b] + back.log_probs[b, order]) / 2
        np.testing.assert_allclose(found.log_probs[b], expected, atol=1e-6)


def test_a_call_returns_the_mean_of_log_probabilities(both):
    targets = np.vstack([TARGETS, [[6, 5, 0, 0]]])  # the last one has no end token
    sources = np.vstack([SOURCES, SOURCES[:1]])
    found = numpy(both((sources, targets)))
    assert found.shape == (4, 4, V)
    turned = np.array([[9, 4, 7, 2], [6, 2, 0, 0], [10, 3, 2, 0], [5, 6, 0, 0]])
    left, right = (
        numpy(keras.ops.log_softmax(model((sources, target))))
        for model, target in ((both.left_to_right, targets), (both.right_to_left, turned))
    )
    places = [[2, 1, 0, 3], [0, 1, 2, 3], [1, 0, 2, 3], [1, 0, 2, 3]]
    for b, row in enumerate(places):
        np.testing.assert_allclose(found[b], (left[b] + right[b, row]) / 2, atol=1e-6)
    np.testing.assert_array_equal(numpy(both((sources, 1.0 * targets))), found)


@pytest.mark.parametrize("kind", [Ensemble, BidirectionalEnsemble])
def test_training_drops_nothing_in_the_members(kind):
    models = [make_model(seed=n) for n in (0, 1)]
    for model in models:
        model.decoder.cell.dropout = 0.5
    joint, one = joined(kind, models), models[0]
    expected, found = (numpy(joint((SOURCES, TARGETS), training=x)) for x in (False, True))
    np.testing.assert_array_equal(found, expected)
    expected, found = (numpy(one((SOURCES, TARGETS), training=x)) for x in (False, True))
    assert abs(found - expected).max() > 1e-3  # a member alone drops


@pytest.mark.exhaustive
def test_a_source_is_cut_only_if_both_encoders_mask_it(both):
    one = both.left_to_right
    reading = with_other(one, encoder=cases.Changed(one.encoder, cases.without_mask))
    for pair in ((reading, both.right_to_left), (both.right_to_left, reading)):
        model = BidirectionalEnsemble(*pair)
        expected = model.generate(SOURCES, 6)
        found = model.generate(SOURCES, 6, batch_size=1)
        for x, y in zip(found, expected, strict=True):
            np.testing.assert_allclose(x, y, atol=1e-5)


OPTIONS = ("options of search='beam' are beam_width",)


@pytest.mark.parametrize(("call", "words"), [(call, words) for call, *words in (
    (lambda x: BidirectionalEnsemble(None, x.right_to_left), "`left_to_right` must be a Seq2Seq"),
    (lambda x: BidirectionalEnsemble(x.left_to_right, x),
     "`right_to_left` must be a Seq2Seq or an Ensemble; received"),
    (lambda x: BidirectionalEnsemble(x.left_to_right, with_other(x.left_to_right, start_token=3)),
     "must have the same start_token"),
    (lambda x: Ensemble([x, x.left_to_right]), "must be a list of Seq2Seq models"),
    (lambda x: BidirectionalEnsemble(x.left_to_right, wider(x.left_to_right)).generate(SOURCES, 6),
     f"must have one vocabulary; received [{V}, {V + 2}]"),
    *((lambda x, target=target: x.log_probability(SOURCES, target),
       "must contain the end token before its padding; ", "(token 2)")
      for target in (np.where(TARGETS == END, 5, TARGETS), [[7, 4], [6, 2], [3, 2]])),
    (lambda x: x.generate(SOURCES, 6, "greedy"), "must be one of 'beam'; received 'greedy'"),
    (lambda x: x.generate(SOURCES, 6, coverage_penalty=0.1), *OPTIONS, "; received coverage"),
    (lambda x: x.generate(SOURCES, 6, logits_processors=[abs]), *OPTIONS, "; received logits_p"),
    (lambda x: x.generate(SOURCES, 6, prefix=[[3]] * 3), *OPTIONS, "; received prefix"),
)])  # fmt: skip
def test_mistakes(call, words, both):
    assert_refused(lambda: call(both), *words)


def wider(model):
    model = with_other(model, head=keras.layers.Dense(V + 2))
    model((SOURCES, TARGETS))  # then the number of its tokens is known
    return model
