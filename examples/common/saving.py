"""Writes Keras models completely or not at all, and checks them afterwards."""

import keras
import numpy as np

from examples.common.files import whole_file


def write_model(model, path, inputs):
    """Writes a `.keras` file. An earlier file is replaced when the new one is complete.

    The model that is loaded from it must have exactly the same weights and, but for rounding, the
    same predictions for the inputs. Returns these.
    """
    found = model.predict_on_batch(inputs)  # Keras warns of a model that was never called
    with whole_file(path) as temporary:
        model.save(temporary)
    loaded = keras.saving.load_model(path)
    weights = zip(model.get_weights(), loaded.get_weights(), strict=True)
    if not all(np.array_equal(x, y, equal_nan=True) for x, y in weights):
        raise SystemExit(f"{path} has other weights than the model that was saved")
    again = loaded.predict_on_batch(inputs)
    gaps = keras.tree.map_structure(lambda x, y: np.abs(x - y).max(), found, again)
    difference = np.max(keras.tree.flatten(gaps))  # unlike max(), it returns NaN if there is one
    # Not 0: TensorFlow optimises a graph for any length and one for this length differently.
    largest = max(np.abs(x).max() for x in keras.tree.flatten(found))
    if not difference <= 1e-5 * max(largest, 1):
        raise SystemExit(f"{path} differs by {difference:g} from the model that was saved")
    print(f"\n{path}: difference after reloading {difference:g}")
    return found
