"""Every layer is saved, loaded, cloned and served, and its file runs on every other backend."""

import functools
import importlib.util
import json

import keras
import numpy as np
import pytest

from tests import python
from tests.backends import BACKEND, on_tensorflow
from tests.conformance.layers import CASES, first_names, slow_names
from tests.conformance.loading import arrays_of
from tests.helpers import numpy

BLOCKED = """
import json, pathlib, sys

# A module that is None here cannot be imported.
sys.modules.update({"keras": None, "keras_attention": None})
import numpy as np, tensorflow as tf

root, found = pathlib.Path(sys.argv[1]), {}
for case in sorted(root.glob("*/saved")):
    with np.load(case.parent / "data.npz") as file:
        arrays = dict(file)
    inputs = [tf.constant(arrays[n]) for n in sorted(arrays) if n.startswith("input")]
    module = tf.saved_model.load(case)
    outputs = tf.nest.flatten(module.serve(inputs))
    found[case.parent.name] = [
        float(np.abs(x.numpy() - arrays[f"output{n}"]).max()) for n, x in enumerate(outputs)
    ]
assert sys.modules["keras"] is sys.modules["keras_attention"] is None
print(json.dumps(found))
"""

OTHERS = [name for name in ("tensorflow", "jax", "torch") if name != BACKEND]


def selected(request, test):
    items = [x for x in request.session.items if getattr(x, "function", 0) is test]
    return dict.fromkeys(item.callspec.params["name"] for item in items)


def save(name, root):
    """Saves a case as `.keras`, with inputs of another size than usual and their outputs."""
    folder, case = root / name, CASES[name]
    model, inputs = case.model(), case.inputs(3, more=5)
    folder.mkdir()
    model.save(folder / "model.keras")
    arrays = {f"input{n}": x for n, x in enumerate(inputs)}
    outputs = {f"output{n}": numpy(x) for n, x in enumerate(model(inputs))}
    np.savez(folder / "data.npz", **arrays, **outputs)
    return model


@pytest.fixture(scope="module")
def found(request, tmp_path_factory):
    """A function of a backend: what it finds when it loads the models and trains them.

    Without a backend, what the exported models return.
    """
    root = tmp_path_factory.mktemp("saved")
    served = selected(request, test_serving_without_keras)
    for name in served | selected(request, test_another_backend):
        model = save(name, root)
        if name in served:
            model.export(root / name / "saved", verbose=False)

    @functools.cache
    def find(backend):
        if not backend:
            return answer("-c", BLOCKED, root)
        fast = {"XLA_FLAGS": "--xla_backend_optimization_level=0"}  # to compile, not to run
        return answer("-m", "tests.conformance.loading", root, KERAS_BACKEND=backend, **fast)

    return find


def answer(*arguments, **settings):
    return json.loads(python(*arguments, **settings).splitlines()[-1])


@first_names
def test_saving_loading_and_cloning(name, tmp_path):
    model = save(name, tmp_path)
    inputs, expected = arrays_of(tmp_path / name)
    clone = keras.models.clone_model(model)
    clone.set_weights(model.get_weights())
    for again in (keras.saving.load_model(tmp_path / name / "model.keras"), clone):
        for x, y in zip(again(inputs), expected, strict=True):
            assert np.array_equal(numpy(x), y)


@on_tensorflow
@slow_names
def test_serving_without_keras(name, found):
    errors = found(None)[name]
    assert len(errors) == len(CASES[name].model().outputs)
    assert max(errors) <= 1e-6


@pytest.mark.parametrize("backend", OTHERS)
@slow_names
def test_another_backend(name, backend, found):
    if importlib.util.find_spec(backend) is None:
        pytest.skip(f"{backend} is not installed")
    result = found(backend)[name]
    assert isinstance(result, list), result
    errors, trained = result
    assert len(errors) == len(CASES[name].model().outputs)
    assert max(errors) <= 2e-6
    assert trained
