"""Reasons of classifiers, beside loops written from the definitions."""

import itertools
import math

import keras
import numpy as np
import pytest
from keras import ops

import keras_attention.faithfulness as faith
from tests.helpers import assert_close, refusals

RNG = np.random.default_rng(7)
TABLE = RNG.normal(size=(6, 3))


def predict(ids):
    """A softmax of sums and products of neighbours, so that words depend on each other."""
    ids = np.asarray(ids).reshape(len(ids), -1)
    features = TABLE[ids] * (ids > 0)[..., None]
    logits = features.sum(1) + (features[:, :-1] * features[:, 1:]).sum(1)
    return np.exp(logits) / np.exp(logits).sum(1, keepdims=True)


def by_hand(words, importance, count, keep):
    top = sorted(range(len(words)), key=lambda n: (-importance[n], n))[:count]
    left = [word if (n in top) == keep else 0 for n, word in enumerate(words)]
    before, after = (predict(np.array([x]))[0] for x in (words, left))
    return before[before.argmax()] - after[before.argmax()]


def test_all_orders_of_four_words():
    words, shares = [3, 1, 5, 2], ((0.25, 1), (0.3, 2), (0.5, 2), (1, 4))
    orders = itertools.permutations([0.1, 0.2, 0.3, 0.4])
    for order, (share, count) in itertools.product(orders, shares):
        given = predict, np.array([words]), np.array([order]), share
        for measure, keep in ((faith.comprehensiveness, False), (faith.sufficiency, True)):
            assert_close(measure(*given), [by_hand(words, order, count, keep)], "float64")


def test_padding_is_no_part():
    short, long = [3, 1], [4, 2, 5, 1, 3]
    ids = np.array([[*short, 0, 0, 0], long])
    importance = RNG.normal(size=ids.shape)
    importance[0, 2:] = [9, np.nan, 9]  # of padding, so it does not matter
    found = faith.comprehensiveness(predict, ids, importance, 0.5)
    expected = by_hand([*short, 0, 0, 0], [*importance[0, :2], *[-9] * 3], 1, False)
    assert_close(found, [expected, by_hand(long, importance[1], 3, False)])


SENTENCES, SHARES = [[[1, 2, 0], [3, 0, 0], [4, 5, 1], [0, 0, 0]]], [[0.2, 0.5, 0.3, 9.0]]
NONE = [0, 0, 0]


@pytest.mark.parametrize(("ids", "importance", "share", "options", "expected"), [
    # The logarithm of a weight of zero.
    ([[0, 0, 4, 7]], [[-np.inf, 0.0, -np.inf, -np.inf]], 0.5, {}, [[0, 0, 0, 7]]),
    # Whole sentences.
    (SENTENCES, SHARES, 0.34, {}, [[[1, 2, 0], NONE, NONE, NONE]]),
    (SENTENCES, SHARES, 0.33, {"keep": True}, [[NONE, [3, 0, 0], NONE, NONE]]),
    # Bags of features: an erased instance is one of padding, wherever the bag ends.
    ([[[1.5], [2.0], [0], [0]]], [[1, 3, 9, 9]], 0.5, {}, [[[1.5], [0], [0], [0]]]),
    # Another id for padding.
    ([[8, 0, 7, 9]], [[0.2, 0.9, 0.3, 1.0]], 0.3, {"pad": 9}, [[8, 9, 7, 9]]),
])  # fmt: skip
def test_erase(ids, importance, share, options, expected):
    assert faith.erase(np.array(ids), np.array(importance), share, **options).tolist() == expected


def test_shares_of_words_and_an_empty_document():
    """0.1 * 30 is a little more than 3 in floating point, and 0.7 * 10 a little less than 7."""
    for share, length, count in ((0.1, 30, 3), (0.7, 10, 7), (0.6, 5, 3), (0.55, 100, 55)):
        erased = faith.erase(np.ones((1, length), int), RNG.normal(size=(1, length)), share)
        assert (erased == 0).sum() == count
    ids = np.zeros((1, 3), int)
    assert faith.comprehensiveness(predict, ids, np.ones((1, 3))) == 0
    assert faith.overlap(np.ones((1, 3)), np.ones((1, 3)), ids) == 1
    assert faith.jensen_shannon(np.zeros((1, 3)), np.zeros((1, 3))) == 0


