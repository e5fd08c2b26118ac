"""The cases as this package computes them. `steps.py` says what a builder returns."""

import keras
import numpy as np
from keras import layers, ops
from steps import SEED, Computation, Step, normal

import keras_attention as ka
from keras_attention.attention import Memory
from keras_attention.ops import additive_score, compiling
from keras_attention.seq2seq import BidirectionalEnsemble, Readout

CALLS = 50  # of a small layer, in one step


def built(layer, *shapes, **options):
    layer.build(*shapes)
    return Computation(layer, layer.trainable_weights, shapes, **options)


def score(batch, steps, units, compiling):
    """The additive score alone, of projected queries and keys."""
    shapes = [(batch, steps, units)] * 2 + [(units,)]
    return Computation(additive_score if compiling is None else uncompiled, [], shapes)


def uncompiled(query, key, vector):
    with compiling(False):
        return additive_score(query, key, vector)


def self_attention(batch, steps, units):
    """Additive attention of a sequence to itself, from scores to context, without projections."""
    (vector,) = normal([(units,)])

    def function(x):
        weights = ops.softmax(additive_score(x, x, ops.convert_to_tensor(vector)))
        return ops.matmul(weights, x)

    return Computation(function, [], [(batch, steps, units)])


def additive(batch, steps, units):
    return built(ka.BahdanauAttention(units), *[(batch, steps, units)] * 2)


def additive_step(batch, steps, units):
    """One query. A decoder projects the keys once, before its loop."""
    attention, value = ka.BahdanauAttention(units), (batch, steps, units)
    attention.build((batch, units), value)

    def function(query, key, value):
        memory = Memory(key, value)
        return attention.attend(query, memory, return_attention_scores=False).output

    weights = [x for x in attention.trainable_weights if x.name != "key_kernel"]
    return Computation(function, weights, [(batch, units), value, value])


def luong(batch, steps, units, score="general", alignment="global", vector=False, **options):
    if alignment != "global":
        options["half_width"] = 10
    attention = ka.LuongAttention(score, alignment, units=units if vector else None, **options)
    return built(attention, *[(batch, steps, units)] * 2)


def bidaf(batch, context, query, units, layer=ka.BiDAFAttentionFlow):
    # As large as the states of an LSTM. Larger inputs give scores that show rounding errors.
    shapes = [(batch, steps, 2 * units) for steps in (context, query)]
    return built(layer(), *shapes, scale=0.3)


def pooling(batch, steps, units):
    return built(ka.AttentionPooling(units), (batch, steps, units))


def bag(batch, steps, features, units):
    return built(ka.AttentionPooling(units, gated=True), (batch, steps, features))


def hierarchical(batch, sentences, words, units, torch_gru=False):
    gru = TorchGRU if torch_gru else layers.GRU
    encoders = [gru(units, return_sequences=True) for _ in range(2)]
    attention = ka.HierarchicalAttention(units, None, *encoders)
    return built(attention, (batch, sentences, words, units))


class TorchGRU(layers.Layer):
    """PyTorch's own GRU."""

    def __init__(self, units, return_sequences):
        import torch

        super().__init__()
        self.gru = layers.TorchModuleWrapper(torch.nn.GRU(units, units, batch_first=True))

    def call(self, sequences):
        return self.gru(sequences)[0]


def memory_hop(batch, steps, units):
    return built(ka.MemoryHop(), (batch, units), (batch, steps, units))


