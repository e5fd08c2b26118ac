"""Every layer is saved, loaded, cloned and served, and its file runs on every other backend."""

import functools
import importlib.util
import json
import os
import subprocess
import sys

import keras
import numpy as np
import pytest

from tests import ROOT
from tests.backends import BACKEND, on_tensorflow
from tests.conformance.layers import CASES, first_cases, first_names, slow_names
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
def served(request, tmp_path_factory):
    root = tmp_path_factory.mktemp("served")
    for name in selected(request, test_serving_without_keras):
        save(name, root).export(root / name / "saved", verbose=False)
    return answer(["-c", BLOCKED, str(root)])


@pytest.fixture(scope="module")
def loaded(request, tmp_path_factory):
    """A function of a backend: what it finds when it loads the models and trains them."""
    root = tmp_path_factory.mktemp("saved")
    for name in selected(request, test_another_backend):
        save(name, root)

    @functools.cache
    def load(backend):
        fast = {"XLA_FLAGS": "--xla_backend_optimization_level=0"}  # to compile, not to run
        return answer(["-m", "tests.conformance.loading", str(root)], KERAS_BACKEND=backend, **fast)

    return load


def answer(command, **settings):
    environment = {**os.environ, "PYTHONPATH": str(ROOT), **settings}
    options = {"capture_output": True, "text": True, "check": False}
    done = subprocess.run([sys.executable, *command], cwd=ROOT, env=environment, **options)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@first_names
def test_saving_and_loading(name, tmp_path):
    save(name, tmp_path)
    model = keras.saving.load_model(tmp_path / name / "model.keras")
    inputs, expected = arrays_of(tmp_path / name)
    for x, y in zip(model(inputs), expected, strict=True):
        assert np.array_equal(numpy(x), y)


@on_tensorflow
@slow_names
def test_serving_without_keras(name, served):
    errors = served[name]
    assert len(errors) == len(CASES[name].model().outputs)
    assert max(errors) <= 1e-6


@pytest.mark.parametrize("backend", OTHERS)
@slow_names
def test_another_backend(name, backend, loaded):
    if importlib.util.find_spec(backend) is None:
        pytest.skip(f"{backend} is not installed")
    result = loaded(backend)[name]
    assert isinstance(result, list), result
    errors, trained = result
    assert len(errors) == len(CASES[name].model().outputs)
    assert max(errors) <= 2e-6
    assert trained


@first_cases
def test_cloning(case):
    model, inputs = case.model(), case.inputs(5)
    clone = keras.models.clone_model(model)
    assert [w.shape for w in clone.weights] == [w.shape for w in model.weights]
    clone.set_weights(model.get_weights())
    for x, y in zip(clone(inputs), model(inputs), strict=True):
        assert np.array_equal(numpy(x), numpy(y))
