"""Judges models of bags beside scikit-learn, measures whether weights are reasons, and saves."""

from functools import partial

import keras
import numpy as np
import tensorflow as tf
from keras import ops
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.metrics import roc_auc_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

from examples.bags.model import with_scaling
from examples.common.files import save_figure
from examples.common.saving import check_saved_model, write_model, write_saved_model
from keras_attention.faithfulness import comprehensiveness, gradient_times_input, sufficiency
from keras_attention.plotting import plot_bag

# They read the mean, minimum and maximum of each feature in a bag.
BASELINES = {
    "SVM": lambda seed, count: make_pipeline(StandardScaler(), SVC(random_state=seed)),
    "gradient boosting": lambda seed, count: HistGradientBoostingClassifier(
        # With leaves of at least 20 bags, the default, fewer than 40 bags are never split.
        min_samples_leaf=20 if count >= 40 else max(1, count // 10),
        random_state=seed,
    ),
}
SHARE = 0.1  # of the instances of a bag, which are erased
ROOM = 54  # letters for the features of an instance in the picture
NO_REASONS = (
    "The instances with the largest weights matter no more than random instances. The weights say\n"
    "what was read. Do not take them for the reasons of a prediction."
)


def predict(reader, bags, chosen):
    """The probabilities `(bags, classes)`, and for each bag its weights, if there are any."""
    probabilities, weights = {}, {}
    for batch in bags.batches(chosen):
        found = reader.predict_on_batch(bags.padded(batch))
        probabilities.update(zip(batch, found["probabilities"], strict=True))
        for bag, row in zip(batch, found.get("weights", []), strict=False):
            weights[bag] = row[: bags.sizes[bag]]
    return np.array([probabilities[bag] for bag in chosen]), weights


def evaluate(reader, bags, chosen):
    """Tests a model. Returns an entry of the results."""
    probabilities, weights = predict(reader, bags, chosen)
    entry = judged(probabilities.argmax(1), probabilities[:, 1:], bags, chosen)
    if bags.truth is not None:
        positive = chosen[bags.labels[chosen] == 1]
        # A model without weights is explained by gradients for the second class.
        scores = weights or {
            bag: gradients(reader, bags, np.array([bag]), slice(1, 2))[0] for bag in positive
        }
        found = [roc_auc_score(bags.truth[bags.of(bag)], scores[bag]) for bag in positive]
        entry["instance AUC"] = float(np.mean(found))
    return entry


def judged(predicted, scores, bags, chosen):
    """An entry: the share that is right and, of two classes, the scores of the second one."""
    entry = {"accuracy": 100 * float(np.mean(predicted == bags.labels[chosen]))}
    if len(bags.classes) == 2:
        entry["scores"] = np.ravel(scores).tolist()
        entry["labels"] = bags.labels[chosen].tolist()
    return entry


def gradients(reader, bags, chosen, classes=slice(None)):
    """The gradient times the input of each instance, for the predicted one of some classes."""
    given = bags.padded(chosen)
    mask = ops.convert_to_tensor(given["mask"])

    def probability(instances):
        return reader({"instances": instances, "mask": mask})["probabilities"][:, classes]

    return gradient_times_input(probability, given["instances"])


def add_baselines(results, names, bags, train, test, seed):
    """Adds classifiers of pooled features to the results."""
    x = np.array(
        [
            np.concatenate([rows.mean(0), rows.min(0), rows.max(0)])
            for rows in (bags.instances[bags.of(bag)] for bag in range(len(bags.sizes)))
        ]
    )
    for name, make in BASELINES.items():
        if results.find(pooling=name, **names):
            continue
        model = make(seed, len(train)).fit(x[train], bags.labels[train])
        scores = model.decision_function(x[test])
        entry = judged(model.predict(x[test]), scores, bags, test)
        results.add({"pooling": name, **names, **entry})


def report(results, poolings, bags):
    """Prints the mean of all folds, its standard deviation over the repeats, and the AUC.

    The first line is for comparison: what always naming the largest class gets right. Returns the
    other lines, as rows.
    """
    table = [["", "% right", "AUC", "instance AUC"]]
    counts = np.bincount(bags.labels)
    always = f"always {bags.classes[counts.argmax()]}"
    print(f"\n{'':20}{'% right':>16}{'AUC':>16}{'instance AUC':>15}")
    print(f"{always[:19]:20}{100 * counts.max() / counts.sum():16.1f}")
    for pooling in (*poolings, *BASELINES):
        repeats = {}
        for entry in results.results:
            if entry["pooling"] == pooling:
                repeats.setdefault(entry["repeat"], []).append(entry)
        cells = []
        for name in ("accuracy", "scores", "instance AUC"):
            found = [of_repeat(name, entries) for entries in repeats.values() if name in entries[0]]
            cells.append(spread(found) if found else "")
        if repeats:
            print(f"{pooling:20}{cells[0]:>16}{cells[1]:>16}{cells[2]:>15}")
            table.append([pooling, *cells])
    print("± is the standard deviation over the repeats.")
    return table


def of_repeat(name, entries):
    """The accuracy or AUC of the folds of a repeat."""
    if name != "scores":
        return np.mean([entry[name] for entry in entries])
    labels, scores = (np.concatenate([x[name] for x in entries]) for name in ("labels", "scores"))
    return roc_auc_score(labels, scores)


def spread(values):
    digits = 1 if max(values) > 1 else 3
    deviation = f" ± {np.std(values, ddof=1):.{digits}f}" if len(values) > 1 else ""
    return f"{np.mean(values):.{digits}f}{deviation}"


def measure_reasons(reader, bags, chosen):
    """Measures the effect of the instances of largest weight on the predictions.

    Returns:
        A table of text, and whether these instances matter more than random ones, by at least two
        standard errors.
    """
    random = np.random.default_rng(0)

    def probabilities(instances):
        mask = np.any(instances != 0, axis=2)
        return reader.predict_on_batch({"instances": instances, "mask": mask})["probabilities"]

    found = {}
    for batch in bags.batches(chosen):
        given = bags.padded(batch)
        kinds = {
            "weights": reader.predict_on_batch(given)["weights"],
            "gradient times input": gradients(reader, bags, batch),
            "random": random.random(given["mask"].shape),
        }
        for kind, importance in kinds.items():
            for measure in (comprehensiveness, sufficiency):
                lost = measure(probabilities, given["instances"], importance, SHARE)
                found.setdefault(kind, {}).setdefault(measure.__name__, []).extend(lost)
    lines = [
        f"What the probability of the predicted class loses, {SHARE:.0%} of the instances:",
        f"{'importance':22}{'without them':>14}{'with them alone':>17}",
    ]
    for kind, lost in found.items():
        means = [np.mean(lost[x.__name__]) for x in (comprehensiveness, sufficiency)]
        lines.append(f"{kind:22}{means[0]:14.3f}{means[1]:17.3f}")
    gain = np.subtract(*(found[x]["comprehensiveness"] for x in ("weights", "random")))
    matter = bool(gain.mean() > 2 * gain.std() / len(gain) ** 0.5)
    return "\n".join(lines if matter else [*lines, NO_REASONS]), matter


def save(reader, bags, scaled, chosen, scaling, output):
    """Writes and checks the `.keras` file and the SavedModel, and shows what was read."""
    served = with_scaling(reader, *scaling)
    write_model(served, output / "model.keras", bags.padded(chosen[:8]))
    probabilities, weights = predict(served, bags, chosen)
    if keras.backend.backend() == "tensorflow":
        path, bag = output / "saved_model", chosen[0]
        write_saved_model(path, make_serve(served), ["instances"], [served], tf.float32)
        expected = {"probabilities": probabilities[0]}
        expected |= {"weights": weights[bag]} if weights else {}
        check_saved_model(path, {"instances": bags.instances[bags.of(bag)].tolist()}, expected)
        print(f"{path}: takes the instances of a bag; its classes: {', '.join(bags.classes)}")
    else:
        print("The SavedModel needs the TensorFlow backend, and another --output.")
    if weights:
        table, matter = measure_reasons(reader, scaled, chosen)
        print(table)
        bag = chosen[probabilities[:, -1].argmax()]
        save_figure(output / "bag.png", draw(bags, scaled, bag, weights[bag], matter))
        print(f"{output / 'bag.png'}: the instances of a bag with the largest weights")


def make_serve(reader):
    """Makes the function of the SavedModel: one bag `(T, D)` to its probabilities and weights."""

    def serve(instances):
        mask = tf.ones((1, tf.shape(instances)[0]), "bool")
        found = reader({"instances": instances[None], "mask": mask}, training=False)
        return {name: x[0] for name, x in found.items()}

    return serve


def draw(bags, scaled, bag, weights, matter):
    """The instances with the largest weights: images, places, or some features of a row.

    Args:
        bags, scaled: all bags, and all bags standardised.
        bag, weights: the number of a bag, and its weights.
        matter: whether such instances matter more than random ones. If not, the picture says so.
    """
    rows, marked, notes = bags.of(bag), (), [] if matter else [NO_REASONS]
    if bags.truth is not None:
        shown, marked = bags.instances[rows].reshape(-1, 8, 8), np.flatnonzero(bags.truth[rows])
    elif bags.places is not None:
        shown = [f"at {', '.join(map(str, place))}" for place in bags.places[rows]]
    else:
        shown = [*map(partial(far, bags.features), bags.instances[rows], scaled.instances[rows])]
        notes = ["An instance is named by the features that are farthest from their mean.", *notes]
    title = f"bag {bags.names[bag]}, class: {bags.classes[bags.labels[bag]]}"
    figure = plot_bag(weights, shown, marked=marked, title=title)
    figure.supxlabel("\n".join(notes), size=8)
    return figure


def far(names, row, scaled):
    """The features of an instance that differ most from the mean, in deviations, as text."""
    text = ""
    for n in np.argsort(-np.abs(scaled), kind="stable"):
        longer = f"{text}{', ' * bool(text)}{names[n]} {row[n]:.3g}"
        if text and len(longer) > ROOM:
            break
        text = longer
    return text
