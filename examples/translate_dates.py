"""
Translate written dates
=======================

"Sunday, 03 May 1998" becomes "1998-05-03". A recurrent decoder,
:py:obj:`keras_attention.AttentionRNN`, writes the ISO date character by character. At every step
:py:obj:`keras_attention.BahdanauAttention` reads the written date. Look at the picture: the decoder
jumps to the year, from there to the month, and then to the day.

Paper: Bahdanau, Cho and Bengio, 2015, https://arxiv.org/abs/1409.0473
"""

import argparse
import datetime
import pathlib
import string

import keras
import numpy as np

from keras_attention import AttentionRNN, BahdanauAttention, RecurrentEncoder, Seq2Seq
from keras_attention.plotting import plot_attention

SEED = 0
TRAIN_SIZE, TEST_SIZE = 8000, 500
UNITS, EPOCHS, BATCH_SIZE, LEARNING_RATE = 64, 4, 40, 0.003
FORMATS = ("%d %B %Y", "%B %d, %Y", "%A, %d %B %Y", "%d %b %Y", "%Y, %B %d", "%d/%m/%Y")
CHARACTERS = "^$" + string.ascii_letters + string.digits + " ,-/"  # "^" begins, "$" ends
START, END = 1, 2
PICTURE = pathlib.Path("output/translate_dates.png")

# `--help` explains this script, and trains nothing.
argparse.ArgumentParser(usage=__doc__).parse_known_args()

keras.utils.set_random_seed(SEED)
rng = np.random.default_rng(SEED)


# %%
# Data
# ----
# The source is a date in one of six formats, the target is the same date in ISO format. Both
# become rows of numbers, one for each character, filled up with zeros. No day is in both the
# training and the test set.
def encode(texts):
    ids = [[CHARACTERS.index(character) + 1 for character in text] for text in texts]
    return keras.utils.pad_sequences(ids, padding="post")  # 0 is padding


def decode(ids):
    return "".join(CHARACTERS[number - 1] for number in ids if number > END)


days = rng.choice(73_000, TRAIN_SIZE + TEST_SIZE, replace=False)
dates = [datetime.date(1900, 1, 1) + datetime.timedelta(int(day)) for day in days]
sources = np.array([date.strftime(rng.choice(FORMATS)) for date in dates])
targets = np.array([date.isoformat() for date in dates])
source_ids = encode(sources)
target_ids = encode([target + "$" for target in targets])
train, test = slice(TRAIN_SIZE), slice(TRAIN_SIZE, None)

# %%
# Model
# -----
# :py:obj:`keras_attention.RecurrentEncoder` turns the source into the memory, one vector for each
# character. :py:obj:`keras_attention.Seq2Seq` joins it to the decoder. It also shifts the targets,
# and keeps the attention off the padding behind short dates.
size = len(CHARACTERS) + 1
rnn = keras.layers.Bidirectional(keras.layers.GRU(UNITS, return_sequences=True))
model = Seq2Seq(
    RecurrentEncoder(keras.layers.Embedding(size, UNITS), rnn),
    AttentionRNN(keras.layers.GRUCell(2 * UNITS), BahdanauAttention(UNITS)),
    target_embedding=keras.layers.Embedding(size, UNITS),
    head=keras.layers.Dense(size),
    start_token=START,
    end_token=END,
)

# %%
# Training
# --------
# The decoder sees the right characters so far and predicts the next one. The model has a loss of
# its own, which leaves out the padding.
model.compile(keras.optimizers.Adam(LEARNING_RATE))
model.fit(source_ids[train], target_ids[train], epochs=EPOCHS, batch_size=BATCH_SIZE, verbose=2)

# %%
# Result
# ------
# Nobody knows the right characters of a new date, so the decoder sees its own. Beam search keeps
# the three best translations at every step and returns the best one. It returns the weights of the
# attention too.
found = model.generate(source_ids[test], max_length=11, beam_width=3)
predictions = np.array([decode(ids) for ids in found.tokens])
right = predictions == targets[test]
for n in range(5):
    verdict = "right" if right[n] else f"wrong, it is {targets[test][n]}"
    print(f"{sources[test][n]:>28} -> {predictions[n]}  {verdict}")
accuracy = right.mean()
print(f"{accuracy:.1%} of {TEST_SIZE} new dates are right in every character.")
assert accuracy > 0.8, "The model should translate at least 80% of new dates."

# %%
# Picture
# -------
# The weights of the longest new date, drawn by :py:obj:`keras_attention.plotting.plot_attention`.
# A row shows what the decoder read for one character: the darker, the more.
n = int(np.argmax([len(text) for text in sources[test]]))
figure = plot_attention(
    found.weights[n, : len(predictions[n]), : len(sources[test][n])],
    list(sources[test][n]),
    list(predictions[n]),
    title=f"What the decoder reads while it writes {predictions[n]}",
)
figure.axes[0].set(xlabel="characters that it reads", ylabel="characters that it writes")
PICTURE.parent.mkdir(parents=True, exist_ok=True)
figure.savefig(PICTURE)
print(f"The picture is in {PICTURE}.")
