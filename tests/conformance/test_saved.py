"""Every layer is saved, loaded, cloned and served, and its file runs on another backend."""

import json
import os
import subprocess
import sys

import keras
import numpy as np
import pytest

from tests import ROOT
from tests.conformance.layers import CASES, few_names, first_cases, first_names
from tests.helpers import numpy
from tests.on_jax import run_on_jax

BLOCKED = """
import json, pathlib, sys

# A module that is None here cannot be imported.
sys.modules.update({"keras": None, "keras_attention": None})
import numpy as np, tensorflow as tf

root, found = pathlib.Path(sys.argv[1]), {}
for case in sorted(root.glob("*/saved")):
    arrays = np.load(case.parent / "data.npz")
    inputs = [tf.constant(arrays[n]) for n in sorted(arrays) if n.startswith("input")]
    module = tf.saved_model.load(case)
    outputs = tf.nest.flatten(module.serve(inputs))
    found[case.parent.name] = [
        float(np.abs(x.numpy() - arrays[f"output{n}"]).max()) for n, x in enumerate(outputs)
    ]
assert sys.modules["keras"] is sys.modules["keras_attention"] is None
print(json.dumps(found))
"""

JAX = """
import json, pathlib, traceback
import keras, keras_attention, numpy as np
import tests.past_weights

def check(folder):
    arrays = np.load(folder / "data.npz")
    inputs = [arrays[n] for n in sorted(arrays) if n.startswith("input")]
    model = keras.saving.load_model(folder / "model.keras")
    outputs = [np.asarray(x) for x in model.predict_on_batch(inputs)]
    errors = [float(np.abs(x - arrays[f"output{n}"]).max()) for n, x in enumerate(outputs)]
    training = keras.Model(model.inputs, model.outputs[0])
    training.compile(keras.optimizers.SGD(0.1), "mse", jit_compile=True)
    before = [np.array(w) for w in training.trainable_weights]
    training.train_on_batch(inputs, np.ones_like(outputs[0]))
    moved = [np.asarray(w) - old for w, old in zip(training.trainable_weights, before)]
    return errors, all(np.isfinite(x).all() and x.any() for x in moved)

results = {}
for folder in sorted(pathlib.Path(str(inputs["root"])).iterdir()):
    try:
        results[folder.name] = check(folder)
    except Exception:
        results[folder.name] = traceback.format_exc()
found["results"] = json.dumps(results)
"""


def selected(request, test):
    """The cases of a test that this run has selected."""
    items = [item for item in request.session.items if getattr(item, "module", 0) is request.module]
    return [item.callspec.params["name"] for item in items if item.originalname == test.__name__]


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
    """The errors of SavedModels in a process that cannot import Keras."""
    root = tmp_path_factory.mktemp("served")
    for name in selected(request, test_serving_without_keras):
        save(name, root).export(root / name / "saved", verbose=False)
    done = subprocess.run(
        [sys.executable, "-c", BLOCKED, str(root)],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.fixture(scope="module")
def run_by_jax(request, tmp_path_factory):
    """The errors of models that are loaded on JAX, and whether they train there."""
    root = tmp_path_factory.mktemp("saved")
    for name in selected(request, test_jax):
        save(name, root)
    found = run_on_jax(JAX, tmp_path_factory.mktemp("jax"), root=np.array(str(root)))
    return json.loads(str(found["results"]))


@first_names
def test_saving_and_loading(name, tmp_path):
    save(name, tmp_path)
    model = keras.saving.load_model(tmp_path / name / "model.keras")
    arrays = np.load(tmp_path / name / "data.npz")
    inputs = [arrays[n] for n in sorted(arrays) if n.startswith("input")]
    for n, output in enumerate(model(inputs)):
        assert np.array_equal(numpy(output), arrays[f"output{n}"])


@few_names
def test_serving_without_keras(name, served):
    errors = served[name]
    assert len(errors) == len(CASES[name].model().outputs)
    assert max(errors) <= 1e-6


@few_names
def test_jax(name, run_by_jax):
    result = run_by_jax[name]
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
        assert np.array_equal(x, y)
