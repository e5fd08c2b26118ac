"""The names of the inputs of an exported model."""

import keras
import numpy as np
import pytest
from keras import layers

from keras_attention import Ensemble, Seq2Seq
from keras_attention.seq2seq import BidirectionalEnsemble
from tests import fast
from tests.backends import only_on
from tests.seq2seq.cases import END, SOURCES, START, TARGETS, H, V, bahdanau, make_model

pytestmark = only_on("tensorflow", reason="a SavedModel")
OTHERS = np.array([[4, 7, 5, 3, 9], [9, 8, 0, 0, 0], [3, 4, 6, 0, 0]])
WRAPS = {
    "ensemble": lambda model: Ensemble([model, model]),
    "both directions": lambda model: BidirectionalEnsemble(model, model),
}


class Both(layers.Layer):
    """The memories of two encoders, one behind the other."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.parts = [make_model(seed=n).encoder for n in (0, 1)]

    def call(self, source, training=None):
        pair = (source["width"], source["strip"]) if isinstance(source, dict) else source
        one, other = (part(x) for part, x in zip(self.parts, pair, strict=True))
        memory, mask = (keras.ops.concatenate([one[n], other[n]], 1) for n in (0, 2))
        return memory, other[1], mask


def two_sources(names=None):
    """A model that reads two sources of one rank and dtype: a functional encoder has names."""
    encoder, source = Both(), {"width": SOURCES, "strip": OTHERS}
    if names:
        inputs = [keras.Input((None,), dtype="int64", name=name) for name in names]
        encoder, source = keras.Model(inputs, encoder(inputs)), tuple(source.values())
    parts = bahdanau(), layers.Embedding(V, 5), layers.Dense(V)
    model = Seq2Seq(encoder, *parts, START, END)
    model((source, TARGETS))
    return model, source


def served(model, path):
    import tensorflow as tf

    model.export_generate(path, 4)
    return tf.saved_model.load(path).signatures["serving_default"]


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        pytest.param(("width", "strip"), ("width", "strip"), marks=pytest.mark.exhaustive),
        pytest.param((None, None), ("source", "source_1"), marks=pytest.mark.slow),
        pytest.param(None, ("width", "strip"), marks=pytest.mark.exhaustive),
    ],
    ids=["functional", "unnamed", "dictionary"],
)
def test_several_inputs_keep_their_names(names, expected, tmp_path):
    import tensorflow as tf

    model, source = two_sources(names)
    serve = served(model, tmp_path / "saved")
    assert set(serve.structured_input_signature[1]) == set(expected)
    found = serve(**{expected[1]: tf.constant(OTHERS), expected[0]: tf.constant(SOURCES)})
    wanted = model.generate(source, 4)
    assert np.array_equal(found["tokens"], wanted.tokens)
    np.testing.assert_allclose(found["scores"], wanted.scores, atol=1e-5)


@pytest.mark.parametrize(
    "kind",
    [
        pytest.param("ensemble", marks=pytest.mark.exhaustive),
        pytest.param("both directions", marks=pytest.mark.exhaustive),
    ],
)
def test_an_ensemble_keeps_the_names_of_its_models(kind, tmp_path):
    model, source = two_sources(("width", "strip"))
    model((source, TARGETS))
    serve = served(WRAPS[kind](model), tmp_path / "saved")  # nothing calls the ensemble before
    assert set(serve.structured_input_signature[1]) == {"width", "strip"}


@pytest.mark.parametrize("kind", fast(["one", "pair", "by name"], ["one"], slow=2))
def test_sizes_that_an_encoder_fixes_stay_in_the_signature(kind, tmp_path):
    """Other sizes are unknown, whatever the first call had."""
    import tensorflow as tf

    symbols = {
        "ids": keras.Input((None,), name="ids"),
        "image": keras.Input((8, 5, 3), name="image"),
    }
    arrays = {"ids": SOURCES.astype("float32"), "image": np.ones((3, 8, 5, 3), "float32")}
    memory = layers.Reshape((5, 24))(layers.Permute((2, 1, 3))(symbols["image"]))
    if kind == "one":
        del symbols["ids"], arrays["ids"]
    else:
        memory = memory + keras.ops.mean(symbols["ids"])
    mask = keras.ops.ones_like(memory[:, :, 0], "bool")
    inputs = {"one": symbols["image"], "pair": [*symbols.values()]}
    inputs = inputs.get(kind, [*symbols.values()][::-1])
    source = {"one": arrays["image"], "pair": (*arrays.values(),)}.get(kind, arrays)
    encoder = keras.Model(inputs, [memory, layers.Dense(H)(memory[:, 0]), mask])
    model = Seq2Seq(encoder, bahdanau(), layers.Embedding(V, 5), layers.Dense(V), START, END)
    model((source, TARGETS))
    serve = served(model, tmp_path / "saved")
    specs = serve.structured_input_signature[1]
    names = ["source"] if kind == "one" else list(arrays)
    assert {name: x.shape.as_list() for name, x in specs.items()} == {
        name: {"ids": [None, None]}.get(name, [None, 8, 5, 3]) for name in names
    }
    given = dict(zip(names, map(tf.constant, arrays.values()), strict=True))
    assert np.array_equal(serve(**given)["tokens"], model.generate(source, 4).tokens)


@pytest.mark.exhaustive
def test_a_single_input_is_called_source(tmp_path):
    assert set(served(make_model(), tmp_path / "saved").structured_input_signature[1]) == {"source"}
