"""Attention over the words and word pairs of a document, for collections of a few thousand.

So few documents cannot teach what to read. The scores are computed before the training: an n-gram
that one class uses more than the others is read more.
"""

import keras
import numpy as np
import tensorflow as tf
from keras import layers, ops

from keras_attention.ops import masked_softmax

# How a weight depends on the occurrences of an n-gram. "opinion": once, and up to three times as
# much at the end of the document. "topic": one plus the logarithm of the count. "average": once.
FORMS = ("opinion", "topic", "average")
PLACE = 2.0  # how much more the end weighs than the beginning, as a multiple
LARGEST = 46_340  # words that form pairs; its square fits into 32 bits
LEAST = 2  # documents that a known pair must occur in
SPECIFIC = 0.1  # how much the ratio of naive Bayes adds to the weight of a word in "topic"


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

    def read(self, ids, gates=None):
        """The vectors t / |t|, `(B, n-grams)`, and the weights a of the n-grams `(B, S, W, 2)`."""
        ids = ops.cast(ids, "int32")
        ngrams = self.ngrams(ids)
        size = ops.shape(ids)[0]
        flat = ops.reshape(ngrams, (size, -1))
        rows = ops.reshape(flat + self.size * ops.expand_dims(ops.arange(size), 1), (-1,))
        valid = flat > 0

        def totals(x):
            return ops.reshape(
                ops.segment_sum(ops.reshape(x, (-1,)), rows, size * self.size), (size, self.size)
            )

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
        vectors = total * ops.rsqrt(ops.maximum(length, 1e-12))
        return vectors, ops.reshape(weights, ops.shape(ngrams))

    def call(self, ids, gates=None, return_attention_scores=False):
        vectors, weights = self.read(ids, gates)
        margins = ops.matmul(vectors, self.value) + self.bias
        if not return_attention_scores:
            return margins
        word, pair = ops.unstack(weights, 2, axis=3)
        before = ops.pad(pair[:, :, :-1], [[0, 0], [0, 0], [1, 0]])
        return margins, word + (pair + before) / 2

    def get_config(self):
        names = ("words", "pairs", "classes", "form")
        return {**super().get_config(), **{name: getattr(self, name) for name in names}}


def probabilities(margins):
    """Probabilities from margins that were trained with the squared hinge loss.

        p[c] = (1 + z[c]) / 2, at least almost 0, and divided by the sum over the classes

    The margin with the least expected loss is `2 p - 1`.

    Reference: Zhang (2004), https://doi.org/10.1214/aos/1079120130
    """
    shares = ops.maximum(1 + margins, 1e-6)
    return shares / ops.sum(shares, axis=-1, keepdims=True)


def places(ids):
    """The place of each word in its document, from 0 to less than 1: `(B, S, W)`."""
    valid = ops.reshape(ops.cast(ids > 0, "float32"), (ops.shape(ids)[0], -1))
    before = ops.cumsum(valid, axis=1) - valid
    place = before / ops.maximum(ops.sum(valid, axis=1, keepdims=True), 1)
    return ops.reshape(place, ops.shape(ids))


def build_model(fold, form, seed):
    """Builds a model with the scores of the training documents.

    Args:
        fold: a `Fold`.
        form: one of `FORMS`, or "auto" to choose between "opinion" and "topic".
        seed: of the choice.

    Returns:
        The model that is trained, and a reader, as `model.build_model` returns them.
    """
    words, labels = fold.vocabulary.size, fold.data.labels[fold.train]
    codes = find_pairs(fold.data, fold.train, words)

    def build(form):
        ids = keras.Input((None, None), dtype="int32", name="ids")
        attend = NgramAttention(words, len(codes), fold.classes, form, name="ngrams")
        margins, weights = attend(ids, return_attention_scores=True)
        attend.codes.assign([*codes, np.iinfo("int32").max])
        sentences = ops.sum(weights, axis=2)
        given = ops.expand_dims(ops.where(sentences > 0, sentences, 1.0), 2)
        outputs = {
            "probabilities": probabilities(margins),
            "word_weights": weights / given,
            "sentence_weights": sentences,
        }
        return keras.Model(ids, margins), keras.Model(ids, outputs), attend

    if form == "average":
        return build(form)[:2]
    built = {x: build(x) for x in (FORMS[:2] if form == "auto" else (form,))}
    vectors = {x: document_vectors(attend, fold) for x, (*_, attend) in built.items()}
    if form == "auto":
        form = choose_form(vectors, labels, words, seed)
    model, reader, attend = built[form]
    attend.prior.assign(log_prior(vectors[form], labels, words, form))
    return model, reader


