"""Linear models of words and pairs, to compare with. On few documents they are hard to beat."""

import numpy as np
import tensorflow as tf

BASELINES = ("SVM of words", "SVM of words and pairs", "logistic regression of words")


def run_baselines(task, number, seed):
    """Trains on all folds but one and tests on that one, with the TF-IDF of words or pairs.

    Args:
        task: `Folds`.
        number: the fold to test on, counted from 0.
        seed: of the linear SVMs.

    Returns:
        An entry of the results for each of `BASELINES`, or none if no training document has a word.
    """
    from sklearn.linear_model import LogisticRegression
    from sklearn.svm import LinearSVC

    if not task.has_words(number):
        return []
    labels, inside = task.data.labels, task.fold != number
    models = [(LinearSVC(random_state=seed), 1), (LinearSVC(random_state=seed), 2)]
    models.append((LogisticRegression(max_iter=1000), 1))
    entries = []
    for name, (model, longest) in zip(BASELINES, models, strict=True):
        _, train, test = count_ngrams(task, number, longest)
        right = model.fit(train, labels[inside]).predict(test) == labels[~inside]
        entry = {"pooling": name, "fold": number + 1, "accuracy": 100 * float(right.mean())}
        entries.append({**entry, "documents": len(right)})
    return entries


def word_coefficients(task, number, vocabulary, seed):
    """What the SVM of the words of a fold adds to the score of a class, `(C, word ids)`."""
    from sklearn.svm import LinearSVC

    tf_idf, train, _ = count_ngrams(task, number, 1)
    inside = task.fold != number
    found = LinearSVC(random_state=seed).fit(train, task.data.labels[inside]).coef_ * tf_idf.idf_
    found = found if len(found) > 1 else np.concatenate([-found, found])
    ids = vocabulary(tf.constant(tf_idf.get_feature_names_out().tolist())).numpy()
    coefficients = np.zeros((len(found), vocabulary.size))
    coefficients[:, ids] = found
    coefficients[:, -1] = 0  # the unknown word
    return coefficients


def count_ngrams(task, number, longest):
    """A fitted `TfidfVectorizer`, and the rows of the training and of the test documents.

    The counts enter as logarithms (`sublinear_tf`). With pairs, every n-gram must occur in two
    documents. These forms were among the best that we tried on the test folds of reviews and
    paragraphs, so the comparison favours the linear models.
    """
    from sklearn.feature_extraction.text import TfidfVectorizer

    inside = task.fold != number
    tf_idf = TfidfVectorizer(
        sublinear_tf=True,
        ngram_range=(1, longest),
        min_df=longest,
        lowercase=False,
        tokenizer=str.split,
        token_pattern=None,
    )
    texts = task.tokens()
    try:
        train = tf_idf.fit_transform(texts[inside])
    except ValueError:  # no n-gram occurs twice
        train = tf_idf.set_params(min_df=1).fit_transform(texts[inside])
    return tf_idf, train, tf_idf.transform(texts[~inside])
