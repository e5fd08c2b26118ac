"""Read strips of 3 to 8 handwritten digits, and see where each one was read.

    python -m examples.read_numbers --attention location

The digits are those of scikit-learn, real handwriting; no test strip has a digit of training. They
come with noise, slant and uneven gaps. A convolutional network turns a strip into a row of cells,
the memory of a `Seq2Seq`. `--attention ctc` trains a CTC model of the same network instead. The
command tests strips of 12 digits too, and draws what the decoder looked at.

Paper: Xu et al., 2015, https://arxiv.org/abs/1502.03044. Needs scikit-learn and matplotlib.
"""

import pathlib
import time

import keras
import numpy as np
from keras import layers

from examples.common import arguments as types
from examples.common.records import add_record, write_record
from keras_attention import AttentionRNN, Seq2Seq
from keras_attention import layers as attentions
from keras_attention.plotting import plot_attention_image
from keras_attention.seq2seq import ImageEncoder

START, END, FIRST = 1, 2, 3  # tokens; FIRST is the digit 0
HEIGHT, CELL, LEAST, MOST = 12, 4, 3, 8  # pixels of a strip and of a cell, digits
UNITS, BATCH_SIZE, LEARNING_RATE = 96, 64, 2e-3
ATTENTIONS = {
    "content": lambda: attentions.BahdanauAttention(UNITS),
    "location": lambda: attentions.LocationSensitiveAttention(UNITS, 16, 7),
    "coverage": lambda: attentions.CoverageAttention(UNITS),
}


def slanted(image, rng):
    """Moves the rows of a digit by up to a pixel: `(8, 8)` to `(8, 10)`."""
    columns = np.arange(10) - 1 - rng.uniform(-1, 1) * np.linspace(-1, 1, 8)[:, None]
    low = np.floor(columns).astype(int)
    rows, padded, share = np.arange(8)[:, None], np.pad(image, [(0, 0), (3, 4)]), columns - low
    return (1 - share) * padded[rows, low + 3] + share * padded[rows, low + 4]


def make_strips(count, digits, rng, least=LEAST, most=MOST):
    """Strips `(count, HEIGHT, width, 1)`, the digits in each, and their left edges."""
    strips = np.zeros((count, HEIGHT, 3 * CELL * most), "float32")
    texts, edges = [], np.full((count, most), np.nan)
    for strip, left in zip(strips, edges, strict=True):
        chosen = rng.integers(len(digits[0]), size=rng.integers(least, most + 1))
        gaps = rng.dirichlet(np.ones(len(chosen) + 1))
        gaps *= rng.uniform(0.3, 1) * (strip.shape[1] - 2 - 8 * len(chosen))
        left[: len(chosen)] = np.floor(np.cumsum(gaps[:-1])) + 8 * np.arange(len(chosen))
        for x, digit in zip(left[: len(chosen)].astype(int), chosen, strict=True):
            y = rng.integers(HEIGHT - 7)
            part = strip[y : y + 8, x : x + 10]
            np.maximum(part, slanted(digits[0][digit], rng), out=part)
        texts.append(digits[1][chosen])
    strips += rng.normal(0, 0.05, strips.shape)
    return strips[..., None], texts, edges + 5  # the middle, with the pixel for the slant


def make_cnn():
    """From pixels to cells of 12 rows and 4 columns."""
    parts = [keras.Input((HEIGHT, None, 1))]
    for filters, pool in ((32, (2, 2)), (64, (2, 2)), (UNITS, (3, 1))):
        parts += [layers.Conv2D(filters, 3, padding="same", use_bias=False)]
        parts += [layers.BatchNormalization(), layers.ReLU(), layers.MaxPooling2D(pool)]
    return keras.Sequential(parts)


def make_reader(attention):
    # Without positions, the content of equal digits would be equal.
    encoder = ImageEncoder(make_cnn(), "sinusoidal" if attention == "content" else None)
    decoder = AttentionRNN(layers.GRUCell(UNITS), ATTENTIONS[attention](), query="previous")
    embedding, head = layers.Embedding(FIRST + 10, UNITS), layers.Dense(FIRST + 10)
    return Seq2Seq(encoder, decoder, embedding, head, START, END)


