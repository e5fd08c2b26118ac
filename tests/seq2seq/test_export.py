"""The names of the inputs of an exported model."""

import keras
import numpy as np
import pytest
from keras import layers

from keras_attention import Ensemble
from keras_attention.seq2seq import BidirectionalEnsemble
from tests import fast
from tests.backends import only_on
from tests.helpers import lengths_mask
from tests.seq2seq.cases import SOURCES, TARGETS, H, Joined, joined, make_model, seq2seq, served

pytestmark = only_on("tensorflow", reason="a SavedModel")
OTHERS = np.array([[4, 7, 5, 3, 9], [9, 8, 0, 0, 0], [3, 4, 6, 0, 0]])
NAMES = "width", "strip"


def two_sources(names=None):
    """A model that reads two sources of one rank and dtype: a functional encoder has names."""
    encoder, source = Joined(NAMES), dict(zip(NAMES, (SOURCES, OTHERS), strict=True))
    if names:
        inputs = [keras.Input((None,), dtype="int64", name=name) for name in names]
        encoder, source = keras.Model(inputs, encoder(inputs)), tuple(source.values())
    model = seq2seq(encoder)
    model((source, TARGETS))
    return model, source


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        pytest.param(NAMES, NAMES, marks=pytest.mark.exhaustive),
        pytest.param((None, None), ("source", "source_1"), marks=pytest.mark.slow),
        pytest.param(None, NAMES, marks=pytest.mark.exhaustive),
    ],
    ids=["functional", "unnamed", "dictionary"],
)
def test_several_inputs_keep_their_names(names, expected, tmp_path):
    model, source = two_sources(names)
    serve = served(model, tmp_path, 4, length_penalty=0.0)
    assert set(serve.inputs) == set(expected)
    found = serve(**{expected[1]: OTHERS, expected[0]: SOURCES})
    wanted = model.generate(source, 4, length_penalty=0.0, batch_size=2)
    assert np.array_equal(found["tokens"], wanted.tokens)
    np.testing.assert_allclose(found["scores"], wanted.scores, atol=1e-5)
    tokens = np.where(lengths_mask(wanted.lengths, 4), wanted.tokens, 0)
    again = model.log_probability(source, tokens)
    np.testing.assert_allclose(again.scores, wanted.scores, atol=2e-5)
    if names is None:
        lists = {name: [row[row > 0].tolist() for row in x] for name, x in source.items()}
        again = model.generate(lists, 4, length_penalty=0.0)
        assert np.array_equal(again.tokens, wanted.tokens)


@pytest.mark.exhaustive
@pytest.mark.parametrize("kind", [Ensemble, BidirectionalEnsemble])
def test_an_ensemble_keeps_the_names_of_its_models(kind, tmp_path):
    model, source = two_sources(NAMES)
    model((source, TARGETS))
    serve = served(joined(kind, [model, model]), tmp_path, 4)  # nothing calls it before
    assert set(serve.inputs) == set(NAMES)


@pytest.mark.parametrize("kind", fast(["one", "pair", "by name"], ["one"], slow=2))
def test_sizes_that_an_encoder_fixes_stay_in_the_signature(kind, tmp_path):
    """Other sizes are unknown, whatever the first call had."""
    ids, image = keras.Input((None,), name="ids"), keras.Input((8, 5, 3), name="image")
    arrays = {"ids": SOURCES.astype("float32"), "image": np.ones((3, 8, 5, 3), "float32")}
    sizes = {"ids": [None, None], "image": [None, 8, 5, 3]}
    memory = layers.Reshape((5, 24))(layers.Permute((2, 1, 3))(image))
    if kind == "one":
        inputs, source, sizes = image, arrays.pop("image"), {"source": sizes["image"]}
        arrays = {"source": source}
    else:
        memory = memory + keras.ops.mean(ids)
        pair = kind == "pair"
        inputs, source = ([ids, image], (*arrays.values(),)) if pair else ([image, ids], arrays)
    mask = keras.ops.ones_like(memory[:, :, 0], "bool")
    model = seq2seq(keras.Model(inputs, [memory, layers.Dense(H)(memory[:, 0]), mask]))
    model((source, TARGETS))
    serve = served(model, tmp_path, 4)
    assert {name: x.shape.as_list() for name, x in serve.inputs.items()} == sizes
    assert np.array_equal(serve(**arrays)["tokens"], model.generate(source, 4).tokens)


@pytest.mark.exhaustive
def test_a_single_input_is_called_source(tmp_path):
    assert set(served(make_model(), tmp_path, 4).inputs) == {"source"}
