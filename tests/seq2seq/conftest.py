"""Models, and what their files and exports return."""

import functools

import keras
import pytest

from keras_attention.ops import compiling
from tests.seq2seq.cases import make_model


@pytest.fixture
def no_programs():
    """Compiling every training step would take most of the time."""
    with compiling(False):
        yield


@pytest.fixture(scope="module")
def models():
    """Makes the model of each name once, for tests that change nothing in it."""
    return functools.cache(make_model)


@pytest.fixture(scope="module")
def model(models):
    return models("additive")


@pytest.fixture
def reloaded(tmp_path):
    """A function from a model to the model in its file."""

    def reload(model):
        model.save(tmp_path / "model.keras")
        return keras.saving.load_model(tmp_path / "model.keras")

    return reload


@pytest.fixture
def served(tmp_path):
    """Exports a model that generates, and returns its signature as a function of NumPy arrays."""

    def export(model, max_length, *search, **options):
        import tensorflow as tf

        model.export_generate(tmp_path / "saved", max_length, *search, **options)
        serve = tf.saved_model.load(tmp_path / "saved").signatures["serving_default"]
        inputs = serve.structured_input_signature[1]

        def run(*source, **named):
            named |= dict(zip(sorted(inputs), source, strict=False))
            tensors = {name: tf.convert_to_tensor(x) for name, x in named.items()}
            for name, x in tensors.items():
                tensors[name] = x if x.dtype == "string" else tf.cast(x, inputs[name].dtype)
            return {name: x.numpy() for name, x in serve(**tensors).items()}

        run.inputs = inputs
        return run

    return export
