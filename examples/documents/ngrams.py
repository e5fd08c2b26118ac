"""Attention over the words and word pairs of a document, for collections of a few thousand.

The scores are not learned, because so few documents cannot teach them. They are set before the
training (`prior.py`).
"""

import keras
from keras import layers, ops

from keras_attention.ops import masked_softmax

# How a weight depends on the occurrences of an n-gram. "opinion": once, and up to three times as
# much at the end of the document. "topic": one plus the logarithm of the count. "average": once.
FORMS = ("opinion", "topic", "average")
PLACE = 2.0  # how much more the end weighs than the beginning, as a multiple
LARGEST = 46_340  # words that form pairs; its square fits into 32 bits


@keras.saving.register_keras_serializable(package="keras_attention_examples")
class NgramAttention(layers.Layer):
    """Attention over the words and the pairs of neighbouring words of a document.

        a = softmax(prior[n_i] + log w_i)       over the occurrences i of all n-grams
        t[n] = sum of a_i over the occurrences i of n
        margins = sum_n t[n] value[n] / |t| + bias

    The Euclidean norm makes long and short documents alike. `w_i` depends on the form, where p is
    the place from 0 to 1 and c the count of the n-gram in the document: `(1 + 2 p_i) / c` for
    "opinion", `(1 + log c) / c` for "topic", and `1 / c` without the prior for "average".

    Sizes: B documents, S sentences, W words in each, C classes.

    Args:
        words: the number of word ids; 0 is padding, and the last one is the unknown word. Neither
            is an n-gram.
        pairs: the number of pairs.
        classes: the number of classes.
        form: one of `FORMS`.

    Call arguments:
        ids: `(B, S, W)`.
        gates: `(B, S, W)`, by which the weight of each word is multiplied. That of a pair is
            multiplied by both.
        return_attention_scores: whether to return the weights too.

    Returns:
        Margins `(B, C)`, with weights `(B, S, W)`. Half the weight of a pair belongs to each word.
    """

    def __init__(self, words, pairs, classes, form, **kwargs):
        super().__init__(**kwargs)
        self.words, self.pairs, self.classes, self.form = words, pairs, classes, form
        self.base = min(words, LARGEST)
        self.size = words - 1 + pairs  # 0 stands for no n-gram

    def build(self, ids_shape):
        def fixed(shape, name, dtype=None):
            return self.add_weight(shape, "zeros", dtype, trainable=False, name=name)

        # One code more than there are pairs, so that a search ends inside.
        self.codes = fixed((self.pairs + 1,), "codes", "int32")
        self.prior = fixed((self.size,), "prior")
        self.value = self.add_weight((self.size, self.classes), "zeros", name="value")
        self.bias = self.add_weight((self.classes,), "zeros", name="bias")

    def ngrams(self, ids):
        """The n-gram that begins at each word: `(B, S, W, 2)`, the word and the pair."""
        following = ops.pad(ids[:, :, 1:], [[0, 0], [0, 0], [0, 1]])
        known = (ids > 0) & (ids < self.base) & (following > 0) & (following < self.base)
        code = ids * self.base + following
        sought = ops.reshape(ops.where(known, code, 0), (-1,))
        found = ops.reshape(ops.searchsorted(self.codes, sought), ops.shape(ids))
        known &= ops.take(self.codes, found) == code
        word = ops.where(ids < self.words - 1, ids, 0)
        pair = ops.where(known, found + self.words - 1, 0)
        return ops.stack([word, pair], axis=3)

    def call(self, ids, gates=None, return_attention_scores=False):
        ids = ops.cast(ids, "int32")
        ngrams = self.ngrams(ids)
        size = ops.shape(ids)[0]
        flat = ops.reshape(ngrams, (size, -1))
        rows = flat + self.size * ops.expand_dims(ops.arange(size), 1)
        valid = flat > 0

        def totals(x):
            flat = ops.segment_sum(
                ops.reshape(x, (-1,)), ops.reshape(rows, (-1,)), size * self.size
            )
            return ops.reshape(flat, (size, self.size))

        count = ops.take_along_axis(totals(ops.cast(valid, self.compute_dtype)), flat, axis=1)
        count = ops.maximum(count, 1)
        scores = -ops.log(count)
        if self.form != "average":
            scores += ops.take(self.prior, flat)
        if self.form == "topic":
            scores += ops.log(1 + ops.log(count))
        if self.form == "opinion":
            place = ops.reshape(ops.stack([places(ids)] * 2, axis=3), (size, -1))
            scores += ops.log(1 + PLACE * place)
        weights = masked_softmax(scores, valid)
        if gates is not None:
            following = ops.pad(gates[:, :, 1:], [[0, 0], [0, 0], [0, 1]])
            gates = ops.stack([gates, gates * following], axis=3)
            weights *= ops.reshape(gates, (size, -1))
        total = totals(weights)
        length = ops.sum(ops.square(total), axis=1, keepdims=True)
        margins = ops.matmul(total * ops.rsqrt(ops.maximum(length, 1e-12)), self.value) + self.bias
        if not return_attention_scores:
            return margins
        word, pair = ops.unstack(ops.reshape(weights, ops.shape(ngrams)), 2, axis=3)
        before = ops.pad(pair[:, :, :-1], [[0, 0], [0, 0], [1, 0]])
        return margins, word + (pair + before) / 2

    def get_config(self):
        names = ("words", "pairs", "classes", "form")
        return {**super().get_config(), **{name: getattr(self, name) for name in names}}


@keras.saving.register_keras_serializable(package="keras_attention_examples")
class MarginProbabilities(layers.Layer):
    """Probabilities from margins that were trained with the squared hinge loss.

        p[c] = (1 + z[c]) / 2, at least almost 0, and divided by the sum over the classes

    The margin with the least expected loss is `2 p - 1`.

    Reference: Zhang (2004), https://doi.org/10.1214/aos/1079120130
    """

    def call(self, margins):
        shares = ops.maximum(1 + margins, 1e-6)
        return shares / ops.sum(shares, axis=-1, keepdims=True)


def places(ids):
    """The place of each word in its document, from 0 to less than 1: `(B, S, W)`."""
    valid = ops.reshape(ops.cast(ids > 0, "float32"), (ops.shape(ids)[0], -1))
    before = ops.cumsum(valid, axis=1) - valid
    place = before / ops.maximum(ops.sum(valid, axis=1, keepdims=True), 1)
    return ops.reshape(place, ops.shape(ids))


def build_ngram_model(words, pairs, classes, form):
    """Builds the model that is trained, and a reader; see `model.build_model`."""
    ids = keras.Input((None, None), dtype="int32", name="ids")
    attend = NgramAttention(words, pairs, classes, form, name="ngrams")
    margins, weights = attend(ids, return_attention_scores=True)
    sentences = ops.sum(weights, axis=2)
    given = ops.expand_dims(ops.where(sentences > 0, sentences, 1.0), 2)
    reader = keras.Model(
        ids,
        {
            "probabilities": MarginProbabilities(name="probabilities")(margins),
            "word_weights": weights / given,
            "sentence_weights": sentences,
        },
    )
    return keras.Model(ids, margins), reader
