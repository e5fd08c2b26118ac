"""Attention over the words and word pairs of documents: weights, prior, choice of the form."""

import itertools
import math

import keras
import numpy as np
import pytest
import tensorflow as tf

from examples.documents import ngrams, prior
from examples.documents.encoding import Encoded
from tests.backends import compiled

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


def set_codes(layer, pairs):
    codes = sorted(first * layer.base + second for first, second in pairs)
    layer.codes.assign([*codes, 2**31 - 1])
    return layer


def make_model(form, seed=1):
    model, reader = ngrams.build_ngram_model(WORDS, len(PAIRS), 3, form)
    layer = set_codes(model.get_layer("ngrams"), PAIRS)
    rng = np.random.default_rng(seed)
    for weight in (layer.prior, layer.value, layer.bias):
        weight.assign(rng.normal(size=weight.shape))
    return model, reader, layer


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


def test_xla_agrees():
    model, _, _ = make_model("opinion")
    ids = make_ids()
    np.testing.assert_allclose(compiled(model)(ids), model(ids), atol=1e-5)


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
    layer = ngrams.NgramAttention(100_000, 2, 2, "average")
    layer.build((None, None, None))
    set_codes(layer, [(largest - 1, largest - 1), (1, 2)])
    ids = np.array([[[largest - 1, largest - 1, 1, 2, largest, 2, 99_998]]], "int32")
    pairs = np.array(layer.ngrams(ids))[0, 0, :, 1]
    assert pairs.tolist() == [100_000, 0, 99_999, 0, 0, 0, 0]
    data = Encoded(ids.ravel(), *(np.array(x) for x in ([0, 7], [0, 1], [0])))
    twice = Encoded(np.tile(data.words, 2), *(np.array(x) for x in ([0, 7, 14], [0, 1, 2], [0, 1])))
    codes = prior.find_pairs(twice, np.array([0, 1]), 100_000)
    expected = [(1, 2), (largest - 1, 1), (largest - 1, largest - 1)]
    assert codes.tolist() == [a * largest + b for a, b in expected]


# --- the prior -----------------------------------------------------------------------------------


SETTINGS = {"batch_size": 3, "cells": 100, "seed": 1, "form": "auto"}


def encoded(documents, labels):
    """`Encoded` of documents, which are lists of sentences, which are lists of ids."""
    sentences = [sentence for document in documents for sentence in document]
    return Encoded(
        np.array([word for sentence in sentences for word in sentence], "int32"),
        np.cumsum([0, *map(len, sentences)]),
        np.cumsum([0, *map(len, documents)]),
        np.array(labels),
    )


