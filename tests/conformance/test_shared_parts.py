"""A part that several layers share is one part in a file too, and its weights are there once."""

import copy
import operator

import keras
import numpy as np
import pytest
from keras import layers

import keras_attention as ka
from keras_attention.seq2seq import BidirectionalEnsemble
from tests import fast
from tests.helpers import assert_all_close, normal, randomize
from tests.seq2seq.cases import END, REVERSIBLE, SOURCES, START, TARGETS, V

D = 5  # the features of everything, so that many layers take the same part


@keras.saving.register_keras_serializable(package="tests")
class Projecting(ka.ScoringMixin):
    """A dot product with what a layer makes of the keys."""

    def __init__(self, projection, **kwargs):
        super().__init__(**kwargs)
        self.projection = projection

    def build(self, query_shape, value_shape=None, key_shape=None):
        super().build(query_shape, value_shape, key_shape)
        if not self.projection.built:
            self.projection.build(key_shape or value_shape)

    def project_key(self, key):
        return self.projection(key)

    def score(self, query, key):
        return keras.ops.einsum("bqd,bkd->bqk", query, key)


def gru():
    return layers.GRU(D, return_sequences=True)


def decoder(cell=None, attention=None):
    cell, attention = cell or layers.GRUCell(D), attention or ka.BahdanauAttention(3)
    return ka.AttentionRNN(cell, attention, query="current")


def sources(attention):
    return ka.MultiSource([attention, ka.BahdanauAttention(3)])


def encoder(embedding=None, rnn=None):
    rnn = rnn or layers.GRU(D, return_sequences=True, return_state=True)
    return ka.RecurrentEncoder(embedding or layers.Embedding(V, D), rnn)


# By what a layer reads: how a model of words, a memory, documents and ids calls it.
CALLS = {
    "both": lambda f, words, memory, *_: f(words, memory),
    "sources": lambda f, words, memory, *_: f(words, [memory, words]),
    "words": lambda f, words, *_: f(words),
    "documents": lambda f, words, memory, documents, _: f(documents),
    "ids": lambda f, words, memory, documents, ids: keras.tree.flatten(f(ids))[0],
}


def of_words(make, part):
    """A document encoder whose words are read by `make` of the part."""
    return lambda x: ka.HierarchicalAttention(3, word_encoder=make(x)), part, "documents"


def itself(reads):
    return lambda x: x, lambda f: f, reads


# The layers that hold a part: how each is made of it, where it has it, what it reads.
WORDS = of_words(lambda x: x, lambda f: f.word_encoder)
ATTENTIONS = [
    (lambda x: ka.DecoderStack([gru(), gru()], x), lambda f: f.attention, "both"),
    (lambda x: decoder(attention=x), lambda f: f.attention, "both"),
    (sources, lambda f: f.attentions[0], "sources"),
    (lambda x: decoder(attention=sources(x)), lambda f: f.attention.attentions[0], "sources"),
    itself("both"),
]
CELLS = [
    (decoder, lambda f: f.cell, "both"),
    (lambda x: decoder([x, layers.GRUCell(D)]), lambda f: f.cell.cells[0], "both"),
    (lambda x: decoder(ka.ResidualRNNCells([layers.GRUCell(D), x])), lambda f: f.cell.cells[1],
     "both"),
    (lambda x: ka.FeatureAttention(x, 3), lambda f: f.cell, "words"),
    (lambda x: encoder(rnn=layers.RNN(x, return_sequences=True, return_state=True)),
     lambda f: f.rnn.cell, "ids"),
]  # fmt: skip
RECURRENT = [
    (lambda x: ka.DecoderStack([x, gru()], ka.BahdanauAttention(3)), lambda f: f.rnns[0], "both"),
    WORDS,
    itself("words"),
]
LAYERS = [
    of_words(layers.TimeDistributed, lambda f: f.word_encoder.layer),
    (lambda x: ka.HierarchicalAttention(3, word_encoder=x, sentence_encoder=x),
     lambda f: f.sentence_encoder, "documents"),
    (Projecting, lambda f: f.projection, "both"),
    (lambda x: decoder(attention=Projecting(x)), lambda f: f.attention.projection, "both"),
    itself("words"),
]  # fmt: skip
# By kind: how to make a part, and the layers that may hold it.
KINDS = {
    "attention": (lambda: ka.LocationSensitiveAttention(3, 2, 3), ATTENTIONS),
    "cell": (lambda: layers.GRUCell(D), CELLS),
    "recurrent layer": (gru, RECURRENT),
    "layer": (lambda: layers.Dense(D), LAYERS),
    "model": (lambda: keras.Sequential([keras.Input((None, D)), layers.Dense(D)]),
              [WORDS, itself("words")]),
    "embedding": (lambda: layers.Embedding(V, D),
                  [(encoder, lambda f: f.embedding, "ids"), itself("ids")]),
}  # fmt: skip


