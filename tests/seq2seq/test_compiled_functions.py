"""Compiled searches, and what may change in a model after they were compiled."""

import inspect
import re

import keras
import numpy as np
import pytest
from keras import layers

from keras_attention import AttentionRNN, Ensemble, MonotonicAttention, RecurrentEncoder, Seq2Seq
from keras_attention.seq2seq import BidirectionalEnsemble, _compiled_functions
from keras_attention.seq2seq._compiled_functions import CompiledFunctions
from keras_attention.seq2seq._generation import OWN, SEARCHES
from tests import fast
from tests.backends import only_on
from tests.helpers import randomize
from tests.seq2seq.cases import SOURCES, TARGETS, E, H, U, V, joined, make_model, seq2seq

compiled_only = only_on("tensorflow", "jax", reason="PyTorch compiles no search")
traced = []


class Scaled(layers.Layer):
    """Multiplies by numbers that stand in containers, and notes when it is traced."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.numbers = {"by feature": [1.0] * E}
        self.keeps = False

    def call(self, x):
        traced.append(1)
        if self.keeps:
            self.last = x
        numbers = np.array(self.numbers["by feature"])
        return x * keras.ops.convert_to_tensor(numbers, x.dtype)


def monotonic():
    """A model with a monotonic attention, and with numbers of its own in the encoder."""
    embedding = keras.Sequential([layers.Embedding(V, E), Scaled(name="scaled")])
    encoder = RecurrentEncoder(embedding, layers.GRU(H, return_sequences=True))
    model = seq2seq(encoder, AttentionRNN(layers.GRUCell(H), MonotonicAttention(U)))
    model((SOURCES[:1], TARGETS[:1]))
    return randomize(model, 3)


def scaled(model):
    return model.encoder.embedding.get_layer("scaled")


def relu(x):
    x.decoder.cell.activation = keras.activations.relu


def pair(kind):
    return joined(kind, [make_model(seed=n) for n in (0, 1)])


# Attributes of layers that are not ours: how to make a model, which part of it changes, and how.
CHANGES = {
    "activation": (make_model, lambda x: x, relu),
    "encoder": (make_model, lambda x: x,
                lambda x: setattr(x.encoder.rnn.forward_layer, "go_backwards", True)),
    "list": (monotonic, lambda x: x,
             lambda x: scaled(x).numbers["by feature"].__setitem__(1, -1.0)),
    "ensemble": (lambda: pair(Ensemble), lambda x: x.models[1], relu),
    "both directions": (lambda: pair(BidirectionalEnsemble), lambda x: x.right_to_left, relu),
}  # fmt: skip


def assert_same(found, expected):
    for x, y in zip(found, expected, strict=True):
        np.testing.assert_allclose(x, y, atol=1e-6)


def test_an_argument_of_a_built_layer_is_fixed():
    model = make_model("local-m")
    fixed = {"half_width": model.decoder.attention, "query": model.decoder, "rnn": model.encoder}
    for name, layer in (fixed | dict.fromkeys(["end_token", "head"], model)).items():
        before = getattr(layer, name)
        message = rf"`{name}` is fixed once .* Make a new layer, \w+\."
        with pytest.raises(AttributeError, match=message):
            setattr(layer, name, 2)
        assert getattr(layer, name) is before


@pytest.mark.parametrize("name", fast(CHANGES, ["list"], slow=0))
def test_compile_drops_the_compiled_searches(name):
    make, part, change = CHANGES[name]
    model, fresh = make(), make()
    before = model.generate(SOURCES, 4)
    for one in (model, fresh):
        change(part(one))
        part(one).compile()
    found, expected = (x.generate(SOURCES, 4) for x in (model, fresh))
    assert_same(found, expected)
    assert abs(found.scores - before.scores).max() > 1e-3


def traces(model):
    """How often a model is traced to generate for two batch sizes."""
    before = len(traced)
    for rows in (SOURCES, SOURCES[:1], SOURCES):
        model.generate(rows, 4, batch_size=4)
    return len(traced) - before


@compiled_only
def test_a_search_is_compiled_once_while_nothing_changes():
    model = monotonic()
    scaled(model).keeps = True
    model.compile(keras.optimizers.SGD(0.1), run_eagerly=True)
    assert traces(model) > 0
    model.fit(SOURCES, TARGETS, validation_data=(SOURCES, TARGETS), verbose=0)
    model.evaluate(SOURCES, TARGETS, verbose=0)
    model.train_on_batch(SOURCES, TARGETS)
    model.decoder.trainable = not model.decoder.trainable
    model.get_config()
    assert traces(model) == 0
    model.compile()
    assert traces(model) > 0 == traces(model)


@pytest.mark.slow
@compiled_only
def test_few_compiled_functions_serve_all_numbers():
    model = make_model()
    for search, options in (
        ("greedy", {}),
        ("beam", {"length_penalty": (0.0, 2.0), "coverage_penalty": (0.1, 0.2)}),
        ("sample", {"temperature": (0.5, 2.0), "top_p": (0.1, 0.9), "seed": (0, 5)}),
    ):
        model._compiled_functions = CompiledFunctions()
        for n in (0, 1, 15, 31, 32, 39):
            share = n / 39
            numbers = {name: x + type(x)(share * (y - x)) for name, (x, y) in options.items()}
            found = model.generate(SOURCES, 1 + n, search, min_length=min(n, 2), **numbers)
            assert found.tokens.shape[-1] == found.log_probs.shape[-1] == 1 + n
            assert found.weights.shape[1] == 1 + n
        # Two buffers; a `min_length` of 0 and a `length_penalty` of 0 need no work.
        assert len(model._compiled_functions._functions) <= 4


@compiled_only
def test_the_search_used_least_recently_is_dropped(monkeypatch):
    monkeypatch.setattr(_compiled_functions, "MOST_FUNCTIONS", 2)
    model = make_model()
    for width in (1, 2, 1, 3):
        model.generate(SOURCES, 4, beam_width=width)
    kept = set(model._compiled_functions._functions.values())
    assert len(kept) == 2
    for width in (1, 3):
        model.generate(SOURCES, 4, beam_width=width)
    assert set(model._compiled_functions._functions.values()) == kept


@pytest.mark.slow
@only_on("tensorflow", reason="jit_compile")
def test_a_model_that_is_compiled_again_searches_with_xla():
    model = make_model()
    before = model.generate(SOURCES, 4)
    model.compile("sgd", jit_compile=True)
    assert_same(model.generate(SOURCES, 4), before)
    assert all(x._jit_compile for x in model._compiled_functions._functions.values())


def test_the_documentation_of_generate_names_the_options_and_their_defaults():
    text = inspect.getdoc(Seq2Seq.generate)
    named = dict(re.findall(r"`(\w+)=([^`]+)`", text[text.index("options: arguments") :]))
    expected = {
        x.name: repr(x.default).replace("'", '"')
        for run in SEARCHES.values()
        for x in inspect.signature(run).parameters.values()
        if x.name not in (*OWN, "prefix")
    }
    assert named == expected
