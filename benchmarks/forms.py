"""What speed.py compares: a way to compute something, as a function without arguments.

`make_step(case, variant, mode, backward, **sizes)` returns it. `backward` adds the gradients by all
inputs and weights. Modes: eager, graph and XLA on TensorFlow, XLA on JAX; PyTorch is eager.
"""

import os
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import keras
import numpy as np
from keras import ops

from keras_attention import (
    AttentionPooling,
    AttentionRNN,
    BahdanauAttention,
    CoverageAttention,
    DecoderStack,
    DynamicConvolutionAttention,
    ForwardAttention,
    GMMAttention,
    HierarchicalAttention,
    LocationSensitiveAttention,
    LuongAttention,
    MemoryHop,
    MonotonicAttention,
    MultiHead,
    StepwiseMonotonicAttention,
    beam_search,
    greedy_search,
)
from keras_attention.attention import Memory
from keras_attention.backend import leaves, unflatten_as
from keras_attention.ops import additive_score, compiling

SEED = 11


def make_step(case, variant, mode, backward, **sizes):
    keras.utils.set_random_seed(SEED)
    function, inputs, weights = CASES[case](variant, **sizes)
    return STEPS[keras.backend.backend()](function, inputs, weights, mode, backward)


def additive(variant, batch, steps, units, deviation=1.0):
    """The score alone, of projected queries and keys."""
    function = {"ours": additive_score, "ours, nothing compiled": uncompiled, "plain": plain}[
        variant
    ]
    return function, normal(deviation, *[(batch, steps, units)] * 2) + normal(1.0, (units,)), []


def plain(query, key, vector):
    hidden = ops.tanh(ops.expand_dims(query, 2) + ops.expand_dims(key, 1))
    return ops.sum(vector * hidden, -1)


def uncompiled(query, key, vector):
    with compiling(False):
        return additive_score(query, key, vector)


def layer(variant, batch, steps, units):
    """A whole layer: what is read, of queries and values as wide as the units."""
    attention = {
        "BahdanauAttention": lambda: BahdanauAttention(units),
        "keras AdditiveAttention": keras.layers.AdditiveAttention,
        "LuongAttention, dot": lambda: LuongAttention("dot"),
        "keras Attention": keras.layers.Attention,
    }[variant]()
    shape = (batch, steps, units)
    if variant.startswith("keras"):
        attention.build([shape, shape])
        return lambda q, v: attention([q, v]), normal(1.0, shape, shape), attention.weights
    attention.build(shape, shape)
    return attention, normal(1.0, shape, shape), attention.weights


def self_attention(variant, batch, steps, units):
    """Additive attention of a sequence to itself, from scores to context, without projections."""
    vector = normal(1.0, (units,))[0]

    def function(x):
        weights = ops.softmax(additive_score(x, x, ops.convert_to_tensor(vector)))
        return ops.matmul(weights, x)

    return function, normal(1.0, (batch, steps, units)), []


def windows(variant, batch, steps, units, score="general", window=10):
    """`LuongAttention`, variant its alignment."""
    attention = LuongAttention(score, variant, half_width=window)
    shape = (batch, steps, units)
    attention.build(shape, shape)
    return attention, normal(1.0, shape, shape), attention.weights


def decoder(variant, batch, steps, units):
    """A GRU with additive attention to as many source steps as it has target steps."""
    shape = (batch, steps, units)
    cell = keras.layers.GRUCell(units)
    if variant == "ours":
        rnn = AttentionRNN(cell, BahdanauAttention(units))
        rnn.build(shape, shape)
        return (lambda x, m: rnn(x, m, training=True)), normal(1.0, shape, shape), rnn.weights
    cell = ProjectingCell(cell)
    rnn = keras.layers.RNN(cell, return_sequences=True)
    rnn.build(shape)

    def function(x, memory):
        cell.memory = memory
        return rnn(x, training=True)

    return function, normal(1.0, shape, shape), rnn.weights


def recurrence(_, cell, layers, attention, batch, steps, units):
    """The decoders of `sweep.py`; without attention, `keras.layers.RNN` on inputs as wide."""
    kind = {"GRU": keras.layers.GRUCell, "LSTM": keras.layers.LSTMCell}[cell]
    cells = [kind(units) for _ in range(layers)] if layers > 1 else kind(units)
    shape = (batch, steps, units)
    if attention is None:
        rnn = keras.layers.RNN(cells, return_sequences=True)
        rnn.build((batch, steps, 2 * units))
        return (
            (lambda x: rnn(x, training=True)),
            normal(1.0, (batch, steps, 2 * units)),
            rnn.weights,
        )
    reads = BahdanauAttention(units) if attention == "Bahdanau" else LuongAttention(units=units)
    rnn = AttentionRNN(cells, reads, input_feeding=attention == "Luong, fed")
    rnn.build(shape, shape)
    return (lambda x, m: rnn(x, m, training=True)), normal(1.0, shape, shape), rnn.weights


