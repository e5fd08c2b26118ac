"""Attention over the words and word pairs of documents: weights, prior, choice of the form."""

import itertools
import math
import types

import keras
import numpy as np
import pytest
import scipy.sparse
import tensorflow as tf

from examples.documents import ngrams
from examples.documents.data import Encoded, Fold

WORDS = 9  # padding 0, known words 1 to 7, the unknown word 8
PAIRS = [(1, 1), (1, 2), (2, 1), (3, 7), (7, 3)]


def make_ids():
    """Documents of 4, 1, 0 and 3 sentences."""
    rng = np.random.default_rng(2)
    ids = rng.integers(1, WORDS, (4, 4, 6)).astype("int32")
    ids[0, 0, :4], ids[3, 1, :3] = [1, 1, 2, 1], [3, 7, 3]
    ids *= np.arange(6) < np.maximum(rng.integers(1, 7, (4, 4, 1)), 4)
    ids *= np.arange(4)[:, None] < np.array([4, 1, 0, 3])[:, None, None]
    return ids


def make_model(form, seed=1):
    """A model of `PAIRS` with random weights."""
    documents = [[[*pair]] for pair in PAIRS for _ in range(2)]
    model, reader = ngrams.build_model(fold_of(documents, 3), form, 1)
    layer = model.get_layer("ngrams")
    rng = np.random.default_rng(seed)
    for weight in (layer.prior, layer.value, layer.bias):
        weight.assign(rng.normal(size=weight.shape))
    return model, reader, layer


def fold_of(documents, classes, train=None):
    """A `Fold` of documents, which are lists of sentences, which are lists of ids."""
    labels = np.arange(len(documents)) % classes
    data = Encoded(tf.ragged.constant(documents, "int32", ragged_rank=2), labels)
    train = np.arange(len(documents)) if train is None else train
    return Fold(data, types.SimpleNamespace(size=WORDS), train, None, classes)


def occurrences(document):
    """Lists `(n-gram, indices of its words, place)` for a document, a list of sentences."""
    count = sum(word > 0 for sentence in document for word in sentence)
    found, before = [], 0
    for s, sentence in enumerate(document):
        for w, word in enumerate(sentence):
            if word == 0:
                continue
            if word < WORDS - 1:
                found.append((word, [(s, w)], before / count))
            pair = tuple(sentence[w : w + 2])
            if pair in PAIRS:
                number = WORDS - 1 + sorted(PAIRS).index(pair)
                found.append((number, [(s, w), (s, w + 1)], before / count))
            before += 1
    return found


def by_hand(layer, document):
    """Margins, and the weight of each word, by loops."""
    found = occurrences(document.tolist())
    log_prior, value, bias = (np.array(x) for x in (layer.prior, layer.value, layer.bias))
    scores = []
    for number, _, place in found:
        count = sum(number == other for other, *_ in found)
        if layer.form == "average":
            scores.append(1 / count)
        elif layer.form == "opinion":
            scores.append(math.exp(log_prior[number]) * (1 + 2 * place) / count)
        else:
            scores.append(math.exp(log_prior[number]) * (1 + math.log(count)) / count)
    weights, total = np.zeros(document.shape), np.zeros(layer.size)
    for score, (number, places, _) in zip(scores, found, strict=True):
        share = score / sum(scores)
        total[number] += share
        for place in places:
            weights[place] += share / len(places)
    length = np.linalg.norm(total)
    return (total @ value / length if found else 0) + bias, weights


