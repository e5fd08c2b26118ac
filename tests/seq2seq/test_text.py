"""Models of texts: they do with strings what they do with the ids of these strings."""

import functools
import json
import zipfile

import keras
import numpy as np
import pytest
from keras import layers

from examples.common import dates
from keras_attention import Ensemble, RecurrentEncoder, Seq2Seq
from keras_attention.plotting import attention_weights
from keras_attention.search import AllowedSequences, reverse_tokens
from keras_attention.seq2seq import BidirectionalEnsemble, PointerGenerator
from keras_attention.text import Characters
from tests import fast
from tests.backends import BACKEND, on_tensorflow
from tests.helpers import assert_refused, randomize
from tests.seq2seq.cases import E, H, bahdanau, joined, make_model, with_other

SOURCES = ["abca", "", "gfé", "bx"]
TARGETS = ["cba", "a", "efgg", ""]
LETTERS = Characters(["gfedcba"])  # with the four special tokens, the 11 tokens of `make_model`


def text_model(name="additive", seed=0, texts=LETTERS):
    if name == "pointer":
        texts = Characters(["abcd"])
    tokens = {"start_token": None, "end_token": None}
    model = with_other(make_model(name, seed), **tokens, source_text=texts, target_text=texts)
    model((np.array([[4, 3]]), np.array([[4, 3]])))
    return model


def ids_of(texts, tokenizer=LETTERS):
    rows = [[*tokenizer.encode(text), tokenizer.end_id] for text in texts]
    return keras.utils.pad_sequences(rows, padding="post")


def as_data(kind):
    """Sources and targets as arguments of `fit`."""
    if kind == "generator":
        return (((x, x[1]) for x in [(SOURCES, TARGETS)]),)
    if kind in ("dataset", "pairs"):
        tf = pytest.importorskip("tensorflow")
        pair = (tf.constant(SOURCES), tf.constant(TARGETS))
        pair = (pair, pair[1]) if kind == "pairs" else pair
        return (tf.data.Dataset.from_tensor_slices(pair).batch(4),)
    return tuple(KINDS[kind](x) for x in (SOURCES, TARGETS))


KINDS = {
    "list": lambda x: x,
    "dataset": None,
    "array": lambda x: np.array(x, str),
    "objects": lambda x: np.array(x, object),
    "bytes": lambda x: np.array([y.encode() for y in x], object),
    "generator": None,
    "pairs": None,
}


@pytest.mark.parametrize("kind", fast(KINDS, ["list"]))
def test_training_on_strings_is_training_on_ids(kind):
    models = [text_model() for _ in range(2)]
    for model in models:
        model.compile("sgd", run_eagerly=BACKEND == "tensorflow")
    data = as_data(kind)
    options = {"batch_size": 4} if len(data) == 2 else {"shuffle": False, "steps_per_epoch": 1}
    expected = models[0].fit(ids_of(SOURCES), ids_of(TARGETS), batch_size=4, verbose=0)
    found = models[1].fit(*data, verbose=0, **options)
    assert found.history["loss"] == pytest.approx(expected.history["loss"], rel=1e-5)
    if kind != "generator":
        expected = models[0].evaluate(ids_of(SOURCES), ids_of(TARGETS), verbose=0)
        assert models[1].evaluate(*data, verbose=0) == pytest.approx(expected, rel=1e-5)
    # By default an output has at most as many tokens as the longest target, "efgg" and its end.
    assert models[1].generate(SOURCES).tokens.shape == (4, 5)


def test_what_is_generated_are_the_texts_of_the_tokens():
    model = text_model()
    found = model.generate(SOURCES, 6, beam_width=3, n_best=2)
    expected = model.generate(ids_of(SOURCES), 6, beam_width=3, n_best=2)
    np.testing.assert_array_equal(found.tokens, expected.tokens)
    assert found.texts == [[LETTERS.decode(x) for x in row] for row in found.tokens]
    assert found.texts == expected.texts
    assert found.source_tokens[2:] == [["g", "f", "�", "[END]"], ["b", "�", "[END]"]]
    prefix = ["ab", "", "g", "a"]
    best = model.generate(np.array(SOURCES), 6, "greedy", prefix=prefix)
    assert [x[: len(y)] for x, y in zip(best.texts, prefix, strict=True)] == prefix
    weights, source, target = found.alignment(2, 1)
    assert source == found.source_tokens[2]
    assert target == LETTERS.labels(found.tokens[2, 1, : found.lengths[2, 1]])
    np.testing.assert_array_equal(weights, found.weights[2, 1, : len(target), :4])
    scored = model.log_probability(SOURCES, TARGETS)
    again = model.log_probability(ids_of(SOURCES), ids_of(TARGETS))
    np.testing.assert_allclose(scored.log_probs, again.log_probs, atol=1e-6)
    pairs = (SOURCES, TARGETS), (ids_of(SOURCES), ids_of(TARGETS))
    np.testing.assert_array_equal(*(x for y in pairs for x in attention_weights(model, y).values()))