def find_pairs(data, chosen, words):
    """The codes of the pairs of known words in `LEAST` of the documents `chosen`, sorted."""
    ids, base = tf.gather(data.ids, chosen), min(words, LARGEST)
    sentence = ids.values.value_rowids().numpy()
    owner = ids.value_rowids().numpy()[sentence]
    flat = ids.flat_values.numpy().astype("int64")
    known = flat < min(base, words - 1)  # the last word id is the unknown word
    inside = known[:-1] & known[1:] & (sentence[:-1] == sentence[1:])
    codes = (flat[:-1] * base + flat[1:])[inside]
    each = np.unique(codes * len(chosen) + owner[:-1][inside]) // len(chosen)
    codes, counts = np.unique(each, return_counts=True)
    return codes[counts >= LEAST].astype("int32")


def document_vectors(attend, fold):
    """What a layer reads of the training documents of a fold, sparse `(documents, n-grams)`."""
    import scipy.sparse

    batches, data = fold.data.batches(fold.train), fold.data
    rows = [ops.convert_to_numpy(attend.read(data.padded(batch))[0]) for batch in batches]
    rows = scipy.sparse.vstack([scipy.sparse.csr_array(x) for x in rows], format="csr")
    return rows[np.argsort(np.concatenate(batches))]  # `train` is sorted


def log_ratios(counts):
    """How much more of the n-grams of a class an n-gram is than of the others, `(C, n-grams)`.

        r[c,n] = log((1 + N[c,n]) / sum_m (1 + N[c,m])) - the same for the other classes

    These are the weights of naive Bayes, with one document added to every count.
    """

    def log_share(counts):
        return np.log((1 + counts) / (1 + counts).sum(axis=1, keepdims=True))

    return log_share(counts) - log_share(counts.sum(axis=0) - counts)


def log_prior(vectors, labels, words, form):
    """The part of the score that depends on the n-gram, the logarithm of

        sqrt(max_c r[c,n])                                             for "opinion"
        sqrt(w[n] + max_c r[c,n] / 10) (1 + log((1 + D) / (1 + D[n])))  for "topic"

    where D[n] of the D documents hold the n-gram, r[c,n] is in `log_ratios`, and w[n] is 1 for
    words and 0 for pairs. The second factor is the inverse document frequency, so topics are close
    to TF-IDF.

    Args:
        vectors: `(documents, n-grams)`, not zero where a document holds an n-gram.
        labels: `(documents,)`.
        words: the number of word ids.
        form: "opinion" or "topic".

    Returns:
        `(n-grams,)`.
    """
    held = vectors > 0
    counts = np.stack([held[labels == label].sum(axis=0) for label in np.unique(labels)])
    prior = np.maximum(log_ratios(counts).max(axis=0), 1e-3)
    if form == "opinion":
        return 0.5 * np.log(prior)
    word = np.arange(len(prior)) < words - 1
    frequency = (1 + counts.sum(axis=0)) / (1 + len(labels))
    return 0.5 * np.log(word + SPECIFIC * prior) + np.log(1 - np.log(frequency))


def choose_form(vectors, labels, words, seed):
    """Chooses the form with which a linear SVM is right more often, in five folds of blocks.

    The model is linear in its vectors, and its loss is the SVM's. The folds are blocks like those
    that judge the model: random ones would put neighbours, which are alike, on both sides.
    """
    from sklearn.metrics import accuracy_score
    from sklearn.model_selection import StratifiedKFold
    from sklearn.preprocessing import normalize
    from sklearn.svm import LinearSVC

    smallest = np.bincount(labels).min()
    if smallest < 2:
        return FORMS[0]
    right, folds = {}, StratifiedKFold(min(5, smallest))
    for form, rows in vectors.items():
        guesses = np.empty_like(labels)
        for inside, held in folds.split(rows, labels):
            prior = log_prior(rows[inside], labels[inside], words, form)
            scored = normalize(rows * np.exp(prior))
            svm = LinearSVC(random_state=seed).fit(scored[inside], labels[inside])
            guesses[held] = svm.predict(scored[held])
        right[form] = accuracy_score(labels, guesses)
    best = max(right, key=right.get)
    shares = ", ".join(f"{form} {share:.1%}" for form, share in right.items())
    print(f"form of the weights: {best}; a linear SVM is right in {shares}", flush=True)
    return best
