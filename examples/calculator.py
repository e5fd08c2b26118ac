"""
Calculate with characters
=========================

"57+386" becomes "443", and "512-37" becomes "475". The decoder is a stack of LSTM cells with a
residual connection, :py:obj:`keras_attention.ResidualRNNCells`, and beam search writes the results.
Look at the picture: each digit of the result reads one or two characters.

Paper: Luong, Pham and Manning, 2015, https://arxiv.org/abs/1508.04025, with the stack of Wu et al.,
2016, https://arxiv.org/abs/1609.08144
"""

import argparse
import pathlib

import keras
import numpy as np
from keras import ops

from keras_attention import AttentionRNN, LuongAttention, ResidualRNNCells, Seq2Seq
from keras_attention.plotting import plot_attention
from keras_attention.text import Characters

SEED = 0
TRAIN_SIZE, TEST_SIZE = 30_000, 500
UNITS, EPOCHS, BATCH_SIZE, LEARNING_RATE = 64, 5, 100, 0.007
PICTURE = pathlib.Path("output/calculator.png")

# `--help` explains this script, and trains nothing.
argparse.ArgumentParser(usage=__doc__).parse_known_args()

keras.utils.set_random_seed(SEED)
rng = np.random.default_rng(SEED)


# %%
# Data
# ----
# A result is written from its last digit to its first, as one does on paper. Results have from one
# to four digits. No calculation is in both the training and the test set.
def make_pair(number):
    number, minus = divmod(int(number), 2)
    first, second = divmod(number, 1000)
    if minus:
        first, second = max(first, second), min(first, second)
        return f"{first}-{second}", str(first - second)[::-1]
    return f"{first}+{second}", str(first + second)[::-1]


numbers = rng.choice(2_000_000, 2 * TRAIN_SIZE, replace=False)
pairs = list(dict.fromkeys(map(make_pair, numbers)))[: TRAIN_SIZE + TEST_SIZE]
sources, targets = map(np.array, zip(*pairs, strict=True))
train, test = slice(TRAIN_SIZE), slice(TRAIN_SIZE, None)

# %%
# Model
# -----
# An encoder of your own returns the memory, the initial state and the mask. The state is nested as
# the cells are: a list ``[h, c]`` for each LSTM cell, and both start from the last states of the
# encoder. Input feeding of :py:obj:`keras_attention.AttentionRNN` tells the decoder what it read
# before with :py:obj:`keras_attention.LuongAttention`, so that it knows what to carry.
# :py:obj:`keras_attention.text.Characters` numbers the characters; 0 is padding.
characters = Characters(sources)
size = characters.vocabulary_size


def embed():
    return keras.layers.Embedding(size, UNITS, "glorot_uniform")  # larger than by default


source = keras.Input((None,), dtype="int32")
mask = source != 0
lstm = keras.layers.LSTM(UNITS, return_sequences=True, return_state=True)
memory, *states = keras.layers.Bidirectional(lstm)(embed()(source), mask=mask)
state = [ops.concatenate(states[n::2], axis=-1) for n in range(2)]  # h and c, of both directions
encoder = keras.Model(source, [memory, [state, state], mask])
cells = ResidualRNNCells([keras.layers.LSTMCell(2 * UNITS) for _ in range(2)])
decoder = AttentionRNN(cells, LuongAttention("general", units=2 * UNITS), input_feeding=True)
head, texts = keras.layers.Dense(size), {"source_text": characters, "target_text": characters}
model = Seq2Seq(encoder, decoder, embed(), head, **texts)

# %%
# Training
# --------
# :py:obj:`keras_attention.Seq2Seq` gives the decoder the right digits so far. Padding counts
# neither in the loss nor in the state.
rate = keras.optimizers.schedules.CosineDecay(LEARNING_RATE, EPOCHS * TRAIN_SIZE // BATCH_SIZE)
model.compile(keras.optimizers.Adam(rate))
model.fit(sources[train], targets[train], epochs=EPOCHS, batch_size=BATCH_SIZE, verbose=2)

# %%
# Result
# ------
# In the search the decoder sees its own digits.
found = model.generate(sources[test], beam_width=3)
right = np.array(found.texts) == targets[test]
for n in range(6):
    verdict = "right" if right[n] else f"wrong, it is {targets[test][n][::-1]}"
    print(f"{sources[test][n]:>8} = {found.texts[n][::-1]:<4} {verdict}")
print(f"{right.mean():.1%} of {TEST_SIZE} new results are right in every digit.")
assert right.mean() > 0.9, "The model should calculate at least 90% of the results."

# %%
# Picture
# -------
# The weights of the first right result, drawn by
# :py:obj:`keras_attention.plotting.plot_attention`. The rows are the digits in the order in which
# they are written.
n = int(np.argmax(right))
title = f"What the decoder reads while it writes {sources[test][n]} = {found.texts[n][::-1]}"
figure = plot_attention(*found.alignment(n), title=title)
figure.axes[0].set(xlabel="characters that it reads", ylabel="digits that it writes")
PICTURE.parent.mkdir(parents=True, exist_ok=True)
figure.savefig(PICTURE)
print(f"The picture is in {PICTURE}.")
