"""Tests a model beside linear ones, measures whether its weights are reasons, and saves it."""

import collections

import keras
import numpy as np
import tensorflow as tf
from keras import ops

from examples.common.files import remove, save_figure, write_text
from examples.common.saving import check_saved_model, write_model, write_saved_model
from examples.common.text import split_sentences, to_dense
from examples.documents import ngrams
from keras_attention.faithfulness import comprehensiveness, gradient_times_input, sufficiency
from keras_attention.plotting import Document, document_page, plot_document

TOKEN = r"\w+|[^\w\s]"
BASELINES = ("SVM of words", "SVM of words and pairs", "logistic regression of words")
SHARE, COUNT = 0.1, 200  # of the words of a document, which are erased; documents


def predict(reader, data, chosen):
    """What a reader says of the documents `chosen`: a dictionary of lists."""
    found = collections.defaultdict(dict)
    for batch in data.batches(chosen):
        for name, values in reader.predict_on_batch(data.padded(batch)).items():
            found[name].update(zip(batch, values, strict=True))
    return {name: [values[n] for n in chosen] for name, values in found.items()}


def evaluate(classifier, reader, fold, deciding=None):
    """Tests a model. Returns an entry of the results, and documents to show.

    `deciding` holds the number of the sentence that decides each document, if that is known. Shown
    are some documents of each class that are classified rightly, and some that are not.
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
    """Adds linear models of the TF-IDF of words or pairs, tested on a fold, to the results.

    Counts enter as logarithms, and a pair must occur in two documents. These forms were among the
    best that we tried on the test folds of reviews and paragraphs, which favours them.
    """
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
        model = make_pipeline(
            TfidfVectorizer(sublinear_tf=True, **counted), kind(random_state=seed, max_iter=1000)
        )
        try:
            model.fit(task.texts[train], task.labels[train])
        except ValueError:  # the documents have no words, or no words that occur twice
            continue
        accuracy = 100 * model.score(task.texts[test], task.labels[test])
        results.add({"pooling": name, "fold": number, "accuracy": accuracy})


def report(results, options, documents):
    """Prints the mean and the standard deviation over the finished folds.

    The first line is for comparison: what always naming the largest class gets right. Returns the
    means.
    """
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
        if pooling == "attention" and "deciding" in entries[0]:
            mean = np.mean([x["deciding"] for x in entries])
            print(f"  the sentence with the largest weight decides in {mean:.1f}%")
            figures["largest weight on the deciding sentence, %"] = mean
        figures[f"{pooling}, % right"] = np.mean([*found[pooling].values()])
    attention = found.pop("attention", {})
    for pooling, scores in found.items():
        gains = [attention[fold] - scores[fold] for fold in attention.keys() & scores]
        if gains:
            print(f"attention over {pooling}: {spread(gains)} points")
    return figures


def spread(values):
    """The mean of some numbers, and if there are several, their standard deviation and error."""
    if len(values) == 1:
        return f"{values[0]:.2f}"
    deviation = np.std(values, ddof=1)
    error = deviation / len(values) ** 0.5
    return f"{np.mean(values):.2f} ± {deviation:.2f} (standard error {error:.2f})"


def measure_reasons(classifier, reader, fold, seed):
    """What the predictions lose without the most important words, or with them alone.

    Args:
        classifier, reader: what `build_model` returns.
        fold: a `Fold`; at most `COUNT` of its test documents are taken.
        seed: of the choice of documents and of the random words.

    Returns:
        For each kind of importance its comprehensiveness and sufficiency, averaged over the
        documents. Under "weights matter": whether the words with the largest weights have more
        comprehensiveness than random words, by at least two standard errors.
    """
    random, found = np.random.default_rng(seed), collections.defaultdict(list)

    def probabilities(ids):
        return reader.predict_on_batch(ids)["probabilities"]

    for batch in fold.data.batches(random.permutation(fold.test)[:COUNT]):
        ids = fold.data.padded(batch)
        outputs = reader.predict_on_batch(ids)
        kinds = {
            "weights": outputs["word_weights"] * outputs["sentence_weights"][:, :, None],
            "gradient times input": gradients(classifier, ids),
            "random words": random.random(ids.shape),
        }
        for kind, importance in kinds.items():
            for measure in (comprehensiveness, sufficiency):
                lost = measure(probabilities, ids, importance, SHARE)
                found[kind, measure.__name__].extend(lost.tolist())
    reasons = collections.defaultdict(dict)
    for (kind, name), lost in found.items():
        reasons[kind][name] = float(np.mean(lost))
    gain = np.subtract(*(found[x, "comprehensiveness"] for x in ("weights", "random words")))
    reasons["weights matter"] = bool(gain.mean() > 2 * gain.std() / len(gain) ** 0.5)
    return reasons


def gradients(classifier, ids):
    """The gradient times the input of each word: its embedding, or for ngrams its weight."""
    layers = {layer.name: layer for layer in classifier.layers}
    if "ngrams" in layers:

        def predict(gates):
            return ngrams.probabilities(layers["ngrams"](ids, gates=gates[..., 0]))

        return gradient_times_input(predict, np.ones((*ids.shape, 1), "float32"))

    def predict(embedded):
        return ops.softmax(layers["classes"](layers["hierarchy"](embedded, mask=ids != 0)))

    return gradient_times_input(predict, layers["embedding"](ids))


def describe(reasons):
    """The measures as a table of text, and whether the weights are an explanation."""
    lines = [
        f"What the probability of the predicted class loses, {SHARE:.0%} of the words of at most "
        f"{COUNT} test documents:",
        f"{'importance':26}without them  with them alone",
    ]
    for kind in ("weights", "gradient times input", "random words"):
        lost, left = reasons[kind]["comprehensiveness"], reasons[kind]["sufficiency"]
        lines.append(f"{kind:26}{lost:12.3f}  {left:15.3f}")
    if not reasons["weights matter"]:
        lines.append(
            "The words with the largest weights matter no more than random words. The weights say "
            "what was read.\nDo not take them for the reasons of a prediction."
        )
    return "\n".join(lines)


def save(reader, fold, task, shown, reasons, output):
    """Writes and checks all files of a trained model. `shown` are the documents on the page.

    There is no picture if the weights do not matter, because a picture looks like an explanation.
    """
    note = describe(reasons)
    print(note, flush=True)
    write_model(reader, output / "model.keras", fold.data.padded(shown))
    if keras.backend.backend() != "tensorflow":
        print("SavedModel, page and picture need the TensorFlow backend, and another --output.")
        return
    path = output / "saved_model"
    serve = make_serve(reader, fold.vocabulary, task.classes, task.longest)
    write_saved_model(path, serve, ["texts"], [reader, fold.vocabulary])
    print(f"{path}: takes texts, returns classes and weights")
    probabilities = predict(reader, fold.data, shown)["probabilities"]
    expected = {"probabilities": np.array(probabilities)}
    reply = check_saved_model(path, {"texts": [*task.texts[shown]]}, expected)
    readings = [
        reading(task.documents[n], reply, row, fold.vocabulary) for row, n in enumerate(shown)
    ]
    title = f"Which words and sentences were read: {len(readings)} of the test documents"
    write_text(output / "documents.html", document_page(readings, title, note))
    print(f"{output / 'documents.html'}: documents with words and sentences coloured by weight")
    remove(output / "document.png")
    if reasons["weights matter"]:
        save_figure(output / "document.png", plot_document(readings[0]))
    else:
        print("No picture, because the weights explain nothing here.")


def make_serve(reader, vocabulary, classes, longest):
    """Makes the function of the SavedModel, from raw text to classes, probabilities and weights."""

    def serve(texts):
        size = tf.shape(texts)[0]
        words, begins, ends = map(to_dense, split_sentences(texts, longest))
        found = reader(vocabulary(words), training=False)
        result = {
            "label": tf.gather(tf.constant(classes), tf.argmax(found["probabilities"], axis=1)),
            "words": words,
            "start_byte": begins,
            "end_byte": ends,
            **found,
        }
        # Repeated for every text, because servers split an answer into rows.
        names = tf.tile(tf.constant(classes)[None], [size, 1])
        return {"classes": names, **{name: value[:size] for name, value in result.items()}}

    return serve


def reading(document, reply, row, vocabulary):
    """One document of a reply of the SavedModel, with the text between its words."""
    text, last, sentences = document.text.encode(), 0, []
    names = ("words", "start_byte", "end_byte", "word_weights", "sentence_weights")
    for words, begins, ends, weights, share in zip(*(reply[x][row] for x in names), strict=True):
        count = sum(map(bool, words))  # padding is an empty string
        stops = [last, *ends][:count]
        gaps = [text[a:b].decode() for a, b in zip(stops, begins, strict=False)]
        last = ends[count - 1] if count else last
        sentences.append((words[:count], weights[:count], share, gaps))
    words, weights, shares, gaps = zip(*sentences, strict=True)
    flat = np.array([word for sentence in words for word in sentence], object)
    ids = vocabulary(tf.constant(flat, "string")).numpy()
    unknown = ", ".join(dict.fromkeys(flat[ids == vocabulary.size - 1]))
    return Document(
        words,
        weights,
        shares,
        gaps=gaps,
        name=document.name,
        predicted=reply["label"][row],
        probability=max(reply["probabilities"][row]),
        expected=document.label,
        note=unknown and f"The model does not know, and treats alike: {unknown}",
    )
