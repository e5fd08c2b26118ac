"""
Find the bags that hold a nine
==============================

A bag of images has a label: it holds a 9, or it does not. Nobody says which image is the 9. This is
multiple-instance learning: patches of a slide, readings of a machine and shapes of a molecule are
such bags. :py:obj:`keras_attention.AttentionPooling` turns a bag of any size into one vector, and
learns which images count. Look at the picture: the images with the largest weights are the nines.

Paper: Ilse, Tomczak and Welling, 2018, https://arxiv.org/abs/1802.04712
"""

import argparse
import pathlib

import keras
import numpy as np

from keras_attention import AttentionPooling
from keras_attention.plotting import attention_weights, plot_bag

SEED = 0
TRAIN_SIZE, TEST_SIZE, LONGEST = 800, 200, 40
UNITS, EPOCHS, BATCH_SIZE, LEARNING_RATE = 32, 15, 20, 0.005
# The digits from 0 to 9 as 5 rows of 3 pixels.
PIXELS = (
    "111101101101111010110010010111111001111100111111001011001111101101111001001"
    "111100111001111111100111101111111001010010010111101111101111111101111001111"
)
PICTURE = pathlib.Path("output/find_digits.png")

# `--help` explains this script, and trains nothing.
argparse.ArgumentParser(usage=__doc__).parse_known_args()

keras.utils.set_random_seed(SEED)
rng = np.random.default_rng(SEED)


# %%
# Data
# ----
# An image is a digit of 5 x 3 pixels in a frame, with noise all over it. Every other bag holds
# nines, a tenth of its images. Bags have from 10 to 40 images, and a mask says where a bag ends.
SHAPES = np.reshape([*map(float, PIXELS)], (10, 5, 3))


def make_image(digit):
    image = np.pad(SHAPES[digit], 1)
    return image + 0.15 * rng.normal(size=image.shape)


def make_bags(count):
    images = np.zeros((count, LONGEST, 7, 5), "float32")
    digits = np.full((count, LONGEST), -1)  # -1 is padding
    for bag in range(count):
        size = rng.integers(10, LONGEST + 1)
        digits[bag, :size] = rng.integers(9, size=size)
        if bag % 2:
            digits[bag, :size][rng.random(size) < 0.1] = 9
            digits[bag, rng.integers(size)] = 9
        images[bag, :size] = [make_image(digit) for digit in digits[bag, :size]]
    return images, digits, np.arange(count) % 2


train_images, train_digits, train_labels = make_bags(TRAIN_SIZE)
images, digits, labels = make_bags(TEST_SIZE)

# %%
# Model
# -----
# Two layers read each image separately. Gated attention weighs the images of a bag, and their
# weighted sum tells whether there is a 9.
bag = keras.Input((None, 7, 5))
mask = keras.Input((None,), dtype="bool")
x = keras.layers.Reshape((-1, 35))(bag)
x = keras.layers.Dense(64, activation="relu")(x)
x = keras.layers.Dense(UNITS, activation="relu")(x)
vector = AttentionPooling(UNITS, gated=True, name="attention")(x, mask=mask)
probability = keras.layers.Dense(1, activation="sigmoid")(vector)
model = keras.Model([bag, mask], probability)

# %%
# Training
# --------
# Only the labels of whole bags are given.
model.compile(keras.optimizers.Adam(LEARNING_RATE), "binary_crossentropy")
given = [train_images, train_digits >= 0]
model.fit(given, train_labels, batch_size=BATCH_SIZE, epochs=EPOCHS, verbose=2)

# %%
# Result
# ------
# We count the bags that are classified rightly. In each bag with nines, we also look at the image
# with the largest weight: :py:obj:`keras_attention.plotting.attention_weights` reads the weights.
given = [images, digits >= 0]
accuracy = np.mean((model.predict(given, verbose=0)[:, 0] > 0.5) == labels)
weights = attention_weights(model, given)["attention"]
largest = digits[np.arange(TEST_SIZE), weights.argmax(axis=1)]
found = np.mean(largest[labels == 1] == 9)
print(f"{accuracy:.1%} of new bags are right.")
print(f"In {found:.1%} of the bags with nines the largest weight is on a 9.")
assert accuracy > 0.9, "The model should tell which bags hold a 9."
assert found > 0.9, "The weights should show where."

# %%
# Picture
# -------
# :py:obj:`keras_attention.plotting.plot_bag` draws the images with the largest weights. Nines are
# red.
n = int(np.flatnonzero(labels)[(digits[labels == 1] == 9).sum(axis=1).argmax()])
size = int((digits[n] >= 0).sum())
nines = np.flatnonzero(digits[n] == 9)
figure = plot_bag(weights[n, :size], images[n, :size], marked=nines, title=f"A bag of {size}")
PICTURE.parent.mkdir(parents=True, exist_ok=True)
figure.savefig(PICTURE)
print(f"The picture is in {PICTURE}.")