@pytest.mark.parametrize("form", ngrams.FORMS)
def test_weights_and_margins(form):
    model, reader, layer = make_model(form)
    ids = make_ids()
    assert {number for number, *_ in occurrences(ids[0].tolist())} >= {1, 2, 8, 9, 10}
    margins, weights = layer(ids, return_attention_scores=True)
    for document, *found in zip(ids, margins, weights, strict=True):
        for x, expected in zip(found, by_hand(layer, document), strict=True):
            np.testing.assert_allclose(x, expected, atol=1e-5)
    np.testing.assert_allclose(np.sum(weights, axis=(1, 2)), [1, 1, 0, 1], atol=1e-6)
    for name, value in {"model": model(ids), "graph": tf.function(model)(ids)}.items():
        np.testing.assert_allclose(value, margins, atol=1e-6, err_msg=name)
    found = {name: np.array(value) for name, value in reader(ids).items()}
    product = found["word_weights"] * found["sentence_weights"][:, :, None]
    np.testing.assert_allclose(product, weights, atol=1e-6)
    inside = np.sum(weights, axis=2) > 0
    np.testing.assert_allclose(found["word_weights"].sum(axis=2), inside, atol=1e-6)
    expected = np.maximum(1 + np.array(margins), 1e-6)
    expected /= expected.sum(axis=1, keepdims=True)
    np.testing.assert_allclose(found["probabilities"], expected, atol=1e-6)
    # With more padding.
    wider = np.pad(ids, [(0, 2), (0, 3), (0, 5)])
    np.testing.assert_allclose(model(wider)[:4], margins, atol=1e-5)


def test_a_model_of_ngrams_is_saved(tmp_path):
    _, reader, _ = make_model("topic")
    reader.save(tmp_path / "model.keras")
    again = keras.saving.load_model(tmp_path / "model.keras")
    expected = reader(make_ids())
    for name, value in again(make_ids()).items():
        assert np.array_equal(value, expected[name])


def test_a_gate_removes_a_word():
    _, _, layer = make_model("average")
    ids = np.array([[[3, 7, 3, 5]]])
    kept = layer(ids, gates=np.array([[[1.0, 1.0, 0.0, 1.0]]], "float32"))
    # Neither the second 3 nor its pair (7, 3) is left; the first 3 weighs half of its two.
    total = np.zeros(layer.size)
    total[[3, 7, 5, WORDS - 1 + sorted(PAIRS).index((3, 7))]] = [0.5, 1, 1, 1]
    expected = total @ np.array(layer.value) / np.linalg.norm(total) + np.array(layer.bias)
    np.testing.assert_allclose(kept[0], expected, atol=1e-5)


def test_pairs_of_frequent_words_alone():
    """The square of a larger number than `LARGEST` does not fit into 32 bits."""
    largest = ngrams.LARGEST
    sentence = [largest - 1, largest - 1, 1, 2, largest, 2, 99_998]
    codes = ngrams.find_pairs(fold_of([[sentence]] * 2, 2).data, np.arange(2), 100_000)
    expected = [(1, 2), (largest - 1, 1), (largest - 1, largest - 1)]
    assert codes.tolist() == [a * largest + b for a, b in expected]
    layer = ngrams.NgramAttention(100_000, 3, 2, "average")
    layer.build((None, None, None))
    layer.codes.assign([*codes, 2**31 - 1])
    pairs = np.array(layer.ngrams(np.array([[sentence]], "int32")))[0, 0, :, 1]
    assert pairs.tolist() == [100_001, 100_000, 99_999, 0, 0, 0, 0]


# --- the scores, which are not learned -----------------------------------------------------------


def random_documents(count, seed=3):
    rng = np.random.default_rng(seed)
    return [
        [rng.integers(1, WORDS, rng.integers(1, 5)).tolist() for _ in range(rng.integers(1, 4))]
        for _ in range(count)
    ]


def test_pairs_are_those_of_two_documents():
    documents = random_documents(24)
    chosen = np.delete(np.arange(24), [1, 4, 8])
    holders = {}
    for n in chosen:
        for sentence in documents[n]:
            for pair in itertools.pairwise(sentence):
                if WORDS - 1 not in pair:
                    holders.setdefault(pair, set()).add(n)
    expected = sorted(a * WORDS + b for (a, b), found in holders.items() if len(found) > 1)
    assert 0 < len(expected) < len(holders)
    data = fold_of(documents, 2).data
    assert ngrams.find_pairs(data, chosen, WORDS).tolist() == expected
    assert ngrams.find_pairs(data, chosen[:1], WORDS).tolist() == []