@pytest.mark.parametrize("name", fast(["additive", "pointer", "hard, monotonic"], ["additive"]))
def test_a_saved_model_has_its_tokenizers(name, tmp_path):
    model = text_model(name)
    model.compile("sgd", run_eagerly=BACKEND == "tensorflow")
    model.fit(SOURCES, TARGETS, verbose=0)
    expected = model.generate(SOURCES, n_best=3)
    assert len({*map(str, expected.texts)}) > 1
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    again = loaded.generate(SOURCES, n_best=3)
    assert (again.texts, again.source_tokens) == (expected.texts, expected.source_tokens)
    clone = keras.models.clone_model(model)
    pairs = zip(*(x.tokenize(SOURCES, TARGETS) for x in (clone, model)), strict=True)
    assert all(np.array_equal(x, y) for x, y in pairs)


def test_a_hostile_file_executes_nothing(tmp_path):
    """The tokenizer of a file must be a class that is registered, and a tokenizer."""
    model = text_model()
    model.save(tmp_path / "model.keras")
    for changed, words in (
        ({"module": "os", "class_name": "system", "registered_name": "system"}, "Could not"),
        ({"module": "keras.layers", "class_name": "Dense", "registered_name": None,
          "config": {"units": 3}}, "`source_text` must be a keras_attention.text.Tokenizer"),
        ({"config": {"texts": "abc"}}, "`texts` must be a list of texts"),
        ({"config": {"texts": [3]}}, "`texts[0]` must be a string"),
    ):  # fmt: skip
        with zipfile.ZipFile(tmp_path / "model.keras") as file:
            contents = {name: file.read(name) for name in file.namelist()}
        config = json.loads(contents["config.json"])
        config["config"]["source_text"] |= changed
        contents["config.json"] = json.dumps(config)
        with zipfile.ZipFile(tmp_path / "hostile.keras", "w") as file:
            for name, content in contents.items():
                file.writestr(name, content)
        with pytest.raises((TypeError, ValueError)) as error:
            keras.saving.load_model(tmp_path / "hostile.keras")
        assert words in str(error.value)


@pytest.mark.parametrize("kind", fast([BidirectionalEnsemble, Ensemble], []))
def test_ensembles(kind, tmp_path):
    models = [text_model(seed=n) for n in range(2)]
    source, target = models[1].tokenize(SOURCES, TARGETS)
    np.testing.assert_array_equal(source, ids_of(SOURCES))
    models[1].compile("sgd", run_eagerly=BACKEND == "tensorflow")
    models[1].fit(SOURCES, reverse_tokens(target, LETTERS.end_id), verbose=0)
    model = joined(kind, models)
    expected = model.generate(ids_of(SOURCES), 5)
    assert model.generate(SOURCES).texts == expected.texts
    scores = model.log_probability(SOURCES, TARGETS).scores
    np.testing.assert_allclose(scores, model.log_probability(source, target).scores, atol=1e-6)
    model.save(tmp_path / "model.keras")
    loaded = keras.saving.load_model(tmp_path / "model.keras")
    assert loaded.generate(SOURCES).texts == expected.texts
    other = text_model(texts=Characters(["abcdefg"]))
    assert_refused(lambda: joined(kind, [models[0], other]), "must have the same tokenizers")


def test_a_pointer_copies_characters_that_the_vocabulary_lacks():
    model = text_model("pointer")
    bias = model.head.gate.weights[-1]
    bias.assign(np.full(bias.shape, -50.0))  # always copies
    found = model.generate(["éé", "ßé✓"], 4, "greedy", min_length=4)
    pairs = zip(found.texts, ("éé", "ßé✓"), strict=True)
    assert all({*text} <= {*source} for text, source in pairs)
    assert found.source_tokens[1] == ["ß", "é", "✓", "[END]"]
    scores = model.log_probability(["ßé", "ßé"], ["é", "✓"]).log_probs[:, 0]
    assert scores[0] > -20 > scores[1]
    # The target of training has the words of its source.
    source, target = model.tokenize(["ßéa"], ["éß✓a"])
    a = model.source_text.encode("a")[0]
    assert source.tolist() == [[8, 9, a, 3]]
    assert target.tolist() == [[9, 8, 1, a, 3]]


def with_embedding(rows):
    encoder = RecurrentEncoder(layers.Embedding(rows, E), layers.GRU(H, return_sequences=True))
    parts = bahdanau(), layers.Embedding(11, E), layers.Dense(11)
    return lambda: Seq2Seq(encoder, *parts, source_text=LETTERS, target_text=LETTERS)


def copying(source, target):
    parts, tokens = make_model("pointer"), {"start_token": 2, "end_token": 3}
    return lambda: with_other(parts, **tokens, source_text=source, target_text=target)


