"""Whether the parts of an input with the largest weights are the reasons of a prediction."""

import collections

import numpy as np

from keras_attention.faithfulness import comprehensiveness, sufficiency

SHARE = 0.1  # of the parts of an input, which are erased


def measure(batches, probabilities, importances, seed=0):
    """What the predictions lose without the most important parts, or with them alone.

    `importances` returns arrays by their names for a batch, one of them "weights"; random ones are
    added. Returns for each name its mean comprehensiveness and sufficiency. Under "weights matter":
    whether the parts with the largest weights have more comprehensiveness than random ones, by at
    least two standard errors.
    """
    random, found = np.random.default_rng(seed), collections.defaultdict(list)
    for inputs in batches:
        kinds = importances(inputs)
        kinds["random"] = random.random(kinds["weights"].shape)
        for kind, importance in kinds.items():
            for loss in (comprehensiveness, sufficiency):
                lost = loss(probabilities, inputs, importance, SHARE)
                found[kind, loss.__name__].extend(lost.tolist())
    reasons = collections.defaultdict(dict)
    for (kind, name), lost in found.items():
        reasons[kind][name] = float(np.mean(lost))
    gain = np.subtract(*(found[x, "comprehensiveness"] for x in ("weights", "random")))
    reasons["weights matter"] = bool(gain.mean() > 2 * gain.std() / len(gain) ** 0.5)
    return reasons


def no_reasons(parts):
    return (
        f"The {parts} with the largest weights matter no more than random {parts}. The weights say "
        "what was read.\nDo not take them for the reasons of a prediction."
    )


def describe(reasons, parts):
    """The measures as a table of text, and whether the weights are an explanation."""
    lines = [
        f"What the probability of the predicted class loses, {SHARE:.0%} of the {parts}:",
        f"{'importance':26}without them  with them alone",
    ]
    for kind in ("weights", "gradient times input", "random"):
        lost, left = reasons[kind]["comprehensiveness"], reasons[kind]["sufficiency"]
        lines.append(f"{kind:26}{lost:12.3f}  {left:15.3f}")
    return "\n".join(lines if reasons["weights matter"] else [*lines, no_reasons(parts)])