@pytest.mark.parametrize("form", ["opinion", "topic"])
def test_vectors_and_prior(form):
    documents, labels, chosen = random_documents(50), np.arange(50) % 3, np.arange(3, 50)
    fold = fold_of(documents, 3, chosen)
    model, _ = ngrams.build_model(fold, form, 1)
    layer = model.get_layer("ngrams")
    found = np.exp(np.array(layer.prior))
    layer.prior.assign(np.zeros(layer.size))
    vectors = ngrams.document_vectors(layer, fold).toarray()
    np.testing.assert_allclose(vectors, layer.read(fold.data.padded(chosen))[0], atol=1e-6)
    # Naive Bayes, by loops.
    pairs = [divmod(int(code), WORDS) for code in np.array(layer.codes)[:-1]]
    counts = np.zeros((3, layer.size))
    for n in chosen:
        words = {word for sentence in documents[n] for word in sentence} - {WORDS - 1}
        held = {pair for sentence in documents[n] for pair in itertools.pairwise(sentence)}
        held = [WORDS - 1 + k for k, pair in enumerate(pairs) if pair in held]
        counts[labels[n], [*words, *held]] += 1
    ratios = ngrams.log_ratios(counts)
    for c, n in np.ndindex(*counts.shape):
        others = counts[[d for d in range(3) if d != c]].sum(axis=0)
        expected = math.log((1 + counts[c, n]) / (1 + counts[c]).sum())
        expected -= math.log((1 + others[n]) / (1 + others).sum())
        np.testing.assert_allclose(ratios[c, n], expected, atol=1e-12)
    expected = roots = np.sqrt(ratios.max(axis=0).clip(1e-3))
    if form == "topic":
        rare = [1 + math.log(48 / (1 + held)) for held in counts.sum(axis=0)]
        specific = [math.sqrt((n < WORDS - 1) + roots[n] ** 2 / 10) for n in range(layer.size)]
        expected = np.multiply(specific, rare)
    np.testing.assert_allclose(found, expected, rtol=1e-5)


@pytest.mark.parametrize("form", ["opinion", "topic"])
def test_the_better_form_is_chosen(form):
    """The last word decides, or the most frequent one. Each word is a sentence: no pairs."""
    rng, documents = np.random.default_rng(5), []
    for n in range(60):
        label, other = n % 2 + 1, 2 - n % 2
        filling, others = rng.integers(3, 8, 9).tolist(), [other] * (n % 3 > 0)
        if form == "opinion":
            words = [*others * 3, *filling, label]
        else:
            words = [label, *filling[:3], label, *filling[3:6], label, *filling[6:], *others]
        documents.append([[word] for word in words])
    model, _ = ngrams.build_model(fold_of(documents, 2), "auto", 1)
    assert model.get_layer("ngrams").form == form


def test_the_form_is_chosen_in_blocks(capsys):
    """Neighbours share a word that tells their class, but no other block has it.

    A random fold knows it from the neighbours, and "first" would be right always. In blocks only
    "second" helps, whose word tells the class of most documents.
    """
    labels, rows = np.arange(80) % 2, np.arange(80)
    shared = scipy.sparse.csr_array(np.eye(12)[2 + 2 * (rows // 16) + labels])
    second = scipy.sparse.csr_array(np.eye(12)[np.where(rows % 5 > 0, labels, 1 - labels)])
    vectors = {"first": shared, "opinion": second}
    assert ngrams.choose_form(vectors, labels, 13, 1) == "opinion"
    assert "opinion 80.0%" in capsys.readouterr().out
    # A class of one document cannot be split.
    assert ngrams.choose_form(vectors, np.array([1, *[0] * 79]), 13, 1) == ngrams.FORMS[0]