def functional(part, holders):
    """A functional model that calls a layer made by each holder, and the names of the layers."""
    made = [make(part) for make, *_ in holders]
    inputs = [*map(keras.Input, [(7, D), (11, D), (2, 3, D)]), keras.Input((7,), dtype="int32")]
    calls = [CALLS[reads] for *_, reads in holders]
    model = keras.Model(inputs, [call(f, *inputs) for call, f in zip(calls, made, strict=True)])
    return randomize(model), [f.name for f in made]


def arrays(model):
    shapes = [(2, *x.shape[1:]) for x in model.inputs]
    words = np.random.default_rng(0).integers(1, V, shapes.pop())
    return [*(normal(n, *shape, dtype="float32") for n, shape in enumerate(shapes)), words]


def reloaded(model, folder):
    model.save(folder / "model.keras")
    return keras.saving.load_model(folder / "model.keras")


def assert_same(again, model, x):
    assert_all_close(again.weights, model.weights, "float32")
    assert_all_close(*(keras.tree.flatten(m(x)) for m in (again, model)), "float32")


@pytest.mark.parametrize("order", ["in order", "reversed"])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.each_value(slow=2)
def test_a_part_of_several_layers_is_one_part_after_loading(kind, order, tmp_path):
    make, holders = KINDS[kind]
    holders, part = holders if order == "in order" else holders[::-1], make()
    model, names = functional(part, holders)
    x = arrays(model)
    for again in (reloaded(model, tmp_path), copy.deepcopy(model)):
        assert_same(again, model, x)
        found = zip(holders, map(again.get_layer, names), strict=True)
        held = {id(part_of(layer)) for (_, part_of, _), layer in found}
        assert len(held) == 1
        assert id(part) not in held


def test_heads_do_not_share_the_parts_of_their_attention(tmp_path):
    """A projection that another layer holds too is copied for each head, when it is loaded too."""
    heads = lambda x: ka.MultiHead(Projecting(x.projection), 3)  # noqa: E731
    holders = [itself("both"), (heads, lambda f: f.heads[0].projection, "both")]
    model, names = functional(Projecting(layers.Dense(D)), holders)
    again = reloaded(model, tmp_path)
    assert_same(again, model, arrays(model))
    attention, heads = (again.get_layer(name) for name in names)
    parts = [attention.projection, *(head.projection for head in heads.heads)]
    assert len({id(part) for part in parts}) == 4


def translator(encoder, embedding, head, attention=None, cell=None):
    return ka.Seq2Seq(encoder, decoder(cell, attention), embedding, head, START, END)


def tied():
    table = REVERSIBLE(V, D)
    return translator(encoder(table), table, None)


def with_a_functional_encoder():
    table, cell, ids = layers.Embedding(V, D), layers.GRUCell(D), keras.Input((None,))
    memory = layers.RNN(cell, return_sequences=True, name="rnn")(table(ids))
    outputs = memory, keras.ops.mean(memory, axis=1), keras.ops.not_equal(ids, 0)
    return translator(keras.Model(ids, outputs), table, layers.Dense(V), cell=cell)


def ensembles():
    rnn, attention, table = gru(), ka.BahdanauAttention(3), layers.Embedding(V, D)
    models = [translator(encoder(rnn=rnn), table, layers.Dense(V), attention) for _ in range(3)]
    return BidirectionalEnsemble(ka.Ensemble(models[:2]), models[2])


def parts_of_ensembles(model):
    for one in model.left_to_right.models:
        for name in ("encoder.rnn", "decoder.attention", "target_embedding"):
            yield [operator.attrgetter(name)(x) for x in (one, model.right_to_left)]


# Models, and pairs of parts that are one.
MODELS = {
    "a tied embedding": (tied, lambda x: [(x.encoder.embedding, x.target_embedding)]),
    "a functional encoder": (with_a_functional_encoder, lambda x: [
        (x.encoder.layers[1], x.target_embedding),
        (x.encoder.get_layer("rnn").cell, x.decoder.cell)]),
    "ensembles": (ensembles, parts_of_ensembles),
}  # fmt: skip


@pytest.mark.parametrize("name", fast(MODELS, ["a functional encoder"], slow=len(MODELS)))
def test_a_model_shares_its_parts_after_loading(name, tmp_path):
    make, pairs = MODELS[name]
    model, pair = make(), (SOURCES, TARGETS)
    model(pair)
    again = reloaded(randomize(model), tmp_path)
    assert all(first is second for x in (model, again) for first, second in pairs(x))
    assert_same(again, model, pair)
    if name == "a functional encoder":
        return  # Keras makes the layers of a functional model without the marks
    config = model.get_config()
    first, second = (type(model).from_config(config) for _ in range(2))  # which keeps the config
    for clone in first, second, keras.models.model_from_json(model.to_json()):
        clone(pair)
        assert all(first is second for first, second in pairs(clone))
        clone.set_weights(model.get_weights())
        assert_same(clone, model, pair)
