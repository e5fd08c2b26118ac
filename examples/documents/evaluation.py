"""Tests a model beside linear ones, and saves it."""

import collections
import itertools

import numpy as np

from examples.common.files import save_figure, write_text
from examples.common.text import split_sentences
from examples.common.training import write_model
from keras_attention.plotting import Document, document_page, plot_document

TOKEN = r"\w+|[^\w\s]"
BASELINES = ("SVM of words", "SVM of words and pairs", "logistic regression of words")
NOTE = "A weight says how much was read, and not for which class it speaks."


def predict(reader, data, chosen):
    """What a reader says of the documents `chosen`: a dictionary of lists."""
    found = collections.defaultdict(dict)
    for batch in data.batches(chosen):
        for name, values in reader.predict_on_batch(data.padded(batch)).items():
            found[name].update(zip(batch, values, strict=True))
    return {name: [values[n] for n in chosen] for name, values in found.items()}


def evaluate(classifier, reader, fold, deciding=None):
    """Tests a model. Returns an entry of the results, and documents to show, of each class.

    `deciding` holds the number of the sentence that decides each document, if that is known.
    """
    found, labels = predict(reader, fold.data, fold.test), fold.data.labels[fold.test]
    right = np.argmax(found["probabilities"], axis=1) == labels
    entry = {"accuracy": 100 * float(right.mean()), "parameters": classifier.count_params()}
    print(f"accuracy {entry['accuracy']:.2f}%", flush=True)
    if deciding is not None:
        largest = [weights.argmax() for weights in found["sentence_weights"]]
        entry["deciding"] = 100 * float(np.mean(largest == np.array(deciding)[fold.test]))
    groups = [*(right & (labels == label) for label in np.unique(labels)), ~right]
    return entry, np.concatenate([fold.test[group][:4] for group in groups])


def add_baselines(results, task, number, seed):
    """Adds linear models of the TF-IDF of words or pairs, tested on a fold, to the results."""
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.svm import LinearSVC

    train, test = task.folds[number - 1]
    for name in BASELINES:
        kind = LogisticRegression if "logistic" in name else LinearSVC
        longest = 2 if "pairs" in name else 1
        if results.find(pooling=name, fold=number):
            continue
        counted = {"ngram_range": (1, longest), "min_df": longest, "token_pattern": TOKEN}
        vectors = TfidfVectorizer(sublinear_tf=True, **counted)
        model = make_pipeline(vectors, kind(random_state=seed, max_iter=1000))
        try:
            model.fit(task.texts[train], task.labels[train])
        except ValueError:  # the documents have no words, or no words that occur twice
            continue
        accuracy = 100 * model.score(task.texts[test], task.labels[test])
        results.add({"pooling": name, "fold": number, "accuracy": accuracy})


def report(results, options, documents):
    """Prints the mean and the standard deviation over the finished folds; returns the means."""
    found, figures, counts = {}, {}, collections.Counter(document.label for document in documents)
    [(label, count)] = counts.most_common(1)
    print(f"always {label}, % right: {100 * count / len(documents):.2f}")
    for pooling in (*options.pooling, *BASELINES):
        entries = [results.find(pooling=pooling, fold=n + 1) for n in range(options.runs)]
        entries = [x for x in entries if x]
        if not entries:
            continue
        found[pooling] = {x["fold"]: x["accuracy"] for x in entries}
        share = f"{len(entries)} of {options.folds} folds"
        print(f"{pooling}, {share}, % right: {spread([*found[pooling].values()])}")
        figures[f"{pooling}, % right"] = np.mean([*found[pooling].values()])
        if pooling == "attention" and "deciding" in entries[0]:
            mean = np.mean([x["deciding"] for x in entries])
            print(f"  the sentence with the largest weight decides in {mean:.1f}%")
            figures["largest weight on the deciding sentence, %"] = mean
    for pooling in found.keys() - {"attention"} if "attention" in found else ():
        both = found[pooling].keys() & found["attention"].keys()
        gains = [found["attention"][n] - found[pooling][n] for n in sorted(both)]
        print(f"attention over {pooling}: {spread(gains)} points")
    return figures


def spread(values):
    """The mean of some numbers, and if there are several, their standard deviation and error."""
    if len(values) == 1:
        return f"{values[0]:.2f}"
    deviation = np.std(values, ddof=1)
    error = deviation / len(values) ** 0.5
    return f"{np.mean(values):.2f} ± {deviation:.2f} (standard error {error:.2f})"


def save(reader, fold, task, shown, output):
    """Writes the files of a trained model. `shown` are the documents on the page."""
    write_model(reader, output / "model.keras", fold.data.padded(shown))
    found = predict(reader, fold.data, shown)
    each = [{name: x[row] for name, x in found.items()} for row in range(len(shown))]
    readings = [reading(task, n, x, fold.vocabulary) for n, x in zip(shown, each, strict=True)]
    title = f"Which words and sentences were read: {len(readings)} of the test documents"
    write_text(output / "documents.html", document_page(readings, title, NOTE))
    save_figure(output / "document.png", plot_document(readings[0]))
    print(f"{output}: documents.html and document.png show what was read. {NOTE}")


def reading(task, number, found, vocabulary):
    """One document and its weights, with the text between its words."""
    document = task.documents[number]
    sentences = split_sentences(document.text, task.longest)
    ends = itertools.chain([0], (token.end() for sentence in sentences for token in sentence))
    gaps = [[document.text[next(ends) : token.start()] for token in x] for x in sentences]
    words = [[token[0] for token in sentence] for sentence in sentences]
    unknown = [x for sentence in words for x in sentence if vocabulary(x) == vocabulary.size - 1]
    unknown = ", ".join(dict.fromkeys(unknown))
    return Document(
        words,
        found["word_weights"][: len(words)],
        found["sentence_weights"][: len(words)],
        gaps=gaps,
        name=document.name,
        predicted=task.classes[found["probabilities"].argmax()],
        probability=float(found["probabilities"].max()),
        expected=document.label,
        note=unknown and f"The model does not know, and treats alike: {unknown}",
    )
