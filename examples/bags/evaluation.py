"""Judges models of bags beside scikit-learn, measures whether weights are reasons, and saves."""

import collections
from functools import partial

import numpy as np
from keras import ops
from sklearn.ensemble import HistGradientBoostingClassifier
from sklearn.metrics import roc_auc_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.svm import SVC

from examples.bags.model import with_scaling
from examples.common.files import save_figure
from examples.common.training import write_model
from keras_attention.faithfulness import comprehensiveness, gradient_times_input, sufficiency
from keras_attention.plotting import plot_bag

# They read the mean, minimum and maximum of each feature in a bag.
BASELINES = {
    "SVM": lambda seed, leaf: make_pipeline(StandardScaler(), SVC(random_state=seed)),
    "gradient boosting": lambda seed, leaf: HistGradientBoostingClassifier(
        min_samples_leaf=leaf, random_state=seed
    ),
}
SHARE = 0.1  # of the instances of a bag, which are erased
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
            bag: gradients(reader, bags.padded(np.array([bag])), slice(1, 2))[0] for bag in positive
        }
        found = [roc_auc_score(bags.truth[bags.of(bag)], scores[bag]) for bag in positive]
        entry["instance AUC"] = float(np.mean(found))
    return entry


def judged(predicted, scores, bags, chosen):
    """An entry: the share that is right and, of two classes, the scores of the second one."""
    entry = {"accuracy": 100 * float(np.mean(predicted == bags.labels[chosen]))}
    both = {"scores": np.ravel(scores).tolist(), "labels": bags.labels[chosen].tolist()}
    return entry | both if len(bags.classes) == 2 else entry


def gradients(reader, given, classes=slice(None)):
    """The gradient times the input of each instance, for the predicted one of some classes."""
    mask = ops.convert_to_tensor(given["mask"])

    def probability(instances):
        return reader({"instances": instances, "mask": mask})["probabilities"][:, classes]

    return gradient_times_input(probability, given["instances"])


