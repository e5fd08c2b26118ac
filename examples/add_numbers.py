"""Add numbers that are written as characters: "57+386" becomes "443".

The decoder has two LSTM cells, one on the other, and writes the sum from its last digit to its
first, as one does on paper. Input feeding tells it at every step what it read before, and so what
it has to carry. Look at the picture: a digit of the sum reads the numbers at its own place.

Paper: Luong, Pham and Manning, 2015, https://arxiv.org/abs/1508.04025
"""

import pathlib

import keras
import numpy as np

from keras_attention import AttentionRNN, LuongAttention, RecurrentEncoder, Seq2Seq
from keras_attention.plotting import plot_attention

SEED = 0
TRAIN_SIZE, TEST_SIZE = 30_000, 500
UNITS, EPOCHS, BATCH_SIZE, LEARNING_RATE = 64, 5, 100, 0.007
CHARACTERS = "^$0123456789+"  # "^" begins and "$" ends a sum
START, END = 1, 2
PLACES = ("ones", "tens", "hundreds", "thousands")
PICTURE = pathlib.Path("output/add_numbers.png")

keras.utils.set_random_seed(SEED)
rng = np.random.default_rng(SEED)


# Data: no pair of numbers is in both the training and the test set.
def encode(texts):
    ids = [[CHARACTERS.index(character) + 1 for character in text] for text in texts]
    return keras.utils.pad_sequences(ids, padding="post")  # 0 is padding


def decode(ids):
    return "".join(CHARACTERS[number - 1] for number in ids if number > END)


pairs = rng.choice(1_000_000, TRAIN_SIZE + TEST_SIZE, replace=False)
pairs = [divmod(int(pair), 1000) for pair in pairs]
sources = np.array([f"{first}+{second}" for first, second in pairs])
targets = np.array([str(first + second)[::-1] for first, second in pairs])
source_ids = encode(sources)
target_ids = encode([target + "$" for target in targets])
train, test = slice(TRAIN_SIZE), slice(TRAIN_SIZE, None)

# Model: it shifts the targets, and keeps the attention off the padding behind short numbers. From
# the smaller vectors that Keras would start from, some runs learn too late.
size = len(CHARACTERS) + 1
rnn = keras.layers.Bidirectional(keras.layers.LSTM(UNITS, return_sequences=True))
decoder = AttentionRNN(
    [keras.layers.LSTMCell(2 * UNITS), keras.layers.LSTMCell(2 * UNITS)],
    LuongAttention("general", units=2 * UNITS),
    input_feeding=True,
)
model = Seq2Seq(
    RecurrentEncoder(keras.layers.Embedding(size, UNITS, "glorot_uniform"), rnn),
    decoder,
    target_embedding=keras.layers.Embedding(size, UNITS, "glorot_uniform"),
    head=keras.layers.Dense(size),
    start_token=START,
    end_token=END,
)

# Training: the decoder sees the right digits so far and predicts the next one.
rate = keras.optimizers.schedules.CosineDecay(LEARNING_RATE, EPOCHS * TRAIN_SIZE // BATCH_SIZE)
model.compile(keras.optimizers.Adam(rate))
model.fit(source_ids[train], target_ids[train], epochs=EPOCHS, batch_size=BATCH_SIZE, verbose=2)

# Result: in the search the decoder sees its own digits.
found = model.generate(source_ids[test], max_length=5, search="greedy")
predictions = np.array([decode(ids) for ids in found.tokens])
right = predictions == targets[test]
for n in range(5):
    verdict = "right" if right[n] else f"wrong, it is {targets[test][n][::-1]}"
    print(f"{sources[test][n]:>28} -> {predictions[n][::-1]}  {verdict}")
accuracy = right.mean()
print(f"{accuracy:.1%} of {TEST_SIZE} new sums are right in every digit.")
assert accuracy > 0.9, "The model should add at least 90% of new pairs."

# Picture: the weights of the first sum that the model got right.
n = int(np.argmax(right))
figure = plot_attention(
    found.weights[n, : len(predictions[n]), : len(sources[test][n])],
    list(sources[test][n]),
    [f"{digit} ({place})" for digit, place in zip(predictions[n], PLACES, strict=False)],
    title=f"What the decoder reads while it writes {sources[test][n]} = {predictions[n][::-1]}",
)
figure.axes[0].set(xlabel="characters that it reads", ylabel="digits that it writes")
PICTURE.parent.mkdir(parents=True, exist_ok=True)
figure.savefig(PICTURE)
print(f"The picture is in {PICTURE}.")
