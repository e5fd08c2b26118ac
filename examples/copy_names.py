"""
Copy names that the model has never seen
========================================

"Zorvi sold a red boat to Melkan ." becomes "Melkan owns a red boat ." Every sentence has names of
its own, so no vocabulary holds them. :py:obj:`keras_attention.seq2seq.PointerGenerator` writes each
word from the vocabulary or copies one from the sentence. The same model with an ordinary head has
to write the unknown token. Look at the picture: where the model copies, it points at the name.

Paper: See, Liu and Manning, 2017, https://arxiv.org/abs/1704.04368
"""

import argparse
import pathlib

import keras
import numpy as np

from keras_attention import AttentionRNN, BahdanauAttention, RecurrentEncoder, Seq2Seq
from keras_attention.plotting import plot_attention
from keras_attention.seq2seq import PointerGenerator
from keras_attention.text import Tokenizer

SEED = 0
TRAIN_SIZE, TEST_SIZE = 6000, 500
UNITS, EPOCHS, BATCH_SIZE, LEARNING_RATE = 64, 3, 32, 0.003
MAX_EXTRA = 3  # names in a sentence
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
# Names have two to four syllables, and hardly any occurs twice. The vocabulary of a
# :py:obj:`keras_attention.text.Tokenizer` holds all other words.
def make_name():
    syllables = [rng.choice(list(CONSONANTS)) + rng.choice(list("aeiou")) for _ in range(4)]
    return "".join(syllables[: rng.integers(2, 5)]).capitalize()


def make_pair():
    seller, buyer, town = make_name(), make_name(), make_name()
    thing = f"{rng.choice(COLOURS)} {rng.choice(THINGS)}"
    sale = str(rng.choice(SALES)).format(seller=seller, buyer=buyer, town=town, thing=thing)
    return sale, f"{buyer} owns a {thing} ."


class Words(Tokenizer):
    def pieces(self, text):
        return text.split()

    def join(self, pieces):
        return " ".join(pieces)


sales, answers = zip(*(make_pair() for _ in range(TRAIN_SIZE + TEST_SIZE)), strict=True)
train, test = slice(TRAIN_SIZE), slice(TRAIN_SIZE, None)
common = " ".join(SALES).format(seller="", buyer="", town="", thing="owns")
words = Words([*COLOURS, *THINGS, common])
size = words.vocabulary_size
seen = {*" ".join(sales[train]).split()}
names = [answer.split()[0] for answer in answers[test]]
new = np.array([name not in seen for name in names])


# %%
# Model
# -----
# Two models differ in their heads alone, the last part of a :py:obj:`keras_attention.Seq2Seq`.
# Both have a :py:obj:`keras_attention.RecurrentEncoder`, and an
# :py:obj:`keras_attention.AttentionRNN` with :py:obj:`keras_attention.BahdanauAttention`. Without
# the pointer, all names are the same unknown word.
def make_model(head):
    gru = keras.layers.Bidirectional(keras.layers.GRU(UNITS, return_sequences=True))
    encoder = RecurrentEncoder(keras.layers.Embedding(size, UNITS), gru)
    decoder = AttentionRNN(keras.layers.GRUCell(UNITS), BahdanauAttention(UNITS))
    embedding = keras.layers.Embedding(size, UNITS)
    return Seq2Seq(encoder, decoder, embedding, head, source_text=words, target_text=words)


variants = {
    "without the pointer": make_model(keras.layers.Dense(size)),
    "with the pointer": make_model(PointerGenerator(size, MAX_EXTRA, UNITS)),
}

# %%
# Training
# --------
# Each model trains on the same sentences. Afterwards a beam search writes the answers to new
# sentences.
written = {}
for title, model in variants.items():
    model.compile(keras.optimizers.Adam(LEARNING_RATE))
    model.fit(sales[train], answers[train], epochs=EPOCHS, batch_size=BATCH_SIZE, verbose=2)
    found = model.generate(sales[test])
    written[title] = found.texts

# %%
# Result
# ------
# Only sentences count whose new owner has a name that no training sentence holds. The ordinary
# head cannot write such a name.
for title, texts in written.items():
    right = np.array([x.split()[:1] == [y] for x, y in zip(texts, names, strict=True)])[new]
    print(f"{title}: {right.mean():.1%} of {len(right)} new names are right.")
for sale, text in list(zip(sales[test], texts, strict=True))[:3]:
    print(sale, "->", text)
assert right.mean() > 0.9, "The pointer should copy at least 90% of new names."

# %%
# Picture
# -------
# The weights of the first new sentence, drawn by
# :py:obj:`keras_attention.plotting.plot_attention`. Where the model copies, the weights in a row
# are the probabilities of the words of the sentence.
title = "What the decoder reads while it writes"
figure = plot_attention(*found.alignment(0), title=title)
PICTURE.parent.mkdir(parents=True, exist_ok=True)
figure.savefig(PICTURE)
print(f"The picture is in {PICTURE}.")
