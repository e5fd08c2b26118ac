"""Files saved before arguments were renamed load, and their models give the same outputs.

`fixtures/make.py` tells which code saved them.
"""

import json
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import keras
import numpy as np
import pytest
from keras import layers, tree

from keras_attention import (
    AttentionRNN,
    BahdanauAttention,
    BiDAFAttentionFlow,
    LuongAttention,
    MemoryHop,
    MemoryNetwork,
)
from tests.helpers import assert_refused

FOLDER = Path(__file__).parent / "fixtures"
FILES = sorted(path.stem for path in FOLDER.glob("*.keras"))
SERVED = sorted(path.stem for path in FOLDER.glob("*.zip"))
OLD_NAMES = {"normalize", "score", "window", "output", "linear_start"}
every_file = pytest.mark.parametrize("name", FILES)


@pytest.fixture(scope="module")
def expected():
    with np.load(FOLDER / "expected.npz") as arrays:
        return dict(arrays)


def arrays_of(expected, name, kind):
    """The inputs, or the outputs, of one model."""
    count = sum(key.startswith(f"{name}.{kind}") for key in expected)
    return [expected[f"{name}.{kind}{n}"] for n in range(count)]


def assert_same_outputs(outputs, expected, name):
    wanted = arrays_of(expected, name, "output")
    assert len(outputs) == len(wanted) >= 2
    for x, y in zip(outputs, wanted, strict=True):
        assert x.dtype == y.dtype == "float32"
        # The absolute tolerance is for numbers near zero, which are sums of larger ones.
        np.testing.assert_allclose(x, y, rtol=1e-5, atol=1e-6)


def assert_runs(model, expected, name):
    outputs = tree.flatten(model.predict_on_batch(arrays_of(expected, name, "input")))
    assert_same_outputs([np.asarray(x) for x in outputs], expected, name)


def configs(file):
    """The class and the configuration of each layer of ours in a `.keras` file, nested ones too."""

    def found(x):
        if isinstance(x, dict) and str(x.get("registered_name")).startswith("keras_attention>"):
            yield x["class_name"], x["config"]
        for inner in x.values() if isinstance(x, dict) else x if isinstance(x, list) else ():
            yield from found(inner)

    with zipfile.ZipFile(file) as archive:
        return list(found(json.loads(archive.read("config.json"))))


def test_the_files_hold_every_layer_under_the_old_names(expected):
    assert {key.partition(".")[0] for key in expected} == set(FILES)
    assert len(SERVED) == 2
    found = [config for name in FILES for config in configs(FOLDER / f"{name}.keras")]
    assert {kind for kind, _ in found} == {
        "AttentionPooling",
        "AttentionRNN",
        "BahdanauAttention",
        "BiDAFAttentionFlow",
        "HierarchicalAttention",
        "LuongAttention",
        "MemoryHop",
        "MemoryNetwork",
    }
    assert {name for _, config in found for name in config} >= OLD_NAMES


@every_file
def test_a_file_loads_with_the_same_outputs(name, expected):
    assert_runs(keras.saving.load_model(FOLDER / f"{name}.keras"), expected, name)


@every_file
def test_a_file_saved_again_holds_the_new_names(name, expected, tmp_path):
    path = tmp_path / "again.keras"
    keras.saving.load_model(FOLDER / f"{name}.keras").save(path)
    assert not {name for _, config in configs(path) for name in config} & OLD_NAMES
    assert_runs(keras.saving.load_model(path), expected, name)


# Loads SavedModels where keras and keras_attention cannot be imported.
SERVE = """
import pathlib, sys

sys.modules.update({"keras": None, "keras_attention": None})
import numpy as np, tensorflow as tf

folder, arrays = pathlib.Path(sys.argv[1]), np.load(sys.argv[2])
for name in sys.argv[3:]:
    inputs = [tf.constant(arrays[key]) for key in arrays if key.startswith(f"{name}.input")]
    module = tf.saved_model.load(folder / name)
    np.savez(folder / f"{name}.npz", *tf.nest.flatten(module.serve(inputs)))
assert sys.modules["keras"] is sys.modules["keras_attention"] is None
"""


@pytest.fixture(scope="module")
def served(tmp_path_factory):
    folder = tmp_path_factory.mktemp("served")
    for name in SERVED:
        shutil.unpack_archive(FOLDER / f"{name}.zip", folder / name)
    done = subprocess.run(
        [sys.executable, "-c", SERVE, str(folder), str(FOLDER / "expected.npz"), *SERVED],
        env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "2"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return folder


@pytest.mark.parametrize("name", SERVED)
def test_a_saved_model_runs_with_tensorflow_alone(name, served, expected):
    with np.load(served / f"{name}.npz") as arrays:
        outputs = [arrays[f"arr_{n}"] for n in range(len(arrays))]
    assert_same_outputs(outputs, expected, name)


@pytest.mark.parametrize("linear", [False, True])
def test_a_configuration_alone_keeps_the_linear_start(linear):
    """Without weights, from which a file takes it."""
    query, value = np.ones((2, 3), "float32"), np.ones((2, 5, 3), "float32")
    hop = MemoryHop.from_config({"update": "linear", "linear_start": linear})
    assert (hop.update, hop.linear) == ("linear", linear)
    hop(query, value)
    assert hop.linear is linear
    options = {"vocabulary_size": 9, "units": 4, "linear_start": linear}
    assert MemoryNetwork.from_config(options).linear is linear


REFUSED = {
    "normalize": (
        lambda: BahdanauAttention(3, normalize=True),
        "BahdanauAttention: `normalize` is now called `weight_norm`; write weight_norm=True.",
    ),
    "score": (
        lambda: LuongAttention(score="dot"),
        "LuongAttention: `score` is now called `score_mode`; write score_mode='dot'.",
    ),
    "window": (
        lambda: LuongAttention(window=3),
        "LuongAttention: `window` is now called `half_width`; write half_width=3.",
    ),
    "output": (
        lambda: AttentionRNN(layers.GRUCell(4), BahdanauAttention(3), output="concat"),
        "AttentionRNN: `output` is now called `output_mode`; write output_mode='concat'.",
    ),
    "linear_start of a hop": (
        lambda: MemoryHop(linear_start=True),
        "MemoryHop: `linear_start` is now the attribute `linear`; write layer.linear = True before",
    ),
    "linear_start of a network": (
        lambda: MemoryNetwork(9, 4, linear_start=True),
        "MemoryNetwork: `linear_start` is now the attribute `linear`; write layer.linear = True",
    ),
    "a layer that never had it": (
        lambda: BiDAFAttentionFlow(window=3),
        "The arguments of BiDAFAttentionFlow are query_to_context, context_to_query,",
    ),
}


@pytest.mark.parametrize(("make", "message"), REFUSED.values(), ids=REFUSED)
def test_a_constructor_refuses_an_old_name(make, message):
    assert_refused(make, message)


class Scaled(BahdanauAttention):
    """A user's layer, with an argument that has one of the old names."""

    def __init__(self, units, normalize="by length", **kwargs):
        super().__init__(units, **kwargs)
        self.normalize = normalize


def test_a_subclass_may_use_an_old_name():
    layer = Scaled.from_config(Scaled(3, normalize="by width").get_config())
    assert (layer.normalize, layer.weight_norm) == ("by width", False)
