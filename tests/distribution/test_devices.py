"""The layout map, and what four devices that share a batch exchange and need."""

import json

import keras
import pytest
from keras import layers

from keras_attention import BahdanauAttention, LuongAttention
from keras_attention.distribution import get_layout_map
from tests import python
from tests.conformance.layers import CASES, every_case

# What every device has a copy of, because it is small: numbers, vectors of one width, and biases.
COPIED = {"gain", "bias", "query_vector", "context_vector", "product_vector", "linear"}
COPIED |= {"filter_kernel", "offset_bias", "agent_vector", "agent_bias", "mixture_bias"}
COPIED |= {"query_bias", "gate_bias", "score_bias", "visit_vector", "class_kernel", "class_bias"}
MESH = ("batch", "model")


@pytest.fixture
def layout_map(monkeypatch):
    # The map of names is the same on every backend, but has an effect on JAX alone.
    monkeypatch.setattr(keras.backend, "backend", lambda: "jax")
    mesh = keras.distribution.DeviceMesh((2, 2), MESH, [f"cpu:{n}" for n in range(4)])
    found = get_layout_map(mesh)
    monkeypatch.undo()
    return found


@every_case
def test_every_weight_of_a_layer_is_split_or_copied_on_purpose(case, layout_map):
    split = 0
    for weight in case.built().weights:
        parts = weight.path.split("/")
        layout = layout_map[weight.path]
        if parts[-1] in COPIED:
            assert layout is None
        elif not {"dense", "past_weights_attention"} & {x.rstrip("_0123456789") for x in parts}:
            assert len(layout.axes) == len(weight.shape)
            assert [x for x in layout.axes if x is not None] == ["model"]
            split += 1
    kernels = [weight for weight in case.built().weights if weight.path.endswith("kernel")]
    assert split or not kernels


@pytest.mark.parametrize(("layer", "split"), [
    (BahdanauAttention(4, name="reader"), (None, "model")),  # found by any name
    (LuongAttention("general"), ("model", None)),
    (LuongAttention("dot", units=8), (None, "model")),
    (LuongAttention("dot", "local-p"), (None, "model")),
])  # fmt: skip
def test_a_matrix_is_split_along_the_axis_that_exchanges_least(layer, split, layout_map):
    layer.build((2, 3, 16), (2, 5, 16))
    assert {layout_map[x.path].axes for x in layer.weights if len(x.shape) == 2} == {split}


def test_weights_of_other_layers_are_left_alone(layout_map):
    inputs, words = keras.Input((7, 6)), keras.Input((7,))
    hidden = layers.MultiHeadAttention(2, 3)(inputs, inputs)
    hidden = layers.LayerNormalization()(layers.Dense(6)(hidden))
    hidden = layers.AdditiveAttention()([layers.Conv1D(6, 3)(hidden), inputs])
    embedded = layers.Embedding(9, 6, name="embedding_1")(words)
    model = keras.Model([inputs, words], [layers.BatchNormalization()(hidden), embedded])
    assert len(model.weights) > 15
    assert all(layout_map[weight.path] is None for weight in model.weights)


def test_the_axes_of_the_mesh_are_checked(monkeypatch):
    monkeypatch.setattr(keras.backend, "backend", lambda: "tensorflow")
    with pytest.raises(ValueError, match="KERAS_BACKEND=jax"):
        get_layout_map(None)
    monkeypatch.setattr(keras.backend, "backend", lambda: "jax")
    with pytest.raises(ValueError, match="must be a keras"):
        get_layout_map((2, 2))
    mesh = keras.distribution.DeviceMesh((2,), ("batch",), ["cpu:0", "cpu:1"])
    other = keras.distribution.DeviceMesh((1, 1), ("data", "model"), ["cpu:0"])
    for given in ((mesh,), (mesh, "batch"), (other,), (other, "data", "data")):
        with pytest.raises(ValueError, match=r"must name two axes of the mesh.*\(N, 1\)"):
            get_layout_map(*given)
    assert len(get_layout_map(other, data_parallel_dim_name="data")) > 0


@pytest.mark.slow
def test_devices_exchange_no_samples_and_need_little_more_than_their_share_of_memory():
    pytest.importorskip("jax", reason="JAX is not installed")
    settings = {"KERAS_BACKEND": "jax", "JAX_PLATFORMS": "cpu", "JAX_NUM_CPU_DEVICES": "4"}
    settings["XLA_FLAGS"] = "--xla_backend_optimization_level=0"  # to compile, not to run
    programs = json.loads(python("-m", "tests.distribution.programs", **settings))
    assert {name for name, case in CASES.items() if case.first} < programs.keys()
    found = {name: x["samples"] for name, x in programs.items() if x.get("samples")}
    assert found.pop("reversed batch")  # the program that must
    # 92 samples, 3 beams, 61 words; and 3 words of each beam, from which a search chooses.
    assert found.keys() == {"search"}
    assert {tuple(x) for x in found["search"]} == {(92 * 3, 61), (92, 3 * 3)}
    shares = {name: x["share"] for name, x in programs.items() if "share" in x}
    assert shares
    assert {name: share for name, share in shares.items() if share > 0.35} == {}
