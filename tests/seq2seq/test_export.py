"""An exported model generates the same, and its inputs have names."""

import functools

import keras
import numpy as np
import pytest
from keras import layers

from keras_attention import Ensemble
from keras_attention.seq2seq import BidirectionalEnsemble
from tests import fast
from tests.backends import only_on
from tests.helpers import assert_refused, lengths_mask, numpy
from tests.seq2seq.cases import SOURCES, TARGETS, H, Joined, joined, make_model, seq2seq

pytestmark = only_on("tensorflow", reason="a SavedModel")
OTHERS = np.array([[4, 7, 5, 3, 9], [9, 8, 0, 0, 0], [3, 4, 6, 0, 0]])
NAMES = "width", "strip"


@pytest.mark.parametrize(("names", "expected"), [
    pytest.param(None, ("source", "source_1"), marks=pytest.mark.slow, id="unnamed"),
    pytest.param(NAMES, NAMES, marks=pytest.mark.exhaustive, id="dictionary"),
])  # fmt: skip
def test_several_inputs_keep_their_names(names, expected, served):
    """Two of one rank and dtype."""
    source = dict(zip(names, (SOURCES, OTHERS), strict=True)) if names else (SOURCES, OTHERS)
    model = seq2seq(Joined(NAMES))
    model((source, TARGETS))
    serve = served(model, 4, length_penalty=0.0)
    assert set(serve.inputs) == set(expected)
    found = serve(**{expected[1]: OTHERS, expected[0]: SOURCES})
    wanted = model.generate(source, 4, length_penalty=0.0, batch_size=2)
    assert np.array_equal(found["tokens"], wanted.tokens)
    np.testing.assert_allclose(found["scores"], wanted.scores, atol=1e-5)
    tokens = np.where(lengths_mask(wanted.lengths, 4), wanted.tokens, 0)
    again = model.log_probability(source, tokens)
    np.testing.assert_allclose(again.scores, wanted.scores, atol=2e-5)
    if names:
        lists = {name: [row[row > 0].tolist() for row in x] for name, x in source.items()}
        again = model.generate(lists, 4, length_penalty=0.0)
        assert np.array_equal(again.tokens, wanted.tokens)


@pytest.mark.parametrize("kind", fast(["one", "pair", "by name"], ["by name"]))
def test_sizes_that_an_encoder_fixes_stay_in_the_signature(kind, served):
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
    serve = served(model, 4)
    assert {name: x.shape.as_list() for name, x in serve.inputs.items()} == sizes
    assert np.array_equal(serve(**arrays)["tokens"], model.generate(source, 4).tokens)
    if kind == "pair":  # nothing calls the ensemble before
        assert served(joined(Ensemble, [model, model]), 4).inputs.keys() == sizes.keys()


@pytest.mark.slow
def test_an_exported_model_generates_the_same(model, served, tmp_path):
    (tmp_path / "saved").mkdir()
    model.export_generate(tmp_path / "saved", 2, "greedy")
    (tmp_path / "saved" / "assets" / "old").touch()
    serve = served(model, 6, beam_width=3)
    assert set(serve.inputs) == {"source"}
    expected, found = model.generate(SOURCES, 6, beam_width=3), serve(SOURCES)
    assert np.array_equal(found["tokens"], expected.tokens)
    for name in ("scores", "weights"):
        np.testing.assert_allclose(found[name], getattr(expected, name), atol=1e-6)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["saved"]
    assert not (tmp_path / "saved" / "assets" / "old").exists()
    for batch, steps in ((0, 0), (0, 5), (2, 0)):
        empty = serve(np.zeros((batch, steps)))
        assert empty["tokens"].shape == (batch, 6)
    expected = model.generate([[], []], 6, beam_width=3).scores
    np.testing.assert_allclose(empty["scores"], expected, atol=1e-6)


def test_an_export_deletes_no_other_files(model, tmp_path):
    for name in ("keep/notes.txt", "mixed/saved_model.pb", "mixed/calc.keras"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("x")
    (tmp_path / "mixed" / "variables").mkdir()
    before = sorted(tmp_path.rglob("*"))
    words = "`path` must be a new or empty folder, or a SavedModel"
    for path in (tmp_path / "keep", tmp_path / "keep" / "notes.txt", tmp_path / "mixed"):
        received = f"{path}, which holds other files"
        assert_refused(lambda x=path: model.export_generate(x, 6), words, received)
    assert sorted(tmp_path.rglob("*")) == before
    assert {path.read_text() for path in before if path.is_file()} == {"x"}


def test_wrong_arguments_of_an_export_are_refused(model, tmp_path):
    import tensorflow as tf

    table = tf.lookup.StaticHashTable(tf.lookup.KeyValueTensorInitializer(["a"], [3]), 4)
    for options, message in (
        ({"tokenize": "a"}, "`tokenize` must be a function or None; received 'a'"),
        ({"tracked": table}, "`tracked` must be a list"),
    ):
        call = functools.partial(model.export_generate, tmp_path / "model", 6, **options)
        assert_refused(call, message)
    tokenize = lambda texts: table.lookup(texts)[:, None]  # noqa: E731
    with pytest.raises(AssertionError, match="untracked"):
        model.export_generate(tmp_path / "model", 6, tokenize=tokenize)
    assert not list(tmp_path.iterdir())


@pytest.mark.slow
def test_an_exported_model_takes_and_returns_strings(model, served):
    import tensorflow as tf

    def tokenize(texts):
        return (tf.strings.unicode_decode(texts, "UTF-8") - ord("a")).to_tensor(0)

    def detokenize(tokens, lengths):
        letters = tf.RaggedTensor.from_tensor(tokens + ord("a"), lengths=lengths)
        return tf.strings.unicode_encode(letters, "UTF-8")

    def text(tokens):
        return "".join(chr(ord("a") + x) for x in tokens)

    options = {"n_best": 2, "min_length": 3}
    expected = model.generate(SOURCES, 6, **options)
    serve = served(model, 6, tokenize=tokenize, detokenize=detokenize, **options)
    found = serve([text(row[row > 0]) for row in SOURCES])["texts"]
    assert found.shape == expected.lengths.shape
    for place, written in np.ndenumerate(found):
        assert written.decode() == text(expected.tokens[place][: expected.lengths[place]])


@pytest.mark.slow
def test_trained_models_together_export_their_call(tmp_path):
    import tensorflow as tf

    model = joined(BidirectionalEnsemble, [make_model(seed=n) for n in (0, 1)])
    expected = model((SOURCES, TARGETS))
    model.export(tmp_path / "saved", verbose=False)
    loaded = tf.saved_model.load(str(tmp_path / "saved"))
    pair = tuple(tf.constant(x, "float32") for x in (SOURCES, TARGETS))  # as Keras exports it
    np.testing.assert_allclose(numpy(loaded.serve(pair)), numpy(expected), atol=1e-5)
