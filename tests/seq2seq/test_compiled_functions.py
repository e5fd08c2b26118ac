"""Compiled searches, and what may change in a model after they were compiled."""

import inspect
import re

import keras
import numpy as np
import pytest
from keras import layers

from keras_attention import (
    AttentionRNN,
    Ensemble,
    MonotonicAttention,
    RecurrentEncoder,
    Seq2Seq,
)
from keras_attention.seq2seq import BidirectionalEnsemble, _compiled_functions
from keras_attention.seq2seq._compiled_functions import Programs
from keras_attention.seq2seq._generation import OWN, SEARCHES
from tests import fast
from tests.backends import only_on
from tests.helpers import randomize
from tests.seq2seq.cases import END, SOURCES, START, TARGETS, E, H, U, V, make_model

compiled_only = only_on("tensorflow", "jax", reason="PyTorch compiles no search")
traced = []


class Scaled(layers.Layer):
    """Multiplies by numbers that stand in containers, and notes when it is traced."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.numbers = {"by feature": [1.0] * E}
        self.more = np.ones(E)
        self.keeps = False

    def call(self, x):
        traced.append(1)
        if self.keeps:
            self.last = x
        numbers = np.array(self.numbers["by feature"]) * self.more
        return x * keras.ops.convert_to_tensor(numbers, x.dtype)


def monotonic():
    """A model with a monotonic attention, and with numbers of its own in the encoder."""
    embedding = keras.Sequential([layers.Embedding(V, E), Scaled(name="scaled")])
    model = Seq2Seq(
        RecurrentEncoder(embedding, layers.GRU(H, return_sequences=True)),
        AttentionRNN(layers.GRUCell(H), MonotonicAttention(U)),
        layers.Embedding(V, E),
        layers.Dense(V),
        start_token=START,
        end_token=END,
    )
    model((SOURCES[:1], TARGETS[:1]))
    return randomize(model, 3)


def scaled(model):
    return model.encoder.embedding.get_layer("scaled")


def replace_head(model):
    other = make_model(seed=5).head
    model._tracker.unlock()
    model.head = other


# How to make a model, what to change in it.
CHANGES = {
    "window": (lambda: make_model("local-m"), lambda x: set_(x.decoder.attention, half_width=2)),
    "mode": (monotonic, lambda x: set_(x.decoder.attention, mode="hard")),
    "activation": (make_model, lambda x: set_(x.decoder.cell, activation=keras.activations.relu)),
    "encoder": (make_model, lambda x: set_(x.encoder.rnn.forward_layer, go_backwards=True)),
    "end": (make_model, lambda x: set_(x, end_token=4)),
    "start": (make_model, lambda x: set_(x, start_token=7)),
    "padding": (make_model, lambda x: set_(x, pad_token=7)),
    "list": (monotonic, lambda x: scaled(x).numbers["by feature"].__setitem__(1, -1.0)),
    "array": (monotonic, lambda x: scaled(x).more.__setitem__(1, -1.0)),
    "layer": (make_model, replace_head),
}


def set_(layer, **values):
    for name, value in values.items():
        setattr(layer, name, value)


def assert_same(found, expected):
    for x, y in zip(found, expected, strict=True):
        np.testing.assert_allclose(x, y, atol=1e-6)


@pytest.mark.parametrize("name", fast(CHANGES, ["window"], slow=0))
def test_generate_notices_a_change(name):
    make, change = CHANGES[name]
    model, fresh = make(), make()
    before = model.generate(SOURCES, 4)
    change(model)
    change(fresh)
    found, expected = (x.generate(SOURCES, 4) for x in (model, fresh))
    assert_same(found, expected)
    assert abs(found.scores - before.scores).max() > 1e-3


def test_log_probability_notices_a_change():
    model, fresh = (make_model("local-m") for _ in range(2))
    before = model.log_probability(SOURCES, TARGETS)
    model.decoder.attention.half_width = fresh.decoder.attention.half_width = 2
    found, expected = (x.log_probability(SOURCES, TARGETS) for x in (model, fresh))
    assert_same(found, expected)
    assert abs(found.scores - before.scores).max() > 1e-3


@pytest.mark.parametrize(
    "kind",
    [
        pytest.param(Ensemble, marks=pytest.mark.exhaustive),
        pytest.param(BidirectionalEnsemble, marks=pytest.mark.exhaustive),
    ],
)
def test_an_ensemble_notices_a_change_of_a_member(kind):
    def make():
        models = [make_model("local-m", seed=n) for n in (0, 1)]
        return models, Ensemble(models) if kind is Ensemble else BidirectionalEnsemble(*models)

    (models, model), (other, fresh) = make(), make()
    before = model.generate(SOURCES, 4)
    for _, last in (models, other):
        last.decoder.attention.half_width = 2
    found, expected = (x.generate(SOURCES, 4) for x in (model, fresh))
    assert_same(found, expected)
    assert abs(found.scores - before.scores).max() > 1e-3


def traces(model):
    """How often a model is traced to generate for two batch sizes."""
    before = len(traced)
    for rows in (SOURCES, SOURCES[:1], SOURCES):
        model.generate(rows, 4, batch_size=4)
    return len(traced) - before


@pytest.mark.slow
@compiled_only
def test_a_program_is_kept_while_nothing_changes():
    model = monotonic()
    model.compile(keras.optimizers.SGD(0.1), run_eagerly=True)
    assert traces(model) > 0
    for _ in range(2):
        model.fit(SOURCES, TARGETS, validation_data=(SOURCES, TARGETS), verbose=0)
        model.evaluate(SOURCES, TARGETS, verbose=0)
        model.train_on_batch(SOURCES, TARGETS)
        model.get_config()
        assert traces(model) == 0
    scaled(model).numbers["by feature"][0] = 2.0
    assert traces(model) > 0
    assert traces(model) == 0


@pytest.mark.slow
@compiled_only
def test_few_programs_serve_all_numbers():
    model = make_model()
    for search, options in (
        ("greedy", {}),
        ("beam", {"length_penalty": (0.0, 2.0), "coverage_penalty": (0.1, 0.2)}),
        ("sample", {"temperature": (0.5, 2.0), "top_p": (0.1, 0.9), "seed": (0, 5)}),
    ):
        model._programs = Programs()
        for n in range(40):
            share = n / 39
            numbers = {name: x + type(x)(share * (y - x)) for name, (x, y) in options.items()}
            found = model.generate(SOURCES, 1 + n, search, min_length=min(n, 2), **numbers)
            assert found.tokens.shape[-1] == found.log_probs.shape[-1] == 1 + n
            assert found.weights.shape[1] == 1 + n
        # Two buffers; a `min_length` of 0 and a `length_penalty` of 0 need no work.
        assert len(model._programs._functions) <= 4


@compiled_only
def test_programs_are_dropped(monkeypatch):
    monkeypatch.setattr(_compiled_functions, "MOST_PROGRAMS", 2)
    model = make_model()
    for width in (1, 2, 1, 3):
        model.generate(SOURCES, 4, beam_width=width)
    kept = set(model._programs._functions.values())
    assert len(kept) == 2
    for width in (1, 3):  # the program of two beams was used least recently
        model.generate(SOURCES, 4, beam_width=width)
    assert set(model._programs._functions.values()) == kept


@compiled_only
def test_a_layer_that_keeps_what_it_was_called_with_is_traced_once():
    model = monotonic()
    scaled(model).keeps = True
    counts = []
    for _ in range(3):
        before = len(traced)
        model.generate(SOURCES, 4)
        counts.append(len(traced) - before)
    assert counts[0] > 0
    assert counts[1:] == [0, 0]


@pytest.mark.slow
@only_on("tensorflow", reason="jit_compile")
def test_a_model_that_is_compiled_again_searches_with_xla():
    model = make_model()
    before = model.generate(SOURCES, 4)
    model.compile("sgd", jit_compile=True)
    assert_same(model.generate(SOURCES, 4), before)
    assert all(x._jit_compile for x in model._programs._functions.values())


def test_the_documentation_of_generate_names_the_options_and_their_defaults():
    text = inspect.getdoc(Seq2Seq.generate)
    named = dict(re.findall(r"`(\w+)=([^`]+)`", text[text.index("options: arguments") :]))
    parameters = [
        x for run in SEARCHES.values() for x in inspect.signature(run).parameters.values()
    ]
    expected = {
        x.name: repr(x.default).replace("'", '"')
        for x in parameters
        if x.name not in (*OWN, "prefix")
    }
    assert named == expected
