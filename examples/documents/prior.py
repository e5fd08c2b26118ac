"""Sets the scores of the n-grams before the training, and chooses the form of the weights.

An n-gram that one class uses more than the others is read more. How much more comes from naive
Bayes, which counts documents and learns nothing else.
"""

import collections

import numpy as np
from keras import ops

from examples.common.batching import budgeted
from examples.documents.ngrams import LARGEST, build_ngram_model
from examples.documents.outputs import padded, predict

CHOICES = ("auto", "opinion", "topic")  # "auto": naive Bayes chooses
LEAST = 2  # documents that a known pair must occur in
SPECIFIC = 0.1  # how much the ratio of naive Bayes adds to the weight of a word in "topic"


def find_pairs(data, chosen, words):
    """The codes of the pairs of known words in `LEAST` of the documents `chosen`, sorted."""
    base = min(words, LARGEST)
    lengths = np.diff(data.sentences)
    sentence = np.repeat(np.arange(len(lengths)), lengths)
    owner = np.repeat(np.arange(len(data.labels)), np.diff(data.documents))[sentence]
    first, second = data.words[:-1].astype("int64"), data.words[1:]
    # The last word id is the unknown word.
    inside = (sentence[:-1] == sentence[1:]) & np.isin(owner[:-1], chosen)
    inside &= (first < min(base, words - 1)) & (second < min(base, words - 1))
    codes = (first * base + second)[inside]
    documents = len(data.labels)
    each = np.unique(codes * documents + owner[:-1][inside]) // documents
    codes, counts = np.unique(each, return_counts=True)
    return codes[counts >= LEAST].astype("int32")


def count_documents(layer, data, chosen, settings):
    """The number of documents of each class that hold an n-gram: `(C, n-grams)`."""
    counts = np.zeros((layer.classes, layer.size))
    for batch in budgeted(data.sizes[chosen], settings["batch_size"], settings["cells"]):
        index = chosen[batch]
        for label, found in zip(data.labels[index], layer.ngrams(padded(data, index)), strict=True):
            counts[label, np.unique(ops.convert_to_numpy(found))] += 1
    counts[:, 0] = 0
    return counts


def log_ratios(counts):
    """How much more of the n-grams of a class an n-gram is than of the others, `(C, n-grams)`.

        r[c,n] = log((1 + N[c,n]) / sum_m (1 + N[c,m])) - the same for the other classes

    These are the weights of naive Bayes, with one document added to every count.
    """

    def log_share(counts):
        return np.log((1 + counts) / (1 + counts).sum(axis=1, keepdims=True))

    return log_share(counts) - log_share(counts.sum(axis=0) - counts)


def log_prior(counts, documents, words, form):
    """The part of the score that depends on the n-gram, the logarithm of

        sqrt(max_c r[c,n])                                             for "opinion"
        sqrt(w[n] + max_c r[c,n] / 10) (1 + log((1 + D) / (1 + D[n])))  for "topic"

    where D[n] of the D documents hold the n-gram, and w[n] is 1 for words and 0 for pairs. The
    second factor is the inverse document frequency, so topics are close to TF-IDF.

    Args:
        counts: `(C, n-grams)`, what `count_documents` returns.
        documents: D.
        words: the number of word ids.
        form: of the weights.

    Returns:
        `(n-grams,)`.
    """
    prior = np.maximum(log_ratios(counts).max(axis=0), 1e-3)
    if form != "topic":
        return 0.5 * np.log(prior)
    word = np.arange(len(prior)) < words - 1
    frequency = (1 + counts.sum(axis=0)) / (1 + documents)
    return 0.5 * np.log(word + SPECIFIC * prior) + np.log(1 - np.log(frequency))


def prepare(words, classes, data, chosen, pooling, settings):
    """Builds the model and the reader for the training documents `chosen`, with their prior."""
    pairs = find_pairs(data, chosen, words)
    form = "average" if pooling == "average" else settings["form"]

    def build(form):
        model, reader = build_ngram_model(words, len(pairs), classes, form)
        model.get_layer("ngrams").codes.assign(np.append(pairs, np.iinfo("int32").max))
        return model, reader

    if form == "auto":
        form = choose_form({form: build(form) for form in CHOICES[1:]}, data, chosen, settings)
    model, reader = build(form)
    layer = model.get_layer("ngrams")
    if form != "average":
        counts = count_documents(layer, data, chosen, settings)
        layer.prior.assign(log_prior(counts, len(chosen), words, form))
    return model, reader


def choose_form(models, data, chosen, settings):
    """Chooses the form with which naive Bayes is right more often, in five folds of `chosen`.

    Naive Bayes is the same model with the ratios as its values, so nothing has to be trained. Its
    prior is the same for both forms, so that only repetition and place make a difference.
    """
    part = np.random.default_rng(settings["seed"]).permutation(len(chosen)) % 5
    layer = next(iter(models.values()))[0].get_layer("ngrams")
    counts = [count_documents(layer, data, chosen[part == n], settings) for n in range(5)]
    right = collections.Counter()
    for form, (model, _) in models.items():
        layer = model.get_layer("ngrams")
        for n in range(5):
            held, others = chosen[part == n], sum(counts) - counts[n]
            prior = log_prior(others, len(chosen) - len(held), layer.words, "opinion")
            layer.prior.assign(prior)
            layer.value.assign(log_ratios(others).T)
            for batch, margins in predict(model, data, held, settings):
                right[form] += int((margins.argmax(axis=1) == data.labels[held[batch]]).sum())
    best = max(models, key=right.get)
    shares = ", ".join(f"{form} {100 * right[form] / len(chosen):.1f}%" for form in models)
    print(f"  form of the weights: {best}; naive Bayes is right in {shares}", flush=True)
    return best
