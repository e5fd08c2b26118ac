"""Attention over the words and word pairs of a document, for collections of a few thousand.

So few documents cannot teach what to read. The scores are computed before the training: an n-gram
that one class uses more than the others is read more.
"""

from collections import Counter

import keras
import numpy as np
from keras import layers, ops

from keras_attention.ops import masked_softmax

PLACE = 2.0  # how much more the end weighs than the beginning, as a multiple
LARGEST = 46_340  # words that form pairs; its square fits into 32 bits
LEAST = 2  # documents that a known pair must occur in


@keras.saving.register_keras_serializable(package="keras_attention_examples")
class NgramAttention(layers.Layer):
    """Attention over the words and the pairs of neighbouring words of a document.

        a = softmax(prior[n_i] + log w_i)       over the occurrences i of all n-grams
        t[n] = sum of a_i over the occurrences i of n
        margins = sum_n t[n] value[n] / |t| + bias

    The Euclidean norm makes long and short documents alike. With the place p from 0 to 1 and the
    count c of the n-gram in the document, w_i is `(1 + 2 p_i) / c`: an n-gram counts once, and up
    to three times as much at the end. The average has `1 / c` and no prior.

    Takes ids `(B, S, W)`, of which 0 is padding and the last one the unknown word; neither is an
    n-gram. Returns margins `(B, C)` and the weights `(B, S, W)`; half the weight of a pair belongs
    to each word.
    """

    def __init__(self, words, pairs, classes, pooling="attention", **kwargs):
        super().__init__(**kwargs)
        self.words, self.pairs, self.classes, self.pooling = words, pairs, classes, pooling
        self.base = min(words, LARGEST)
        self.size = words - 1 + pairs  # 0 stands for no n-gram

    def build(self, ids_shape):
        fixed = {"initializer": "zeros", "trainable": False}
        # One code more than there are pairs, so that a search ends inside.
        self.codes = self.add_weight((self.pairs + 1,), dtype="int32", name="codes", **fixed)
        self.prior = self.add_weight((self.size,), name="prior", **fixed)
        self.value = self.add_weight((self.size, self.classes), "zeros", name="value")
        self.bias = self.add_weight((self.classes,), "zeros", name="bias")

    def ngrams(self, ids):
        """The n-grams that begin at each word: `(B, S, W, 2)`, the word and the pair."""
        following = ops.pad(ids[:, :, 1:], [[0, 0], [0, 0], [0, 1]])
        known = (ids > 0) & (ids < self.base) & (following > 0) & (following < self.base)
        code = ids * self.base + following
        sought = ops.reshape(ops.where(known, code, 0), (-1,))
        found = ops.reshape(ops.searchsorted(self.codes, sought), ops.shape(ids))
        known &= ops.take(self.codes, found) == code
        word = ops.where(ids < self.words - 1, ids, 0)
        pair = ops.where(known, found + self.words - 1, 0)
        return ops.stack([word, pair], axis=3)

    def read(self, ids):
        """The vectors t / |t|, `(B, n-grams)`, and the weights a of the n-grams `(B, S, W, 2)`."""
        ids = ops.cast(ids, "int32")
        ngrams = self.ngrams(ids)
        size = ops.shape(ids)[0]
        flat = ops.reshape(ngrams, (size, -1))
        rows = ops.reshape(flat + self.size * ops.expand_dims(ops.arange(size), 1), (-1,))
        valid = flat > 0

        def totals(x):
            sums = ops.segment_sum(ops.reshape(x, (-1,)), rows, size * self.size)
            return ops.reshape(sums, (size, self.size))

        count = ops.take_along_axis(totals(ops.cast(valid, self.compute_dtype)), flat, axis=1)
        scores = -ops.log(ops.maximum(count, 1))
        if self.pooling == "attention":
            place = ops.reshape(ops.stack([places(ids)] * 2, axis=3), (size, -1))
            scores += ops.take(self.prior, flat) + ops.log(1 + PLACE * place)
        weights = masked_softmax(scores, valid)
        total = totals(weights)
        length = ops.sum(ops.square(total), axis=1, keepdims=True)
        vectors = total * ops.rsqrt(ops.maximum(length, 1e-12))
        return vectors, ops.reshape(weights, ops.shape(ngrams))

    def call(self, ids, return_attention_scores=False):
        vectors, weights = self.read(ids)
        margins = ops.matmul(vectors, self.value) + self.bias
        if not return_attention_scores:
            return margins
        word, pair = ops.unstack(weights, 2, axis=3)
        before = ops.pad(pair[:, :, :-1], [[0, 0], [0, 0], [1, 0]])
        return margins, word + (pair + before) / 2

    def get_config(self):
        names = ("words", "pairs", "classes", "pooling")
        return {**super().get_config(), **{name: getattr(self, name) for name in names}}


