"""Whether the words with the largest weights are the reasons of a prediction."""

import collections

import numpy as np
from keras import ops

from examples.common.batching import budgeted
from examples.documents.baselines import word_coefficients
from examples.documents.ngrams import MarginProbabilities
from examples.documents.outputs import padded, padded_sizes
from keras_attention.faithfulness import (
    comprehensiveness,
    gradient_times_input,
    jensen_shannon,
    overlap,
    sufficiency,
)

SHARE = 0.1  # of the words of a document
COUNT = 200  # documents


def measure(model, reader, other, task, number, chosen, settings):
    """Erases the most important tenth of the words of documents, and then all others.

    Args:
        model, reader: what `build_model` returns.
        other: the reader of a model that was trained with another seed, or None.
        task: `Folds`. number: the fold of it that the model has not seen.
        chosen: documents of this fold; `COUNT` are taken at most.
        settings: a dictionary with the options of the training.

    Returns:
        For each kind of importance a dictionary of measures, averaged over the documents.
    """
    data, vocabulary, *_ = task.split(number)
    random = np.random.default_rng([settings["seed"], number])
    chosen = random.permutation(chosen)[:COUNT]
    coefficients = word_coefficients(task, number, vocabulary, settings["seed"])
    found = collections.defaultdict(lambda: collections.defaultdict(list))

    def predict(ids):
        return reader.predict_on_batch(ids)["probabilities"]

    for batch in budgeted(padded_sizes(data, chosen), settings["batch_size"], settings["cells"]):
        ids = padded(data, chosen[batch])
        outputs = reader.predict_on_batch(ids)
        classes = outputs["probabilities"].argmax(axis=1)
        weights = word_weights(outputs)
        kinds = {
            "weights": weights,
            "gradient times input": gradients(model, ids),
            "coefficients of the SVM": coefficients[classes[:, None, None], ids],
            "random words": random.random(ids.shape),
        }
        for kind, importance in kinds.items():
            for measured in (comprehensiveness, sufficiency):
                scores = measured(predict, ids, importance, SHARE)
                found[kind][measured.__name__] += scores.tolist()
        if other is not None:
            again = word_weights(other.predict_on_batch(ids))
            agreement = found["weights of another seed"]
            agreement["overlap"] += overlap(weights, again, ids, SHARE).tolist()
            agreement["jensen_shannon"] += jensen_shannon(weights, again).tolist()
    return {
        kind: {name: float(np.mean(scores)) for name, scores in measures.items()}
        for kind, measures in found.items()
    }


def word_weights(outputs):
    """The weight of each word in its document, `(B, S, W)`."""
    return outputs["word_weights"] * outputs["sentence_weights"][:, :, None]


def gradients(model, ids):
    """The gradient times the input of each word: its embedding, or for ngrams its weight."""
    names = [layer.name for layer in model.layers]
    if "ngrams" in names:
        attend, probabilities = model.get_layer("ngrams"), MarginProbabilities()

        def predict(gates):
            return probabilities(attend(ids, gates=gates[..., 0]))

        return gradient_times_input(predict, np.ones((*ids.shape, 1), "float32"))
    hierarchy, classes = model.get_layer("hierarchy"), model.get_layer("classes")

    def predict(embedded):
        return ops.softmax(classes(hierarchy(embedded, mask=ids != 0)))

    return gradient_times_input(predict, model.get_layer("embedding")(ids))


def describe(reasons, number, count):
    """The measures as a table of text."""
    lines = [
        f"What the probability of the predicted class loses, {min(count, COUNT)} documents of fold "
        f"{number + 1}, {SHARE:.0%} of their words:",
        f"{'importance':26}without them  with them alone",
    ]
    for kind, measures in reasons.items():
        if "overlap" not in measures:
            lost, left = measures["comprehensiveness"], measures["sufficiency"]
            lines.append(f"{kind:26}{lost:12.3f}  {left:15.3f}")
    for kind, measures in reasons.items():
        if "overlap" in measures:
            lines.append(
                f"Beside the {kind}: {measures['overlap']:.0%} of the most important words are the "
                f"same, Jensen-Shannon divergence {measures['jensen_shannon']:.3f} of 0.693"
            )
    return "\n".join(lines)
