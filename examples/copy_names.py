"""
Copy names that the model has never seen
========================================

"Zorvi sold a red boat to Melkan ." becomes "Melkan owns a red boat ." Every sentence has names of
its own, so no vocabulary holds them. :py:obj:`keras_attention.seq2seq.PointerGenerator` writes each
word from the vocabulary or copies one from the sentence. The same model with an ordinary head has
to write "[UNK]". Look at the picture: where the model copies, it points at the name.

Paper: See, Liu and Manning, 2017, https://arxiv.org/abs/1704.04368
"""

import argparse
import pathlib

import keras
import numpy as np

from keras_attention import AttentionRNN, BahdanauAttention, RecurrentEncoder, Seq2Seq
from keras_attention.plotting import plot_attention
from keras_attention.seq2seq import ExtendedVocabulary, PointerGenerator

SEED = 0
TRAIN_SIZE, TEST_SIZE = 6000, 500
UNITS, EPOCHS, BATCH_SIZE, LEARNING_RATE = 64, 3, 32, 0.003
MAX_EXTRA = 3  # names in a sentence
SPECIAL = "[PAD]", "[UNK]", "[START]", "[END]"
UNKNOWN, START, END = 1, 2, 3
CONSONANTS = "bdfgklmnprstvz"
COLOURS = ["red", "blue", "green", "white", "black"]
THINGS = ["boat", "horse", "hat", "lamp", "kite", "drum"]
SALES = (
    "{seller} sold a {thing} to {buyer} .",
    "{buyer} bought a {thing} from {seller} .",
    "a {thing} was sold by {seller} to {buyer} .",
    "in {town} , {buyer} got a {thing} , which {seller} no longer wanted .",
    "{seller} of {town} gave a {thing} to {buyer} .",
)
PICTURE = pathlib.Path("output/copy_names.png")

# `--help` explains this script, and trains nothing.
argparse.ArgumentParser(usage=__doc__).parse_known_args()

keras.utils.set_random_seed(SEED)
rng = np.random.default_rng(SEED)


# %%
# Data
# ----
# Names have two to four syllables, and hardly any occurs twice.
# :py:obj:`keras_attention.seq2seq.ExtendedVocabulary` gives the unknown words of a sentence numbers
# behind the numbers of the vocabulary, so that the model can copy them.
def make_name():
    syllables = [rng.choice(list(CONSONANTS)) + rng.choice(list("aeiou")) for _ in range(4)]
    return "".join(syllables[: rng.integers(2, 5)]).capitalize()


def make_pair():
    seller, buyer, town = make_name(), make_name(), make_name()
    thing = f"{rng.choice(COLOURS)} {rng.choice(THINGS)}"
    sale = str(rng.choice(SALES)).format(seller=seller, buyer=buyer, town=town, thing=thing)
    return sale.split(), f"{buyer} owns a {thing} .".split()


sales, answers = zip(*(make_pair() for _ in range(TRAIN_SIZE + TEST_SIZE)), strict=True)
train, test = slice(TRAIN_SIZE), slice(TRAIN_SIZE, None)
common = " ".join(SALES).format(seller="", buyer="", town="", thing="owns").split()
words = list(dict.fromkeys([*SPECIAL, *COLOURS, *THINGS, *common]))
vocabulary = ExtendedVocabulary(words, MAX_EXTRA, UNKNOWN)
seen = {word for sale in sales[train] for word in sale}
new = np.array([answer[0] not in seen for answer in answers[test]])
endings = [[*answer, "[END]"] for answer in answers]


# %%
# Model
# -----
# Two models differ in their heads alone, the last part of a :py:obj:`keras_attention.Seq2Seq`.
# Both have a :py:obj:`keras_attention.RecurrentEncoder`, and an
# :py:obj:`keras_attention.AttentionRNN` with :py:obj:`keras_attention.BahdanauAttention`. Without
# the pointer, all names are the same unknown word.
def make_model(head):
    gru = keras.layers.Bidirectional(keras.layers.GRU(UNITS, return_sequences=True))
    encoder = RecurrentEncoder(keras.layers.Embedding(len(words), UNITS), gru)
    decoder = AttentionRNN(keras.layers.GRUCell(UNITS), BahdanauAttention(UNITS))
    embedding = keras.layers.Embedding(len(words), UNITS)
    return Seq2Seq(encoder, decoder, embedding, head, start_token=START, end_token=END)


_, names = vocabulary.encode_sources(sales)
nothing = [[] for _ in sales]
variants = {
    "without the pointer": (make_model(keras.layers.Dense(len(words))), nothing),
    "with the pointer": (make_model(PointerGenerator(len(words), MAX_EXTRA, UNITS)), names),
}

# %%
# Training
# --------
# Each model trains on the same sentences. Afterwards a beam search writes the answers to new
# sentences.
written = {}
for title, (model, extra) in variants.items():
    ids = (vocabulary.encode_targets(texts, extra) for texts in (sales, endings))
    source, target = (keras.utils.pad_sequences(x, padding="post") for x in ids)
    model.compile(keras.optimizers.Adam(LEARNING_RATE))
    model.fit(source[train], target[train], epochs=EPOCHS, batch_size=BATCH_SIZE, verbose=2)
    found = model.generate(source[test], max_length=8)
    ids = [tokens[tokens > END] for tokens in found.tokens]
    written[title] = vocabulary.decode(ids, extra[test])

# %%
# Result
# ------
# Only sentences count whose new owner has a name that no training sentence holds. The ordinary
# head cannot write such a name.
for title, texts in written.items():
    right = np.array([x[:1] == y[:1] for x, y in zip(texts, answers[test], strict=True)])[new]
    print(f"{title}: {right.mean():.1%} of {len(right)} new names are right.")
for sale, text in list(zip(sales[test], texts, strict=True))[:3]:
    print(" ".join(sale), "->", " ".join(text))
assert right.mean() > 0.9, "The pointer should copy at least 90% of new names."

# %%
# Picture
# -------
# The weights of the first new sentence, drawn by
# :py:obj:`keras_attention.plotting.plot_attention`. Where the model copies, the weights in a row
# are the probabilities of the words of the sentence.
read, written, title = sales[test][0], texts[0], "What the decoder reads while it writes"
figure = plot_attention(found.weights[0, : len(written), : len(read)], read, written, title=title)
PICTURE.parent.mkdir(parents=True, exist_ok=True)
figure.savefig(PICTURE)
print(f"The picture is in {PICTURE}.")