ATTENTIONS = {
    "Bahdanau": ka.BahdanauAttention,
    "Luong": lambda units: ka.LuongAttention(units=units),
    "location-sensitive": ka.LocationSensitiveAttention,
    "coverage": ka.CoverageAttention,
    "monotonic": ka.MonotonicAttention,
    "monotonic, chunks of 4": lambda units: ka.MonotonicAttention(units, chunk_size=4),
    "stepwise": ka.StepwiseMonotonicAttention,
    "forward": ka.ForwardAttention,
    "forward, agent": lambda units: ka.ForwardAttention(units, transition_agent=True),
    "GMM V2b": ka.GMMAttention,
    "dynamic convolution": ka.DynamicConvolutionAttention,
    "4 heads": lambda units: ka.MultiHead(ka.BahdanauAttention(units // 4), 4),
    "4 heads of all units": lambda units: ka.MultiHead(ka.BahdanauAttention(units), 4),
    "4 location-sensitive heads": lambda units: ka.MultiHead(
        ka.LocationSensitiveAttention(units // 4), 4
    ),
}


def decoder(batch, steps, units, cell, layers, attention, length=None, attention_units=None, **x):
    """Without attention, `keras.layers.RNN` on inputs as wide as inputs and context together."""
    trains, feeding = x.get("trains", True), x.get("feeding", False)
    kind = {"GRU": keras.layers.GRUCell, "LSTM": keras.layers.LSTMCell}[cell]
    cells = [kind(units) for _ in range(layers)] if layers > 1 else kind(units)
    if attention is None:
        rnn = keras.layers.RNN(cells, return_sequences=True)
        return built(rnn, (batch, steps, 2 * units), trains=trains)
    name = attention.removesuffix(", fed")
    options = {"query": x["attends"]} if "attends" in x else {}
    options["input_feeding"] = feeding or name != attention
    rnn = ka.AttentionRNN(cells, ATTENTIONS[name](attention_units or units), **options)
    return built(rnn, (batch, steps, units), (batch, length or steps, units), trains=trains)


def stack(batch, steps, units, cell="LSTM", layers=4, cudnn=False):
    kind = getattr(keras.layers, cell)
    rnns = [kind(units, return_sequences=True, use_cudnn=cudnn) for _ in range(layers)]
    rnn = ka.DecoderStack(rnns, ka.BahdanauAttention(units))
    return built(rnn, *[(batch, steps, units)] * 2, trains=True)


def translator(batch, steps, units, words):
    """One training step of a bidirectional GRU and a GRU with additive attention."""
    source, shifted = (keras.Input((None,), dtype="int32") for _ in range(2))
    encode = layers.GRU(units // 2, return_sequences=True, use_cudnn=False)
    memory = layers.Bidirectional(encode)(layers.Embedding(words, units)(source))
    decoder = ka.AttentionRNN(layers.GRUCell(units), ka.BahdanauAttention(units))
    outputs = decoder(layers.Embedding(words, units)(shifted), memory)
    model = keras.Model([source, shifted], layers.Dense(words)(outputs))
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    ids = np.random.default_rng(SEED).integers(1, words, (3, batch, steps)).astype("int32")

    def make(mode):
        model.compile("adam", loss, jit_compile=mode == "XLA")
        # The loss is a number, so training has ended when it returns.
        return Step(lambda: float(model.train_on_batch([ids[0], ids[1]], ids[2])))

    return make


def search(batch, steps, units, words, longest, beams, find=None):
    """A decoder of one GRU cell with additive attention. No hypothesis ends early."""
    embedding, head = layers.Embedding(words, units), layers.Dense(words)
    decoder = ka.AttentionRNN(
        layers.GRUCell(units), ka.BahdanauAttention(units), output_mode="concat"
    )
    shape, end = (batch, steps, 2 * units), words - 1
    embedding.build((None,))
    head.build((None, 3 * units))
    decoder.build((batch, longest, units), shape)
    bias = np.zeros(words, "float32")
    bias[end] = -1e9
    head.bias.assign(bias)

    def step(tokens, state, memory):
        output, state, weights = decoder.step(embedding(tokens), state, memory)
        return head(output), state, weights

    def function(memory):
        memory = decoder.prepare(memory)
        given = step, decoder.get_initial_state(memory), memory
        if find is not None:
            return find(*given, end, longest, beams)
        options = {"start_token": 1, "end_token": end, "max_length": longest}
        if beams > 1:
            return ka.beam_search(*given, beam_width=beams, **options).tokens
        return ka.greedy_search(*given, **options).tokens

    weights = [*embedding.weights, *head.weights, *decoder.weights]
    return Computation(function, weights, [shape])


def language_search(batch, width, words, units, length):
    """A GRU of plain JAX without an attention, so that the search itself is compared."""
    import plain_jax

    plain = plain_jax.language_search(batch, width, words, units, length)
    weights = [keras.Variable(x) for x in plain.weights]
    options = {"start_token": 1, "end_token": 2, "max_length": length}

    def function(hidden):
        values = [ops.convert_to_tensor(x) for x in weights]

        def step(tokens, state, _):
            return *plain_jax.next_word(values, tokens, state), None

        if width == 1:
            return tuple(ka.greedy_search(step, hidden, **options))
        return tuple(ka.beam_search(step, hidden, beam_width=width, **options))

    return Computation(function, weights, plain.shapes)


def make_translator(words, units):
    """The translator of the results on Multi30k, with random weights."""
    rnn = layers.GRU(units // 2, return_sequences=True, return_state=True, use_cudnn=False)
    model = ka.Seq2Seq(
        ka.RecurrentEncoder(layers.Embedding(words, units), layers.Bidirectional(rnn)),
        ka.AttentionRNN(layers.GRUCell(units), ka.LuongAttention("general", units=units)),
        layers.ReversibleEmbedding(words, units),
        Readout(units),
        start_token=1,
        end_token=2,
    )
    ids = np.full((1, 3), 2, "int32")
    model((ids, ids))
    return model


def seq2seq(words, units, what):
    """A training step on 64 pairs of 20 tokens, or a search of the 64 sources."""
    model = make_translator(words, units)
    ids = np.random.default_rng(1).integers(3, 50, (64, 20))
    ids[:, -1] = 2

    def make(mode):
        model.compile("adam", jit_compile=mode == "XLA")
        if what == "generate":
            return Step(lambda: model.generate(ids, max_length=20))
        return Step(lambda: float(model.train_on_batch(ids, ids)))

    return make


def generate(words, units, count, models, batch_size=64, longest=30, beams=5):
    """Searches sentences as long as captions; with no model, by a bare search of made batches."""
    rng = np.random.default_rng(1)
    lengths = np.clip(rng.normal(14, 4.5, count), 4, 40).astype(int)
    ids = rng.integers(3, words, (count, lengths.max()))
    sentences = np.where(np.arange(ids.shape[1]) < lengths[:, None], ids, 0).astype("int32")
    both = [make_translator(words, units) for _ in range(max(1, models))]
    model = BidirectionalEnsemble(*both) if models == 2 else both[0]

    def make(mode):
        model.compile(jit_compile=mode == "XLA")
        if not models:
            return Step(bare_search(model, sentences, mode, batch_size, longest, beams))
        options = {"beam_width": beams, "batch_size": batch_size}
        return Step(lambda: model.generate(sentences, longest, **options))

    return make


def bare_search(model, sentences, mode, batch_size, longest, beams):
    """Searches batches that were sorted, cut and made into tensors in advance."""
    lengths = (sentences > 0).sum(axis=1)
    order, batches = np.argsort(lengths, kind="stable"), []
    for start in range(0, len(order), batch_size):
        rows = order[start : start + batch_size]
        width = lengths[rows].max()
        if mode == "XLA":
            width = -(-width // 16) * 16
        batches.append(ops.convert_to_tensor(sentences[rows][:, :width]))

    def search(batch):
        return tuple(model.search_batch(batch, longest, beam_width=beams))

    if keras.backend.backend() == "tensorflow":
        import tensorflow as tf

        ids = tf.TensorSpec((None, None), "int32")
        search = tf.function(search, [ids], autograph=False, jit_compile=mode == "XLA")
    else:
        import jax

        search = jax.jit(search)
    return lambda: [ops.convert_to_numpy(search(batch)[0]) for batch in batches]


def eager(call):
    """Calls of a small layer, one operation after the other."""
    query, value, mask = ops.ones((8, 5, 32)), ops.ones((8, 20, 32)), ops.ones((8, 20), "bool")
    additive, dot = ka.BahdanauAttention(32), ka.LuongAttention("dot")
    decoder = ka.AttentionRNN(layers.GRUCell(64), ka.BahdanauAttention(32))
    decoder.build((None, None, 16), (None, None, 32))
    memory = decoder.prepare(value, mask)
    state, inputs = decoder.get_initial_state(memory), ops.ones((8, 16))
    function = {
        "BahdanauAttention": lambda: additive(query, value),
        "BahdanauAttention, with a mask": lambda: additive(query, value, value_mask=mask),
        "dot": lambda: dot(query, value),
        "a decoder's step": lambda: decoder.step(inputs, state, memory),
        "its cell": lambda: decoder.cell(ops.ones((8, 48)), state.cells),
    }[call]
    return lambda mode: Step(lambda: [function() for _ in range(CALLS)])