model = functools.cache(text_model)
FEW = Characters(["abcd"])


@pytest.mark.parametrize(("call", "words"), [
    (lambda: model().generate("abc", 3), ("the source must be a list", "Write [text]")),
    (lambda: model().generate(["a", None], 3), ("`source[1]` must be a string", "None")),
    (lambda: model().generate(np.array(["a", np.nan], object), 3), ("`source[1]`", "nan")),
    (lambda: model().generate(np.array([["a"]]), 3), ("strings must have one axis", "(1, 1)")),
    (lambda: model().generate(["a", "\ud800"], 3), ("`source[1]` must be valid Unicode",)),
    (lambda: model().generate([b"a", b"\xff"], 3), ("`source[1]` must be valid Unicode",)),
    (lambda: model().generate(["a"]), ("`max_length` is needed", "Pass max_length")),
    (lambda: model().log_probability(["a", "b"], ["a"]), ("the same number of samples", "[1, 2]")),
    (lambda: model().fit(["a", "b"]), ("need a source and its target",)),
    (lambda: make_model().generate(["a"], 3), ("which need `source_text`", "Characters(texts)")),
    (lambda: with_other(make_model(), target_text=LETTERS), ("`start_token` must be 2", "1")),
    (lambda: with_other(make_model(), source_text=["a"]),
     ("`source_text` must be a keras_attention.text.Tokenizer", "['a']")),
    (with_embedding(10), ("a row for every token of `source_text`, 11", "10")),
    (copying(FEW, None), ("a head that copies needs one tokenizer",)),
    (copying(FEW, Characters(["dcba"])), ("a head that copies needs one tokenizer",)),
    (copying(*[Characters(["abc"])] * 2),
     ("a head that copies needs one tokenizer", "unknown_token, (8, 1)", "(7, 1)")),
])  # fmt: skip
def test_mistakes(call, words):
    assert_refused(call, *words)


@functools.cache
def date_model():
    """A model of dates with random weights."""
    sources, targets = dates.make_pairs([1000])[0]
    texts = Characters([*sources, "é한👍🏽"]), Characters(targets)
    encoder = layers.Bidirectional(layers.GRU(H // 2, return_sequences=True, return_state=True))
    encoder = RecurrentEncoder(layers.Embedding(texts[0].vocabulary_size, E), encoder)
    size = texts[1].vocabulary_size
    parts = bahdanau(), layers.Embedding(size, E), layers.Dense(size)
    built = Seq2Seq(encoder, *parts, source_text=texts[0], target_text=texts[1])
    built(built.tokenize(sources[:1], targets[:1]))
    built._note_length(built.tokenize(None, targets)[1])
    odd = ["", "\u212b", "e\u0301", "\u1112\u1161\u11ab", "👍🏽"]
    odd += ["\ufeff", "\r\n", "\0", "\u200d", "хй"]
    rng = np.random.default_rng(0)
    return randomize(built, scale=1.0), [x + odd[rng.integers(len(odd))] for x in sources]


@on_tensorflow
def test_a_saved_model_returns_the_same_texts(served):
    model, sources = date_model()
    expected = model.generate(sources, beam_width=3, n_best=2)
    assert len({*map(tuple, expected.texts)}) > 500
    serve = served(model, None, beam_width=3, n_best=2)
    found = serve(np.array(sources, object))  # other arrays drop a NUL at the end
    assert [[x.decode() for x in row] for row in found["texts"]] == expected.texts


@pytest.mark.parametrize("search", fast(["beam", "greedy", "sample"], []))
def test_a_closed_set_of_texts(search, served):
    model, sources = date_model()
    allowed = [f"19{n:02}-0{n % 9}" for n in range(100)]
    names = AllowedSequences(map(model.target_text.encode, allowed), model.end_token)
    options = {"search": search, "logits_processors": [names]}
    found = model.generate(sources[:50], **options, **{"seed": 0} if search == "sample" else {})
    assert {*found.texts} <= {*allowed}
    assert len({*found.texts}) > 1
    # Another list is another program.
    options["logits_processors"] = [AllowedSequences([model.target_text.encode("2")], 3)]
    assert {*model.generate(sources[:5], **options).texts} == {"2"}
    if search == "greedy" and BACKEND == "tensorflow":
        assert "texts" not in served(model, 11, text=False)(model.tokenize(sources[:3])[0])
    if search == "beam" and BACKEND == "tensorflow":
        again = served(model, None, logits_processors=[names])(np.array(sources[:50], object))
        assert [x.decode() for x in again["texts"]] == found.texts


def test_a_pointer_of_texts_exports_ids_alone(tmp_path):
    pointer = text_model("pointer")
    assert isinstance(pointer.head, PointerGenerator)
    expected = "a head that copies words has no equal with texts in TensorFlow"
    assert_refused(lambda: pointer.export_generate(tmp_path, 4), expected, "text=False")
