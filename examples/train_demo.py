"""Train the small models of the folder models.

    python -m examples.train_demo dates
    python -m examples.train_demo phones --data DIR

`dates` turns written dates into ISO dates: "the third of May, 1998" becomes "1998-05-03". The dates
are generated. `phones` turns English words into phones. It needs the files `eng_us_train.tsv`,
`eng_us_dev.tsv` and `eng_us_test.tsv` in DIR or below it, of SIGMORPHON 2021, task 1:
https://github.com/sigmorphon/2021-task1 (from Wiktionary by WikiPron, CC BY-SA 3.0).

Both models read and write characters. They are written with float16 weights and compressed, which
Keras loads like every other file. `KERAS_BACKEND=jax` is the fastest.
"""

import hashlib
import pathlib
import zipfile

import keras
import numpy as np

from examples.common import arguments as types
from examples.common import dates
from examples.common.files import make_folder
from examples.common.records import add_record, write_record
from examples.pronunciation.data import load
from keras_attention import AttentionRNN, BahdanauAttention, RecurrentEncoder, Seq2Seq
from keras_attention.seq2seq import Readout
from keras_attention.text import Characters

# Slashes are American, and short years are those from 1969 to 2068, as for Python's strptime.
FORMATS = [x for x in dates.FORMATS if "/" not in x]
FORMATS += ["{number}/{day}/{yy}", "{number:02d}/{day:02d}/{yy}", "{year}-{number:02d}-{day:02d}"]
FORMATS += ["{nth} {month} {year}", "{month} {day} {year}", "{short} {day}, {year}"]
FORMATS += ["{short} {nth}, {year}", "the {nth} of {month}, {year}"]
FORMATS += ["the {ordinal} of {month} {year}"]
SIZES = 40_000, 1000, 1000
LONGEST = 15  # characters of a word and of its phones in training: 99% of them
RECIPES = {
    "dates": {"units": 48, "embedding": 32, "dropout": 0.0, "rate": 5e-3, "epochs": 4},
    "phones": {"units": 96, "embedding": 64, "dropout": 0.2, "rate": 3e-3, "epochs": 14},
}
BATCH_SIZE = 128


def parse(argv=None):
    parser = types.make_parser("train_demo", __doc__)
    add = parser.add_argument
    add("model", choices=RECIPES)
    add("--data", metavar="DIR", help="folder with the files of words and phones")
    add("--epochs", type=types.count, metavar="N")
    add("--seed", type=types.seed, default=1)
    add("--output", type=pathlib.Path, default="models", help="folder (default: models)")
    add_record(parser)
    options = parser.parse_args(argv)
    if (options.model == "phones") != (options.data is not None):
        parser.error("phones needs --data DIR, and dates takes none")
    return types.fill(options, RECIPES[options.model])


def load_pairs(options):
    """Sources and targets to train on, to choose the best epoch by, and for the test."""
    if options.model == "dates":
        return dates.make_pairs(SIZES, options.seed, FORMATS)
    words = load(options.data, "eng_us")
    sets = [[(word, "".join(phones)) for word, phones in words[x]] for x in words]
    sets[:2] = ([pair for pair in x if len(max(pair, key=len)) <= LONGEST] for x in sets[:2])
    return [tuple(map(list, zip(*pairs, strict=True))) for pairs in sets]


def build(options, source, target):
    """A model from characters to characters, as Bahdanau et al. (2015) describe it."""
    units, drop = options.units, options.dropout
    gru = keras.layers.GRU(units, return_sequences=True, return_state=True)
    embed = [keras.layers.Embedding(x.vocabulary_size, options.embedding) for x in (source, target)]
    return Seq2Seq(
        RecurrentEncoder(embed[0], keras.layers.Bidirectional(gru), dropout=drop),
        AttentionRNN(
            keras.layers.GRUCell(2 * units, dropout=drop),
            BahdanauAttention(units),
            output_mode="concat",
        ),
        target_embedding=embed[1],
        head=Readout(units, target.vocabulary_size, dropout=drop),
        source_text=source,
        target_text=target,
    )


def write(model, path):
    """Writes a compressed `.keras` file with float16 weights, for inference, and loads it."""
    model.save(path)
    model = keras.saving.load_model(path, compile=False)
    model.set_weights([x.astype("float16").astype("float32") for x in model.get_weights()])
    model.save(path)
    with zipfile.ZipFile(path) as file:
        parts = {name: file.read(name) for name in file.namelist()}
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as file:
        for name, part in parts.items():
            file.writestr(name, part)
    return keras.saving.load_model(path)


def main(argv=None):
    options = parse(argv)
    path = make_folder(options.output) / f"{options.model}.keras"
    train, valid, test = load_pairs(options)
    keras.utils.set_random_seed(options.seed)
    model = build(options, *map(Characters, train))
    steps = options.epochs * -(-len(train[0]) // BATCH_SIZE)
    rate = keras.optimizers.schedules.CosineDecay(
        0.0, steps - 200, alpha=0.01, warmup_target=options.rate, warmup_steps=200
    )
    model.compile(keras.optimizers.Adam(rate, global_clipnorm=1.0), jit_compile=True)
    stop = keras.callbacks.EarlyStopping(patience=3, restore_best_weights=True)
    fit = {"epochs": options.epochs, "batch_size": BATCH_SIZE, "callbacks": [stop], "verbose": 2}
    model.fit(*train, validation_data=valid, **fit)
    model = write(model, path)
    found = model.generate(test[0]).texts
    right = 100 * np.mean([x == y for x, y in zip(found, test[1], strict=True)])
    wrong = [x for x in zip(*test, found, strict=True) if x[1] != x[2]]
    for example in wrong[:5]:
        print("{}: {} expected, {} found".format(*example))
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    print(f"{right:.1f}% of {len(found):,} right; {path}, {path.stat().st_size:,} bytes, {digest}")
    figures = {"right, %": round(right, 1), "tested": len(found), "weights": model.count_params()}
    figures |= {"bytes": path.stat().st_size, "sha256": digest}
    write_record(options.record, figures, seeds=[options.seed])


if __name__ == "__main__":
    types.run(main)
