"""Describe generated pictures in words, and see which shape each word looked at.

    python -m examples.describe_pictures

A picture of 48 x 48 pixels has 2 to 4 shapes: "red circle top left , blue square bottom centre". A
convolutional network makes 36 cells, and a decoder with the gate of Xu et al. reads them. Test
pictures have sets of shapes that no training picture has. The command draws what each word looked
at, exports a SavedModel, and runs it.

Paper: Xu et al., 2015, https://arxiv.org/abs/1502.03044. Needs matplotlib.
"""

import pathlib
import time

import keras
import numpy as np
from keras import layers, ops

from examples.common import arguments as types
from examples.common.records import add_record, write_record
from keras_attention import AttentionRNN, BahdanauAttention, Seq2Seq
from keras_attention.alignment import doubly_stochastic_loss
from keras_attention.plotting import plot_attention_image
from keras_attention.seq2seq import ImageEncoder

SIZE, CELL, LONGEST = 48, 8, 20
COLOURS = {"red": (220, 40, 40), "green": (40, 170, 60), "blue": (50, 80, 220)}
COLOURS |= {"yellow": (230, 200, 40), "white": (245, 245, 245)}
SHAPES = "circle", "square", "triangle", "cross"
ROWS, COLUMNS = ("top", "middle", "bottom"), ("left", "centre", "right")
WORDS = ["[PAD]", "[START]", "[END]", ",", *COLOURS, *SHAPES, *ROWS, *COLUMNS]
START, END = 1, 2
UNITS, BATCH_SIZE, LEARNING_RATE, LOSS_WEIGHT = 96, 64, 2e-3, 0.01


@keras.saving.register_keras_serializable("examples")
class GatedAttention(BahdanauAttention):
    """Additive attention with the gate on the context, and the doubly stochastic loss."""

    def build(self, query_shape, value_shape=None, key_shape=None):
        super().build(query_shape, value_shape, key_shape)
        self.gate = self.add_weight((query_shape[-1], 1), name="gate")
        self.gate_bias = self.add_weight((1,), "zeros", name="gate_bias")

    def combine(self, query, context):
        return ops.sigmoid(ops.matmul(query, self.gate) + self.gate_bias) * context

    def sequence_loss(self, weights, query_mask, memory_mask):
        return LOSS_WEIGHT * doubly_stochastic_loss(weights, query_mask, memory_mask)


def inside(shape, y, x, radius):
    """Where a shape is, among pixels (y, x) relative to its middle."""
    if shape == "circle":
        return x**2 + y**2 <= radius**2
    if shape == "square":
        return np.maximum(abs(x), abs(y)) <= 0.85 * radius
    if shape == "triangle":
        return (abs(y) <= radius) & (abs(x) <= (y + radius) / 2)
    return (np.minimum(abs(x), abs(y)) <= 0.3 * radius) & (np.maximum(abs(x), abs(y)) <= radius)


def make_pictures(count, rng, unlike=frozenset()):
    """Pictures, their words, and the box of the shape (top, left, bottom, right) of each word."""
    pictures = rng.normal(30, 8, (count, SIZE, SIZE, 3))
    texts, boxes = [], []
    y, x = np.mgrid[:SIZE, :SIZE]
    while len(texts) < count:
        places = np.sort(rng.choice(9, rng.integers(2, 5), replace=False))
        shapes = [(str(rng.choice([*COLOURS])), str(rng.choice(SHAPES))) for _ in places]
        if tuple(sorted(shapes)) in unlike:
            continue
        words, areas = [], []
        for place, (colour, shape) in zip(places, shapes, strict=True):
            row, column = divmod(int(place), 3)
            middle, radius = 16 * np.array([row, column]) + rng.uniform(7, 9, 2), rng.uniform(5, 7)
            drawn = inside(shape, y - middle[0], x - middle[1], radius)
            shade = np.array(COLOURS[colour]) + rng.normal(0, 12, 3)
            pictures[len(texts)][drawn] = shade + rng.normal(0, 6, (drawn.sum(), 3))
            words += [colour, shape, ROWS[row], COLUMNS[column], ","]
            areas += [(*(middle - radius), *(middle + radius))] * 5
        texts.append([*words[:-1], "[END]"])
        boxes.append(areas)
    return np.clip(pictures, 0, 255).astype("uint8"), texts, boxes


def kinds_of(text):
    """The set of shapes of a text, without their places."""
    return tuple(sorted(zip(text[::5], text[1::5], strict=True)))


