"""What a model answers for many documents."""

import collections

from examples.common.batching import budgeted
from examples.common.devices import COMPILED

# Sizes are padded to multiples of this number.
MULTIPLE = 16 if COMPILED else 1


def read(reader, data, chosen, settings):
    """Predicts the documents `chosen`: a dictionary of lists with one item for each document."""
    found = collections.defaultdict(lambda: [None] * len(chosen))
    for batch, outputs in predict(reader, data, chosen, settings):
        for name, values in outputs.items():
            for n, value in zip(batch, values, strict=True):
                found[name][n] = value
    return found


def predict(model, data, chosen, settings):
    """Yields batches, as indices into `chosen`, with the outputs of the model for them."""
    sizes = padded_sizes(data, chosen)
    for batch in budgeted(sizes, settings["batch_size"], settings["cells"]):
        yield batch, model.predict_on_batch(padded(data, chosen[batch]))


def padded(data, chosen):
    """Ids `(B, S, W)` of the documents `chosen`, of few different sizes."""
    return data.padded(chosen, MULTIPLE)


def padded_sizes(data, chosen):
    """The sizes S and W of each document in `padded`."""
    return -(-data.sizes[chosen] // MULTIPLE) * MULTIPLE
