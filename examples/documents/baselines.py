"""Linear models of the words alone, to compare with. On few documents they are hard to beat."""

import numpy as np

BASELINES = ("linear SVM", "logistic regression")
TOKENS = r"(?u)\w+|[^\w\s]"  # words, numbers and single signs, as in the other models


def run_baselines(task, number, seed):
    """Trains on all folds but one and tests on that one, with the TF-IDF of the words.

    The counts enter as logarithms (`sublinear_tf`). Of the forms that we tried on the test folds of
    reviews and passages this was among the best, so the comparison favours these models.

    Args:
        task: `Folds`.
        number: the fold to test on, counted from 0.
        seed: of the linear SVM.

    Returns:
        An entry of the results for each of `BASELINES`, or none if no training document has a word.
    """
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import LogisticRegression
    from sklearn.svm import LinearSVC

    texts = np.array([document.text for document in task.texts], object)
    inside = task.fold != number
    if not any(text.strip() for text in texts[inside]):
        return []
    tf_idf = TfidfVectorizer(sublinear_tf=True, token_pattern=TOKENS)
    train, test = tf_idf.fit_transform(texts[inside]), tf_idf.transform(texts[~inside])
    models = LinearSVC(random_state=seed), LogisticRegression(max_iter=1000)
    entries = []
    for name, model in zip(BASELINES, models, strict=True):
        model.fit(train, task.data.labels[inside])
        right = model.predict(test) == task.data.labels[~inside]
        entry = {"pooling": name, "fold": number + 1, "accuracy": 100 * float(right.mean())}
        entries.append({**entry, "documents": len(right)})
    return entries
