"""A search computes what training does: with every attention, head and decoder.

The score of a search without a length penalty is the log probability of its result, as the call
computes it, which `test_seq2seq.py` compares with a model by hand.
"""

from types import SimpleNamespace

import keras
import numpy as np
import pytest
from keras import layers, ops, tree

from keras_attention import RecurrentEncoder, Seq2Seq
from keras_attention.attention import ScoringMixin
from keras_attention.decoder import AttentionRNN, DecoderStack
from keras_attention.layers import BahdanauAttention, MultiHead, MultiSource
from keras_attention.seq2seq import HardAttention, PointerGenerator, Readout
from tests.backends import BACKEND
from tests.conformance.layers import CASES as LAYERS
from tests.conformance.layers import QUERY
from tests.helpers import lengths_mask, randomize
from tests.seq2seq.cases import END, SOURCES, START, TARGETS, E, U, V

H = 5
BOTH = SOURCES, SOURCES[:, :4]


@keras.saving.register_keras_serializable("tests")
class TwoMemories(layers.Layer):
    """An encoder of two sources, whose memories have different sizes."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.parts = [recurrent_encoder(H), recurrent_encoder(3)]

    def build(self, shapes):
        for part, shape in zip(self.parts, shapes, strict=True):
            part.build(shape)

    def call(self, source, training=None):
        found = [part(x, training=training) for part, x in zip(self.parts, source, strict=True)]
        memories, _, masks = zip(*found, strict=True)
        return list(memories), None, list(masks)


def recurrent_encoder(units):
    return RecurrentEncoder(layers.Embedding(V, E), layers.GRU(units, return_sequences=True))


def rnn(**options):
    return lambda attention: AttentionRNN(layers.GRUCell(H), attention, **options)


def stack(attention):
    return DecoderStack([layers.LSTM(H, return_sequences=True) for _ in range(3)], attention)


def sources(attention):
    return MultiSource([attention, BahdanauAttention(U)])


# All attentions of the package that can stand in a decoder, with the options of the table.
ATTENTIONS = {
    name: case
    for name, case in LAYERS.items()
    if issubclass(case.layer, ScoringMixin)
    and case.arguments[0] is QUERY
    and not case.parts
    and all("key" not in argument.name for argument in case.arguments)
}
INSIDE = {
    "alone": lambda attention: attention,
    "heads": lambda attention: MultiHead(attention, 2),
    "sources": sources,
    "heads in sources": lambda attention: sources(MultiHead(attention, 2)),
}
DECODERS = {
    "previous": rnn(query="previous"),
    "fed": rnn(input_feeding=True, output_mode="concat"),
    "stack": stack,
    "hard": rnn(query="current", output_mode="cell"),
}
HEADS = {
    "dense": lambda: layers.Dense(V),
    "readout": lambda: Readout(U, vocabulary_size=V),
    "pointer": lambda: PointerGenerator(V, 3),
    "hard": lambda: HardAttention(V, U),
    "hard, monotonic": lambda: HardAttention(V, U, monotonic=True),
    "hard, reinforce": lambda: HardAttention(V, U, estimator="reinforce", seed=3),
}


WAYS = ["compiled", "eager", "reloaded", *["exported"] * (BACKEND == "tensorflow")]
# Parts that `Seq2Seq` accepts together: of several memories only a context is read.
PARTS = [
    ("heads", "fed", "pointer"),
    ("alone", "hard", "hard, monotonic"),
    ("sources", "stack", "readout"),
    ("heads in sources", "previous", "readout"),
    ("alone", "hard", "hard"),
    ("heads", "hard", "hard, reinforce"),
    ("alone", "previous", "pointer"),
    ("alone", "stack", "dense"),
    ("sources", "fed", "dense"),
    ("heads", "stack", "readout"),
    ("alone", "fed", "readout"),
]
CASES = []
for n, attention in enumerate(ATTENTIONS):  # so that all parts and ways meet
    parts, way = PARTS[n % len(PARTS)], WAYS[n % len(WAYS)]
    marks = [[], ["slow"], ["exhaustive"], ["slow"], ["exhaustive"]][n % 5]
    marks, name = [getattr(pytest.mark, x) for x in marks], ", ".join([attention, *parts, way])
    CASES.append(pytest.param(attention, parts, way, marks=marks, id=name))


@pytest.fixture
def searched(served, reloaded):
    """A function from a model, a source and a way to the result of a beam search."""

    def search(model, source, way):
        options = {"max_length": 5, "beam_width": 3, "length_penalty": 0.0}
        if way == "eager":
            found = model.search_batch(source, **options)
            return tree.map_structure(lambda x: ops.convert_to_numpy(x[:, 0]), found)
        if way == "exported":
            return SimpleNamespace(**served(model, **options)(*tree.flatten(source)))
        return (reloaded(model) if way == "reloaded" else model).generate(source, **options)

    return search


@pytest.mark.parametrize(("attention", "parts", "way"), CASES)
@pytest.mark.usefixtures("no_programs")
def test_the_score_of_a_search_is_the_log_probability(attention, parts, way, searched):
    inside, decoder, head = parts
    several = "sources" in inside
    source = BOTH if several else SOURCES
    decoder = DECODERS[decoder](INSIDE[inside](ATTENTIONS[attention].make()))
    encoder = TwoMemories() if several else recurrent_encoder(H)
    model = Seq2Seq(encoder, decoder, layers.Embedding(V, E), HEADS[head](), START, END)
    model((source, TARGETS))
    found = searched(randomize(model), source, way)
    # What follows the end token does not count.
    for target in (found.tokens, np.where(lengths_mask(found.lengths, 5), found.tokens, 0)):
        again = model.log_probability(source, target)
        np.testing.assert_allclose(again.scores, found.scores, atol=2e-5)
        np.testing.assert_allclose(again.log_probs, found.log_probs, atol=1e-5)
    weights = getattr(found, "weights", None)
    weights = [found.weights_0, found.weights_1] if weights is None else tree.flatten(weights)
    for x, y in zip(tree.flatten(again.weights), weights, strict=True):
        np.testing.assert_allclose(x, y, atol=1e-5)