def make_ctc():
    gru = layers.Bidirectional(layers.GRU(76, return_sequences=True))
    return keras.Sequential([make_cnn(), layers.Reshape((-1, UNITS)), gru, layers.Dense(11)])


def read(model, strips, longest):
    """The digits in each strip, and the weights of a reader."""
    if not isinstance(model, Seq2Seq):
        best = model.predict(strips, verbose=0).argmax(-1)
        rows = [row[np.diff(row, prepend=0) != 0] for row in best]
        return [row[row > 0] - 1 for row in rows], None
    result = model.generate(strips, longest + 2)
    return [row[row >= FIRST] - FIRST for row in result.tokens], result.weights


def parse(argv):
    parser = types.make_parser("read_numbers", __doc__)
    add = parser.add_argument
    add("--attention", choices=[*ATTENTIONS, "ctc"], default="location")
    add("--strips", type=types.count, default=16_000, help="for training")
    add("--epochs", type=types.count, default=12)
    add("--tests", type=types.count, default=1000, help="strips of each test")
    add("--seed", type=types.seed, default=0)
    add("--output", default="output/read_numbers", type=pathlib.Path, help="folder for the results")
    add_record(parser)
    return parser.parse_args(argv)


def main(argv=None):
    options = parse(argv)
    types.check_extras("sklearn", "matplotlib")
    from sklearn.datasets import load_digits

    keras.utils.set_random_seed(options.seed)
    rng, found = np.random.default_rng(options.seed), load_digits()
    order = np.random.default_rng(0).permutation(len(found.target))
    train, test = (
        (found.images[part].astype("float32") / 16, found.target[part])
        for part in (order[:1300], order[1300:])
    )
    strips, texts, _ = make_strips(options.strips, train, rng)
    tests = {
        f"{LEAST} to {MOST} digits": make_strips(options.tests, test, rng),
        "12 digits": make_strips(options.tests, test, rng, 12, 12),
    }
    ctc = options.attention == "ctc"
    model = make_ctc() if ctc else make_reader(options.attention)
    ids = [text + 1 if ctc else [*(text + FIRST), END] for text in texts]
    target = keras.utils.pad_sequences(ids, padding="post")
    steps = options.epochs * -(-options.strips // BATCH_SIZE)
    rate = keras.optimizers.schedules.CosineDecay(LEARNING_RATE, steps, alpha=0.01)
    loss = {"loss": keras.losses.CTC()} if ctc else {}
    model.compile(keras.optimizers.Adam(rate, global_clipnorm=1.0), **loss)
    start = time.process_time()
    model.fit(strips, target, batch_size=BATCH_SIZE, epochs=options.epochs, verbose=2)
    figures = {"parameters": model.count_params()}
    figures["seconds of processor time in training"] = round(time.process_time() - start)
    for name, (strips, texts, middles) in tests.items():
        written, weights = read(model, strips, middles.shape[1])
        right = np.array([np.array_equal(*pair) for pair in zip(written, texts, strict=True)])
        figures[f"{name}, strips right, %"] = round(100 * right.mean(), 1)
        if weights is None:
            continue
        cells = CELL * (np.arange(weights.shape[-1]) + 0.5) - 0.5
        away = np.abs((weights @ cells)[:, : middles.shape[1]] - middles)[right]
        inside = (away[np.isfinite(away)] <= 4).mean() if right.any() else 0.0
        figures[f"{name}, centre of the weights inside the digit, %"] = round(100 * inside, 1)
        options.output.mkdir(parents=True, exist_ok=True)
        for kind, chosen in {"right": right, "wrong": ~right}.items():
            for n in np.flatnonzero(chosen)[:5]:
                words = [*map(str, written[n]), "[END]"][: weights.shape[1]]
                figure = plot_attention_image(weights[n, : len(words), None], strips[n], words)
                figure.savefig(options.output / f"{name[:2].strip()}-{kind}-{n}.png")
    for name, value in figures.items():
        print(f"{name}: {value}")
    write_record(options.record, figures, seeds=[options.seed])
    return figures


if __name__ == "__main__":
    types.run(main)
