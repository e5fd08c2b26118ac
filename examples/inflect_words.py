"""
Inflect words with two memories
===============================

In a made-up language "pabit" is PL DAT PAST "pepabiderle". The model reads a word and its features,
and writes the form. With :py:obj:`keras_attention.MultiSource`, its decoder attends to the letters
and to the features, to each with an attention of its own. The same model with one attention reads
both as one sequence, and needs more words to learn from. Look at the picture: the decoder walks
along the letters, and asks the features for the rest.

Paper: Zoph and Knight, 2016, https://arxiv.org/abs/1601.00710, attend to several sources.
Anastasopoulos and Neubig, 2019, https://arxiv.org/abs/1908.05838, inflect words with two.
"""

import argparse
import pathlib

import keras
import numpy as np

from keras_attention import AttentionRNN, BahdanauAttention, MultiSource, RecurrentEncoder, Seq2Seq
from keras_attention.plotting import plot_attention

SEED = 0
TRAIN_SIZE, TEST_SIZE = 300, 500
UNITS, EPOCHS, BATCH_SIZE, LEARNING_RATE = 64, 40, 20, 0.003
START, END = 1, 2
CONSONANTS, VOWELS = "bdfgklmnprstvz", "aeiou"
FEATURES = ["SG", "DU", "PL"], ["NOM", "ACC", "GEN", "DAT"], ["PRES", "PAST", "FUT"]
PICTURE = pathlib.Path("output/inflect_words.png")

# `--help` explains this script, and trains nothing.
argparse.ArgumentParser(usage=__doc__).parse_known_args()

keras.utils.set_random_seed(SEED)
rng = np.random.default_rng(SEED)


# %%
# Data
# ----
# Words have two or three syllables. An ending depends on the features, on the last vowel and on the
# last letter of the word. There are few words to learn from.
def make_word():
    syllables = [rng.choice(list(CONSONANTS)) + rng.choice(list(VOWELS)) for _ in range(3)]
    word = "".join(syllables[rng.integers(0, 2) :])
    return word + (rng.choice(list(CONSONANTS)) if rng.random() < 0.6 else "")


def inflect(word, number, case, tense):
    vowel = "e" if [x for x in word if x in VOWELS][-1] in "ei" else "a"
    ends = {"NOM": "", "ACC": "n", "GEN": "s" + vowel, "DAT": "l" + vowel}[case]
    ends = {"SG": "", "DU": vowel + "m", "PL": vowel + "r"}[number] + ends
    if word[-1] in VOWELS and ends[:1] == vowel:
        ends = "y" + ends  # two vowels do not meet
    elif word[-1] not in VOWELS and ends == "n":
        ends = vowel + "n"
    if ends and word[-1] in "ptk":
        word = word[:-1] + {"p": "b", "t": "d", "k": "g"}[word[-1]]
    return {"PRES": "", "PAST": word[0] + "e", "FUT": "o"}[tense] + word + ends


def make_sample():
    word, features = make_word(), [str(rng.choice(x)) for x in FEATURES]
    return word, features, inflect(word, *features)


words, features, forms = zip(*(make_sample() for _ in range(TRAIN_SIZE + TEST_SIZE)), strict=True)
train, test = slice(TRAIN_SIZE), slice(TRAIN_SIZE, None)
tags = [x for group in FEATURES for x in group]
symbols = ["[PAD]", "[START]", "[END]", *tags, *CONSONANTS, *VOWELS, "y"]
numbers = {symbol: n for n, symbol in enumerate(symbols)}


def encode(texts):
    ids = [[numbers[x] for x in text] for text in texts]
    return keras.utils.pad_sequences(ids, padding="post")


target = encode([[*form, "[END]"] for form in forms])


# %%
# Model
# -----
# Both models have a :py:obj:`keras_attention.RecurrentEncoder`, an
# :py:obj:`keras_attention.AttentionRNN` with :py:obj:`keras_attention.BahdanauAttention`, and a
# :py:obj:`keras_attention.Seq2Seq` around them. For two memories, the encoder returns two lists.
def make_encoder():
    gru = keras.layers.GRU(UNITS // 2, return_sequences=True, return_state=True)
    embedding = keras.layers.Embedding(len(symbols), UNITS)
    return RecurrentEncoder(embedding, keras.layers.Bidirectional(gru))


def make_model(encoder, attention):
    decoder = AttentionRNN(keras.layers.GRUCell(UNITS), attention)
    embedding, head = keras.layers.Embedding(len(symbols), UNITS), keras.layers.Dense(len(symbols))
    return Seq2Seq(encoder, decoder, embedding, head, start_token=START, end_token=END)


inputs = [keras.Input((None,), dtype="int32", name=name) for name in ("word", "features")]
(letters, state, of_letters), (values, _, of_values) = (make_encoder()(x) for x in inputs)
encoder = keras.Model(inputs, ([letters, values], state, [of_letters, of_values]))
two = MultiSource([BahdanauAttention(UNITS), BahdanauAttention(UNITS)])
both = encode([[*x, *word] for x, word in zip(features, words, strict=True)])
variants = {
    "one memory": (make_model(make_encoder(), BahdanauAttention(UNITS)), both),
    "two memories": (make_model(encoder, two), (encode(words), encode(features))),
}

# %%
# Training
# --------
# Each model trains on the same words. Then it inflects new words.
right = {}
for title, (model, source) in variants.items():
    seen, new = (keras.tree.map_structure(lambda x, n=n: x[n], source) for n in (train, test))
    model.compile(keras.optimizers.Adam(LEARNING_RATE))
    model.fit(seen, target[train], epochs=EPOCHS, batch_size=BATCH_SIZE, verbose=2)
    found = model.generate(new, max_length=target.shape[1], search="greedy")
    written = ["".join(symbols[x] for x in row[row > END]) for row in found.tokens]
    right[title] = np.mean([x == y for x, y in zip(written, forms[test], strict=True)])

# %%
# Result
# ------
# A form is right if all its letters are right.
for title, share in right.items():
    print(f"{title}: {share:.1%} of {TEST_SIZE} forms of new words are right.")
for word, of_word, form in list(zip(words[test], features[test], written, strict=True))[:3]:
    print(word, *of_word, "->", form)
assert right["two memories"] > right["one memory"], "Two memories should help."

# %%
# Picture
# -------
# The weights of the longest of the first forms, drawn by
# :py:obj:`keras_attention.plotting.plot_attention`. Each row has the weights of both attentions.
n = int(np.argmax([len(form) for form in written[:20]]))
word, of_word, form = words[test][n], features[test][n], written[n]
weights = np.concatenate([found.weights[0][n, :, : len(word)], found.weights[1][n]], axis=1)
title = "What the decoder reads while it writes"
figure = plot_attention(weights[: len(form)], [*word, *of_word], [*form], title=title)
PICTURE.parent.mkdir(parents=True, exist_ok=True)
figure.savefig(PICTURE)
print(f"The picture is in {PICTURE}.")