def probabilities(margins):
    """Probabilities from margins that were trained with the squared hinge loss.

        p[c] = (1 + z[c]) / 2, at least almost 0, and divided by the sum over the classes

    The margin with the least expected loss is `2 p - 1` (Zhang, 2004).
    """
    shares = ops.maximum(1 + margins, 1e-6)
    return shares / ops.sum(shares, axis=-1, keepdims=True)


def places(ids):
    """The place of each word in its document, from 0 to less than 1: `(B, S, W)`."""
    valid = ops.reshape(ops.cast(ids > 0, "float32"), (ops.shape(ids)[0], -1))
    before = ops.cumsum(valid, axis=1) - valid
    place = before / ops.maximum(ops.sum(valid, axis=1, keepdims=True), 1)
    return ops.reshape(place, ops.shape(ids))


def build_model(fold, pooling):
    """Builds a model of a `Fold`, and a reader, as `model.build_model` does."""
    words, chosen = fold.vocabulary.size, fold.train
    codes = find_pairs(fold.data, chosen, words)
    ids = keras.Input((None, None), dtype="int32", name="ids")
    attend = NgramAttention(words, len(codes), fold.classes, pooling, name="ngrams")
    margins, weights = attend(ids, return_attention_scores=True)
    attend.codes.assign([*codes, np.iinfo("int32").max])
    if pooling == "attention":
        held = np.zeros((fold.classes, attend.size))
        for batch in fold.data.batches(chosen):
            present = ops.convert_to_numpy(attend.read(fold.data.padded(batch))[0]) > 0
            np.add.at(held, fold.data.labels[batch], present)
        prior = np.maximum(log_ratios(held).max(axis=0), 1e-3)
        attend.prior.assign(0.5 * np.log(prior))
    sentences = ops.sum(weights, axis=2)
    given = ops.expand_dims(ops.where(sentences > 0, sentences, 1.0), 2)
    found = {"word_weights": weights / given, "sentence_weights": sentences}
    found["probabilities"] = probabilities(margins)
    return keras.Model(ids, margins), keras.Model(ids, found)


def find_pairs(data, chosen, words):
    """The codes of the pairs of known words in `LEAST` of the documents `chosen`, sorted."""
    base, holders = min(words, LARGEST), Counter()
    for n in chosen:
        pairs = set()
        for sentence in data.ids[n]:
            known = np.array(sentence) < min(base, words - 1)  # the last id is the unknown word
            inside = known[:-1] & known[1:]
            code = np.array(sentence[:-1], "int64") * base + sentence[1:]
            pairs.update(code[inside].tolist())
        holders.update(pairs)
    return np.array(sorted(x for x, n in holders.items() if n >= LEAST), "int32")


def log_ratios(counts):
    """How much more of the n-grams of a class an n-gram is than of the others, `(C, n-grams)`.

        r[c,n] = log((1 + N[c,n]) / sum_m (1 + N[c,m])) - the same for the other classes

    These are the weights of naive Bayes, with one document added to every count. The prior of an
    n-gram is the logarithm of the square root of its largest ratio.
    """

    def log_share(counts):
        return np.log((1 + counts) / (1 + counts).sum(axis=1, keepdims=True))

    return log_share(counts) - log_share(counts.sum(axis=0) - counts)