def make_model():
    parts = [keras.Input((SIZE, SIZE, 3)), layers.Rescaling(1 / 128, -1)]
    for filters in (24, 48, UNITS):
        parts += [layers.Conv2D(filters, 3, padding="same", use_bias=False)]
        parts += [layers.BatchNormalization(), layers.ReLU(), layers.MaxPooling2D(2)]
    encoder = ImageEncoder(keras.Sequential(parts), positions=(SIZE // CELL, SIZE // CELL))
    decoder = AttentionRNN(layers.GRUCell(UNITS), GatedAttention(UNITS), query="previous")
    embedding, head = layers.Embedding(len(WORDS), UNITS), layers.Dense(len(WORDS))
    return Seq2Seq(encoder, decoder, embedding, head, START, END)


def looks_inside(weights, box):
    """Whether the center of the cell with the largest weight lies in a box."""
    middle = CELL * (np.array(divmod(int(weights.argmax()), SIZE // CELL)) + 0.5)
    return bool((middle >= box[:2]).all() and (middle <= box[2:]).all())


def parse(argv):
    parser = types.make_parser("describe_pictures", __doc__)
    add = parser.add_argument
    add("--pictures", type=types.count, default=12_000, help="for training")
    add("--epochs", type=types.count, default=10)
    add("--tests", type=types.count, default=1000, help="pictures of the test")
    add("--seed", type=types.seed, default=0)
    output = "output/describe_pictures"
    add("--output", default=output, type=pathlib.Path, help="folder for the results")
    add_record(parser)
    return parser.parse_args(argv)


def main(argv=None):
    options = parse(argv)
    types.check_extras("matplotlib")
    keras.utils.set_random_seed(options.seed)
    rng = np.random.default_rng(options.seed)
    pictures, texts, _ = make_pictures(options.pictures, rng)
    known = frozenset(map(kinds_of, texts))
    new, new_texts, boxes = make_pictures(options.tests, rng, known)
    ids = [[WORDS.index(word) for word in text] for text in texts]
    model, start = make_model(), time.process_time()
    steps = options.epochs * -(-options.pictures // BATCH_SIZE)
    rate = keras.optimizers.schedules.CosineDecay(LEARNING_RATE, steps, alpha=0.01)
    model.compile(keras.optimizers.Adam(rate, global_clipnorm=1.0))
    target = keras.utils.pad_sequences(ids, padding="post")
    model.fit(pictures, target, batch_size=BATCH_SIZE, epochs=options.epochs, verbose=2)
    seconds = round(time.process_time() - start)

    result = model.generate(new, LONGEST)
    lengths = result.lengths.tolist()
    written = [[WORDS[x] for x in row[:n]] for row, n in zip(result.tokens, lengths, strict=True)]
    right = np.array([x == y for x, y in zip(written, new_texts, strict=True)])
    inside_box = [
        looks_inside(weights, box)
        for n in np.flatnonzero(right)
        for word, weights, box in zip(written[n], result.weights[n], boxes[n], strict=False)
        if word in COLOURS or word in SHAPES
    ]
    figures = {"parameters": model.count_params()}
    figures["seconds of processor time in training"] = seconds
    figures["sentences right, %"] = round(100 * right.mean(), 1)
    share = np.mean(inside_box) if inside_box else 0.0
    figures["largest weight of a colour or shape in its shape, %"] = round(100 * share, 1)
    options.output.mkdir(parents=True, exist_ok=True)
    cells = result.weights.reshape(len(new), LONGEST, SIZE // CELL, SIZE // CELL)
    for kind, chosen in {"right": right, "wrong": ~right}.items():
        for n in np.flatnonzero(chosen)[:5]:
            figure = plot_attention_image(cells[n, : lengths[n]], new[n], written[n])
            figure.savefig(options.output / f"{kind}-{n}.png")
    if keras.backend.backend() == "tensorflow":
        import tensorflow as tf

        model.export_generate(options.output / "saved_model", LONGEST)
        serve = tf.saved_model.load(options.output / "saved_model").signatures["serving_default"]
        source = tf.cast(new, serve.structured_input_signature[1]["source"].dtype)
        same = (serve(source=source)["tokens"].numpy() == result.tokens).all(axis=1)
        figures["sentences of the SavedModel alike, %"] = round(100 * same.mean(), 1)
    for name, value in figures.items():
        print(f"{name}: {value}")
    write_record(options.record, figures, seeds=[options.seed])
    return figures


if __name__ == "__main__":
    types.run(main)
