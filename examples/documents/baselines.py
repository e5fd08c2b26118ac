"""Linear models of the words alone, to compare with. On few documents they are hard to beat."""

import numpy as np
import tensorflow as tf

BASELINES = ("linear SVM", "logistic regression")
TOKENS = r"(?u)\w+|[^\w\s]"  # words, numbers and single signs, as in the other models


def run_baselines(task, number, seed):
    """Trains on all folds but one and tests on that one, with the TF-IDF of the words.

    Args:
        task: `Folds`.
        number: the fold to test on, counted from 0.
        seed: of the linear SVM.

    Returns:
        An entry of the results for each of `BASELINES`, or none if no training document has a word.
    """
    from sklearn.linear_model import LogisticRegression
    from sklearn.svm import LinearSVC

    if not task.has_words(number):
        return []
    _, train, test = count_words(task, number)
    inside = task.fold != number
    models = LinearSVC(random_state=seed), LogisticRegression(max_iter=1000)
    entries = []
    for name, model in zip(BASELINES, models, strict=True):
        model.fit(train, task.data.labels[inside])
        right = model.predict(test) == task.data.labels[~inside]
        entry = {"pooling": name, "fold": number + 1, "accuracy": 100 * float(right.mean())}
        entries.append({**entry, "documents": len(right)})
    return entries


def word_coefficients(task, number, vocabulary, seed):
    """What the linear SVM of a fold adds to the score of each class for a word, `(C, word ids)`."""
    from sklearn.svm import LinearSVC

    tf_idf, train, _ = count_words(task, number)
    inside = task.fold != number
    found = LinearSVC(random_state=seed).fit(train, task.data.labels[inside]).coef_ * tf_idf.idf_
    found = found if len(found) > 1 else np.concatenate([-found, found])
    ids = vocabulary(tf.constant(tf_idf.get_feature_names_out().tolist())).numpy()
    coefficients = np.zeros((len(found), vocabulary.size))
    coefficients[:, ids] = found
    coefficients[:, -1] = 0  # the unknown word
    return coefficients


def count_words(task, number):
    """A fitted `TfidfVectorizer`, and the rows of the training and of the test documents.

    The counts enter as logarithms (`sublinear_tf`). Of the forms that we tried on the test folds of
    reviews and passages this was among the best, so the comparison favours the linear models.
    """
    from sklearn.feature_extraction.text import TfidfVectorizer

    texts = np.array([document.text for document in task.texts], object)
    inside = task.fold != number
    tf_idf = TfidfVectorizer(sublinear_tf=True, token_pattern=TOKENS)
    train = tf_idf.fit_transform(texts[inside])
    return tf_idf, train, tf_idf.transform(texts[~inside])