def add_baselines(results, names, bags, train, test, seed):
    """Adds classifiers of pooled features to the results."""
    rows = [bags.instances[bags.of(bag)] for bag in range(len(bags.sizes))]
    x = np.array([np.concatenate([part.mean(0), part.min(0), part.max(0)]) for part in rows])
    for name, make in BASELINES.items():
        if results.find(pooling=name, **names):
            continue
        # With leaves of at least 20 bags, the default, fewer than 40 bags are never split.
        leaf = 20 if len(train) >= 40 else max(1, len(train) // 10)
        model = make(seed, leaf).fit(x[train], bags.labels[train])
        scores = model.decision_function(x[test])
        entry = judged(model.predict(x[test]), scores, bags, test)
        results.add({"pooling": name, **names, **entry})


def report(results, poolings, bags):
    """Prints the mean of all folds, its standard deviation over the repeats, and the AUC.

    Returns the lines as rows.
    """
    table = [["", "% right", "AUC", "instance AUC"]]
    counts = np.bincount(bags.labels)
    always = f"always {bags.classes[counts.argmax()]}"
    print(f"\n{'':20}{'% right':>16}{'AUC':>16}{'instance AUC':>15}")
    print(f"{always[:19]:20}{100 * counts.max() / counts.sum():16.1f}")
    for pooling in (*poolings, *BASELINES):
        repeats = collections.defaultdict(lambda: collections.defaultdict(list))
        for entry in results.results:
            if entry["pooling"] == pooling:
                for name, x in entry.items():
                    repeats[entry["repeat"]][name] += x if isinstance(x, list) else [x]
        found = collections.defaultdict(list)
        for of in repeats.values():
            found["accuracy"].append(np.mean(of["accuracy"]))
            if of["scores"]:
                found["AUC"].append(roc_auc_score(of["labels"], of["scores"]))
            if of["instance AUC"]:
                found["instance AUC"].append(np.mean(of["instance AUC"]))
        cells = [spread(found[name]) for name in ("accuracy", "AUC", "instance AUC")]
        if repeats:
            print(f"{pooling:20}{cells[0]:>16}{cells[1]:>16}{cells[2]:>15}")
            table.append([pooling, *cells])
    print("± is the standard deviation over the repeats.")
    return table


def spread(values):
    digits = 1 if max(values, default=0) > 1 else 3
    deviation = f" ± {np.std(values, ddof=1):.{digits}f}" if len(values) > 1 else ""
    return f"{np.mean(values):.{digits}f}{deviation}" if values else ""


def measure_reasons(reader, bags, chosen):
    """What the predictions lose without the most important instances, or with them alone.

    Returns a table of text, and whether the instances with the largest weights have more
    comprehensiveness than random ones, by at least two standard errors.
    """
    random, found = np.random.default_rng(0), collections.defaultdict(list)

    def ask(instances):
        mask = np.any(instances != 0, axis=2)
        return reader.predict_on_batch({"instances": instances, "mask": mask})

    def probabilities(instances):
        return ask(instances)["probabilities"]

    for batch in bags.batches(chosen):
        given = bags.padded(batch)
        kinds = {
            "weights": ask(given["instances"])["weights"],
            "gradient times input": gradients(reader, given),
            "random": random.random(given["mask"].shape),
        }
        for kind, importance in kinds.items():
            for loss in (comprehensiveness, sufficiency):
                lost = loss(probabilities, given["instances"], importance, SHARE)
                found[kind, loss.__name__].extend(lost.tolist())
    lines = [f"What the probability of the predicted class loses, {SHARE:.0%} of the instances:"]
    lines += [f"{'importance':26}without them  with them alone"]
    for kind in kinds:
        lost, left = (np.mean(found[kind, x]) for x in ("comprehensiveness", "sufficiency"))
        lines.append(f"{kind:26}{lost:12.3f}  {left:15.3f}")
    gain = np.subtract(*(found[x, "comprehensiveness"] for x in ("weights", "random")))
    matter = bool(gain.mean() > 2 * gain.std() / len(gain) ** 0.5)
    return "\n".join(lines if matter else [*lines, NO_REASONS]), matter


def save(reader, bags, scaled, chosen, scaling, output):
    """Writes and checks the `.keras` file, and shows what was read."""
    served = with_scaling(reader, *scaling)
    write_model(served, output / "model.keras", bags.padded(chosen[:8]))
    print(f"{output / 'model.keras'}: its classes: {', '.join(bags.classes)}")
    probabilities, weights = predict(served, bags, chosen)
    if weights:
        table, matter = measure_reasons(reader, scaled, chosen)
        print(table)
        bag = chosen[probabilities[:, -1].argmax()]
        save_figure(output / "bag.png", draw(bags, scaled, bag, weights[bag], matter))
        print(f"{output / 'bag.png'}: the instances of a bag with the largest weights")


def draw(bags, scaled, bag, weights, matter):
    """The instances of largest weight in a bag: images, or some features of a row.

    If they do not `matter` more than random ones, the picture says so.
    """
    rows, marked, notes = bags.of(bag), (), [] if matter else [NO_REASONS]
    if bags.truth is not None:
        shown, marked = bags.instances[rows].reshape(-1, 8, 8), np.flatnonzero(bags.truth[rows])
    else:
        shown = [*map(partial(far, bags.features), bags.instances[rows], scaled.instances[rows])]
        notes = ["An instance is named by the features that are farthest from their mean.", *notes]
    title = f"bag {bags.names[bag]}, class: {bags.classes[bags.labels[bag]]}"
    figure = plot_bag(weights, shown, marked=marked, title=title)
    figure.supxlabel("\n".join(notes), size=8)
    return figure


def far(names, row, scaled):
    """The three features of an instance that differ most from the mean, in deviations, as text."""
    chosen = np.argsort(-np.abs(scaled), kind="stable")[:3]
    return ", ".join(f"{names[n]} {row[n]:.3g}" for n in chosen)