def test_gradient_times_input():
    """With logits sum_t x[b,t,d]^2, the derivative of p_y is 2 x[b,t,d] p_y ([y = d] - p_d)."""
    features = RNG.normal(size=(2, 5, 3)).astype("float32")
    found = faith.gradient_times_input(lambda x: ops.softmax(ops.sum(x * x, axis=1)), features)
    logits = (features.astype("float64") ** 2).sum(axis=1)
    p = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    for b, t in np.ndindex(2, 5):
        y = p[b].argmax()
        terms = [2 * features[b, t, d] ** 2 * p[b, y] * ((y == d) - p[b, d]) for d in range(3)]
        assert abs(found[b, t] - sum(terms)) < 1e-6


def test_a_keras_model():
    ids = keras.Input((None,), dtype="int32")
    embed, classify = keras.layers.Embedding(9, 4), keras.layers.Dense(3, activation="softmax")
    model = keras.Model(ids, classify(ops.sum(embed(ids), axis=1)))
    given = np.array([[3, 1, 4], [1, 5, 2]]), RNG.normal(size=(2, 3)), 0.3
    found = faith.comprehensiveness(model, *given)
    assert_close(found, faith.comprehensiveness(model.predict_on_batch, *given), "float32")
    assert np.any(found != 0)


def test_jensen_shannon_and_overlap():
    first, second = RNG.random((2, 2, 3, 5))
    found = faith.jensen_shannon(first, second)
    for b in range(2):
        a, z = (list(x[b].ravel() / x[b].sum()) for x in (first, second))
        middle = [(x + y) / 2 for x, y in zip(a, z, strict=True)]
        parts = [sum(x * math.log(x / m) for x, m in zip(w, middle, strict=True)) for w in (a, z)]
        assert_close(found[b], sum(parts) / 2, "float64")
    apart = faith.jensen_shannon([[1.0, 0, 0]], [[0, 2.0, 3.0]])
    assert_close(apart, [math.log(2)], "float64")
    assert faith.jensen_shannon(first, 3 * first).max() < 1e-15
    ids = np.array([[1, 2, 3, 4, 0]])
    first, second = [[0.4, 0.3, 0.2, 0.1, 9]], [[0.1, 0.4, 0.3, 0.2, 9]]
    found = [float(faith.overlap(first, second, ids, share)[0]) for share in (0.25, 0.5, 0.75, 1)]
    assert found == [0, 1 / 2, 2 / 3, 1]


IDS, WEIGHTS = np.array([[1, 2, 3]]), np.ones((1, 3))
SHAPE = "`importance` must have the shape"
test_refusals = refusals(
    *((lambda given=given: faith.erase(IDS, np.array(given), 0.5), *words) for given, *words in (
        (np.ones((1, 4)), SHAPE, "(1, 3)", "(1, 4)"),
        ([[1, np.nan, 2]], "holds NaN"))),
    (lambda: faith.erase(IDS[:0], WEIGHTS[:0], 0.5), "`inputs` must hold at least one sample"),
    *((lambda x=share: faith.erase(IDS, WEIGHTS, x), "`share`", repr(share))
      for share in (0, 1.1, -0.1, "half")),
    (lambda: faith.comprehensiveness(lambda x: x[0], IDS, WEIGHTS), "(1, classes)", "(3,)"),
    (lambda: faith.sufficiency(lambda x: x[:, :1] / 9, IDS, WEIGHTS),
     "(1, classes), two or more; received (1, 1)"),
    (lambda: faith.jensen_shannon([[1.0, -1]], [[1.0, 1]]), "`first` must hold weights"),
    (lambda: faith.jensen_shannon([[1.0, 1]], [[1.0, 1, 1]]), "`second`", "(1, 2)"),
    (lambda: faith.overlap(WEIGHTS, np.ones((1, 2)), IDS), "`second`", "(1, 2)"),
)  # fmt: skip