def remembering(variant, batch, steps, length, units, attention_units):
    """A GRU decoder with each attention that has a state, or several heads; see `states.py`."""
    attention = {
        "additive": BahdanauAttention,
        "4 heads": lambda units: MultiHead(BahdanauAttention(units // 4), 4),
        "4 heads of all units": lambda units: MultiHead(BahdanauAttention(units), 4),
        "4 location-sensitive heads": lambda units: MultiHead(
            LocationSensitiveAttention(units // 4), 4
        ),
        "location-sensitive": LocationSensitiveAttention,
        "coverage": CoverageAttention,
        "monotonic": MonotonicAttention,
        "monotonic, chunks of 4": lambda units: MonotonicAttention(units, chunk_size=4),
        "stepwise": StepwiseMonotonicAttention,
        "forward": ForwardAttention,
        "forward, agent": lambda units: ForwardAttention(units, transition_agent=True),
        "GMM V2b": GMMAttention,
        "dynamic convolution": DynamicConvolutionAttention,
    }[variant](attention_units)
    rnn = AttentionRNN(keras.layers.GRUCell(units), attention, query="previous")
    shapes = (batch, steps, units), (batch, length, units)
    rnn.build(*shapes)
    return (lambda x, m: rnn(x, m, training=True)), normal(1.0, *shapes), rnn.weights


def layered(variant, batch, steps, length, units, layers):
    """Several GRUs with additive attention, in their recurrence or beside it; see `states.py`."""
    attention = BahdanauAttention(units)
    if variant == "DecoderStack":
        rnns = [keras.layers.GRU(units, return_sequences=True) for _ in range(layers)]
        rnn = DecoderStack(rnns, attention)
    else:
        cells = [keras.layers.GRUCell(units) for _ in range(layers)]
        rnn = AttentionRNN(cells, attention, input_feeding=variant == "input feeding")
    shapes = (batch, steps, units), (batch, length, units)
    rnn.build(*shapes)
    return (lambda x, m: rnn(x, m, training=True)), normal(1.0, *shapes), rnn.weights


def translator_model(mode, units, words):
    """A bidirectional GRU and a GRU with additive attention, compiled with Adam."""
    keras.utils.set_random_seed(SEED)
    source, shifted = (keras.Input((None,), dtype="int32") for _ in range(2))
    encode = keras.layers.GRU(units // 2, return_sequences=True, use_cudnn=False)
    memory = keras.layers.Bidirectional(encode)(keras.layers.Embedding(words, units)(source))
    decoder = AttentionRNN(keras.layers.GRUCell(units), BahdanauAttention(units))
    outputs = decoder(keras.layers.Embedding(words, units)(shifted), memory)
    model = keras.Model([source, shifted], keras.layers.Dense(words)(outputs))
    loss = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile("adam", loss, jit_compile=mode == "XLA")
    return model


def translator(mode, batch, steps, units, words):
    """One step of training."""
    model = translator_model(mode, units, words)
    ids = np.random.default_rng(SEED).integers(1, words, (3, batch, steps)).astype("int32")
    # The loss is a number, so training has ended when it returns.
    return lambda: float(model.train_on_batch([ids[0], ids[1]], ids[2]))


class ProjectingCell(keras.layers.Layer):
    """Attention as it is often written: in the cell, keys projected at every step."""

    def __init__(self, cell):
        super().__init__()
        self.cell, self.state_size, self.output_size = cell, [cell.units], cell.units

    def build(self, shape):
        units = self.cell.units
        self.query_kernel = self.add_weight((units, units))
        self.key_kernel = self.add_weight((units, units))
        self.score_vector = self.add_weight((units,))
        self.cell.build((shape[0], shape[1] + units))

    def call(self, x, states, training=None):
        query = ops.expand_dims(ops.matmul(states[0], self.query_kernel), 1)
        key = ops.einsum("btd,du->btu", self.memory, self.key_kernel)
        weights = ops.softmax(ops.sum(self.score_vector * ops.tanh(query + key), -1))
        context = ops.einsum("bt,btd->bd", weights, self.memory)
        return self.cell(ops.concatenate([x, context], -1), states)


def flow(variant, batch, context, query, units):
    """Attention flow of texts and questions, of encoders of `units` each way."""
    from flow import VARIANTS

    attention = VARIANTS[variant]()
    shapes = [(batch, steps, 2 * units) for steps in (context, query)]
    attention.build(*shapes)
    return attention, normal(0.3, *shapes), attention.weights


def lengths(batch, units, longest):
    """Trains on all lengths in turn: what is compiled, and how long the slowest call takes."""
    import tensorflow as tf

    @tf.function(
        input_signature=[tf.TensorSpec((batch, None, units))] * 2 + [tf.TensorSpec((units,))],
        autograph=False,
    )
    def step(query, key, vector):
        with tf.GradientTape() as tape:
            tape.watch((query, key, vector))
            with compiling(True):  # as a layer in training has it
                scores = additive_score(query, key, vector)
            loss = tf.reduce_sum(tf.square(scores))
        return [tf.convert_to_tensor(x) for x in tape.gradient(loss, (query, key, vector))]

    first, again = [], []
    for steps in range(1, longest + 1):
        inputs = normal(1.0, *[(batch, steps, units)] * 2, (units,))
        for times in (first, again):
            start = time.perf_counter()
            step(*inputs)[0].numpy()
            times.append(time.perf_counter() - start)
    # The first call of all also makes the graph, and is too small to be compiled.
    more = [a - b for a, b in zip(first, again, strict=True)][1:]
    return {"compiled": sum(x > 0.2 for x in more), "slowest": max(more), "total": sum(first)}


def sweep(variant, **sizes):
    """The cases of `sweep.py`."""
    if variant.endswith("search"):
        return search(variant, **sizes)
    if variant == "BiDAF":
        return flow("ours", **sizes)
    units, batch = sizes["units"], sizes["batch"]
    if variant.startswith("hierarchical"):
        gru = TorchGRU if variant.endswith("torch.nn.GRU") else keras.layers.GRU
        encoders = [gru(units, return_sequences=True) for _ in range(2)]
        attention = HierarchicalAttention(units, None, *encoders)
        shapes = [(batch, sizes["sentences"], sizes["words"], units)]
    elif variant == "pooling":
        attention, shapes = AttentionPooling(units), [(batch, sizes["steps"], units)]
    elif variant == "bag":
        shapes = [(batch, sizes["steps"], sizes["features"])]
        attention = AttentionPooling(units, gated=True)
    else:
        half_width = {"half_width": sizes["half_width"]} if "half_width" in sizes else {}
        attention = {
            "additive, one step": lambda: BahdanauAttention(units),
            "additive": lambda: BahdanauAttention(units),
            "dot": lambda: LuongAttention("dot"),
            "general": lambda: LuongAttention("general"),
            "general, attentional vector": lambda: LuongAttention("general", units=units),
            "general, sparsemax": lambda: LuongAttention("general", normalizer="sparsemax"),
            "local-m": lambda: LuongAttention("general", "local-m", **half_width),
            "local-p": lambda: LuongAttention("general", "local-p", **half_width),
            "memory hop": MemoryHop,
        }[variant]()
        value = (batch, sizes["steps"], units)
        one_step = variant in ("additive, one step", "memory hop")
        shapes = [(batch, units) if one_step else value, value]
    attention.build(*shapes)
    inputs, weights = normal(1.0, *shapes), attention.trainable_weights
    if variant != "additive, one step":
        return attention, inputs, weights

    # A decoder projects the keys once, before its loop.
    def function(query, key, value):
        memory = Memory(key, value)
        return attention.attend(query, memory, return_attention_scores=False).output

    weights = [weight for weight in weights if weight.name != "key_kernel"]
    return function, [*inputs, inputs[-1]], weights


class TorchGRU(keras.layers.Layer):
    """PyTorch's own GRU."""

    def __init__(self, units, return_sequences):
        import torch

        super().__init__()
        gru = torch.nn.GRU(units, units, batch_first=True)
        self.gru = keras.layers.TorchModuleWrapper(gru)

    def call(self, sequences):
        return self.gru(sequences)[0]


def search(variant, batch, steps, units, words, longest, beams):
    """A decoder of one GRU cell with additive attention. No hypothesis ends early."""
    embedding, head = keras.layers.Embedding(words, units), keras.layers.Dense(words)
    decoder = AttentionRNN(
        keras.layers.GRUCell(units), BahdanauAttention(units), output_mode="concat"
    )
    shape = (batch, steps, 2 * units)
    embedding.build((None,))
    head.build((None, 3 * units))
    decoder.build((batch, longest, units), shape)
    end = words - 1
    bias = np.zeros(words, "float32")
    bias[end] = -1e9
    head.bias.assign(bias)

    def step(tokens, state, memory):
        output, state, weights = decoder.step(embedding(tokens), state, memory)
        return head(output), state, weights

    def function(memory):
        memory = decoder.prepare(memory)
        state = decoder.get_initial_state(memory)
        if variant.startswith("keras-hub"):
            return hub_search(step, state, memory, end, longest, beams if "beam" in variant else 1)
        options = {"start_token": 1, "end_token": end, "max_length": longest}
        if variant == "beam search":
            found = beam_search(step, state, memory, beam_width=beams, **options)
        else:
            found = greedy_search(step, state, memory, **options)
        return found.tokens

    weights = [*embedding.weights, *head.weights, *decoder.weights]
    return function, normal(1.0, shape), weights


def hub_search(step, state, memory, end, longest, beams):
    """A sampler of keras-hub with our step. Its cache is the state, which it reorders itself."""
    from keras_hub.samplers import BeamSampler, GreedySampler

    if beams > 1:
        memory = Memory(*(None if x is None else ops.repeat(x, beams, axis=0) for x in memory))

    def following(prompt, cache, index):
        logits, new, _ = step(prompt[:, index - 1], unflatten_as(state, cache), memory)
        return logits, None, leaves(new)

    first = ops.ones((ops.shape(memory.value)[0] // beams, 1), "int32")
    prompt = ops.pad(first, ((0, 0), (0, longest)))
    sampler = BeamSampler(num_beams=beams) if beams > 1 else GreedySampler()
    found = sampler(following, prompt, leaves(state), index=1, stop_token_ids=[end])
    return found[:, 1:]


CASES = {
    "sweep": sweep,
    "flow": flow,
    "additive": additive,
    "layer": layer,
    "self_attention": self_attention,
    "windows": windows,
    "decoder": decoder,
    "recurrence": recurrence,
    "remembering": remembering,
    "layered": layered,
}


def normal(deviation, *shapes):
    rng = np.random.default_rng(SEED)
    return [rng.normal(scale=deviation, size=shape).astype("float32") for shape in shapes]


def tensorflow_step(function, inputs, weights, mode, backward):
    import tensorflow as tf

    inputs = [tf.constant(x) for x in inputs]
    variables = [weight.value for weight in weights if weight.trainable]
    # A gradient of ones would let XLA leave out work that a real one needs.
    upstream = None

    def run(*inputs):
        if not backward:
            return [function(*inputs)]
        with tf.GradientTape() as tape:
            tape.watch(inputs)
            output = function(*inputs)
        found = tape.gradient(output, [*inputs, *variables], output_gradients=upstream)
        return [output, *(tf.convert_to_tensor(x) for x in found)]

    if backward:
        shape = tf.function(function, autograph=False).get_concrete_function(*inputs)
        upstream = tf.constant(normal(1.0, tuple(shape.output_shapes))[0])
    if mode != "eager":
        run = tf.function(run, jit_compile=mode == "XLA", autograph=False)

    def step():
        results = run(*inputs)
        # TensorFlow may return before the work is done; reading one number waits for it.
        for x in results:
            x[(0,) * len(x.shape)].numpy()
        return results

    return step


def jax_step(function, inputs, weights, mode, backward):
    import jax

    run, *arguments = jax_program(function, inputs, weights, backward)
    compiled = run.lower(*arguments).compile()

    def step():
        return jax.block_until_ready(compiled(*arguments))

    analysis = compiled.memory_analysis()
    step.memory = (analysis.temp_size_in_bytes + analysis.output_size_in_bytes) / 2**20
    return step


def jax_program(function, inputs, weights, backward):
    """A function that JAX compiles when it is called or lowered, and its arguments."""
    import jax

    inputs = [jax.numpy.asarray(x) for x in inputs]
    variables = [weight for weight in weights if weight.trainable]

    def stateless(inputs, values):
        with keras.StatelessScope(list(zip(variables, values, strict=True))):
            return function(*inputs)

    values = [jax.numpy.asarray(x.value) for x in variables]
    if not backward:
        return jax.jit(stateless), inputs, values
    shape = jax.eval_shape(stateless, inputs, values).shape

    def run(inputs, values, upstream):
        output, gradient = jax.vjp(stateless, inputs, values)
        return output, gradient(upstream)

    return jax.jit(run), inputs, values, jax.numpy.asarray(normal(1.0, shape)[0])


def torch_step(function, inputs, weights, mode, backward):
    import torch

    if mode == "compiled":
        function = torch.compile(function)
    inputs = [torch.tensor(x, requires_grad=backward) for x in inputs]
    variables = [weight.value for weight in weights if weight.trainable]
    with torch.no_grad():
        upstream = (
            torch.tensor(normal(1.0, tuple(function(*inputs).shape))[0]) if backward else None
        )

    def step():
        if not backward:
            with torch.no_grad():
                return function(*inputs)
        return torch.autograd.grad(function(*inputs), [*inputs, *variables], upstream)

    return step


STEPS = {"tensorflow": tensorflow_step, "jax": jax_step, "torch": torch_step}