def random_documents(count, seed=3):
    rng = np.random.default_rng(seed)
    return [
        [rng.integers(1, WORDS, rng.integers(1, 5)).tolist() for _ in range(rng.integers(0, 4))]
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
    data = encoded(documents, [0] * 24)
    assert prior.find_pairs(data, chosen, WORDS).tolist() == expected
    assert prior.find_pairs(data, chosen[:0], WORDS).tolist() == []


def test_ratios_are_those_of_naive_bayes():
    documents, labels = random_documents(15), np.arange(15) % 3
    _, _, layer = make_model("topic")
    chosen = np.arange(13)
    data = encoded(documents, labels)
    counts = np.zeros((3, layer.size))
    for n in chosen:
        held = {number for number, *_ in occurrences(documents[n])}
        counts[labels[n], list(held)] += 1
    assert counts.max() > 1
    found = prior.count_documents(layer, data, chosen, SETTINGS)
    assert np.array_equal(found, counts)
    ratios = prior.log_ratios(counts)
    for c, n in np.ndindex(*counts.shape):
        others = counts[[d for d in range(3) if d != c]].sum(axis=0)
        expected = math.log((1 + counts[c, n]) / (1 + counts[c]).sum())
        expected -= math.log((1 + others[n]) / (1 + others).sum())
        np.testing.assert_allclose(ratios[c, n], expected, atol=1e-12)
    roots = np.sqrt(ratios.max(axis=0).clip(1e-3))
    np.testing.assert_allclose(np.exp(prior.log_prior(counts, 13, WORDS, "opinion")), roots)
    rare = [1 + math.log(14 / (1 + held)) for held in counts.sum(axis=0)]
    specific = [math.sqrt((n < WORDS - 1) + roots[n] ** 2 / 10) for n in range(layer.size)]
    found = np.exp(prior.log_prior(counts, 13, WORDS, "topic"))
    np.testing.assert_allclose(found, np.multiply(specific, rare))


def two_tasks():
    """Documents that the last word decides, and documents that the most frequent word decides.

    Most documents hold the word of the other class too. Each word is a sentence, so there are no
    pairs.
    """
    rng = np.random.default_rng(5)
    last, most = [], []
    for n in range(60):
        label, other = n % 2 + 1, 2 - n % 2
        filling = rng.integers(3, 8, 9).tolist()
        others = [other] * (n % 3 > 0)
        last.append([*others * 3, *filling, label])
        most.append([label, *filling[:3], label, *filling[3:6], label, *filling[6:], *others])
    return {
        form: [[[word] for word in words] for words in task]
        for form, task in {"opinion": last, "topic": most}.items()
    }


def hits_of_naive_bayes(data, form, pairs):
    """How many documents naive Bayes classifies rightly in the five folds."""
    part = np.random.default_rng(SETTINGS["seed"]).permutation(60) % 5
    model, _ = ngrams.build_ngram_model(WORDS, len(pairs), 2, form)
    layer = set_codes(model.get_layer("ngrams"), pairs)
    right = 0
    for fold in range(5):
        others, own = np.flatnonzero(part != fold), np.flatnonzero(part == fold)
        counts = prior.count_documents(layer, data, others, SETTINGS)
        layer.prior.assign(prior.log_prior(counts, len(others), WORDS, "opinion"))
        layer.value.assign(prior.log_ratios(counts).T)
        right += sum(np.argmax(model(data.padded([n]))[0]) == data.labels[n] for n in own)
    return right


def test_naive_bayes_is_tried_in_both_forms(capsys):
    # Classes without a meaning are known in training alone.
    data, chosen = encoded(random_documents(60), np.arange(60) % 2), np.arange(60)
    prior.prepare(WORDS, 2, data, chosen, "attention", SETTINGS)
    codes = prior.find_pairs(data, chosen, WORDS)
    pairs = [divmod(int(code), WORDS) for code in codes]
    hits = {name: hits_of_naive_bayes(data, name, pairs) for name in ("opinion", "topic")}
    shares = ", ".join(f"{name} {100 * count / 60:.1f}%" for name, count in hits.items())
    assert f"naive Bayes is right in {shares}\n" in capsys.readouterr().out


@pytest.mark.parametrize("form", ["opinion", "topic"])
def test_naive_bayes_chooses_the_form(form):
    data = encoded(two_tasks()[form], np.arange(60) % 2)
    model, _ = prior.prepare(WORDS, 2, data, np.arange(60), "attention", SETTINGS)
    assert model.get_layer("ngrams").form == form


@pytest.mark.parametrize("form", ["opinion", "topic"])
def test_a_prepared_model_has_pairs_and_prior(form):
    data, chosen = encoded(random_documents(30), np.arange(30) % 2), np.arange(28)
    given = {**SETTINGS, "form": form}
    for pooling, expected in (("attention", form), ("average", "average")):
        model, _ = prior.prepare(WORDS, 2, data, chosen, pooling, given)
        layer = model.get_layer("ngrams")
        assert layer.form == expected
        assert not np.any(layer.value)
        codes = prior.find_pairs(data, chosen, WORDS)
        assert len(codes) > 0
        assert np.array(layer.codes).tolist() == [*codes, 2**31 - 1]
        counts = prior.count_documents(layer, data, chosen, given)
        wanted = prior.log_prior(counts, 28, WORDS, form) if pooling == "attention" else 0
        np.testing.assert_allclose(layer.prior, wanted + np.zeros(layer.size), atol=1e-6)
