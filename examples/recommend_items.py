"""
Recommend what a session asks for
=================================

A visitor has clicked on items of several kinds, and buys a candidate if at least three clicks were
on its kind. The items are numbers, so nobody tells the model which items are of one kind.
:py:obj:`keras_attention.TargetAttention` compares the candidate with every click. Its weights do
not sum to one, so their sum can count. Look at the picture: the clicks on the candidate's kind have
the large weights.

Paper: Zhou et al., 2018, https://arxiv.org/abs/1706.06978
"""

import argparse
import pathlib

import keras
import matplotlib.pyplot as plt
import numpy as np

from keras_attention import TargetAttention
from keras_attention.plotting import attention_weights

SEED = 0
TRAIN_SIZE, TEST_SIZE = 8000, 2000
KINDS, ITEMS, MOST_CLICKS = 5, 60, 12
FEATURES, UNITS, EPOCHS, BATCH_SIZE, LEARNING_RATE = 8, 36, 12, 100, 0.01
PICTURE = pathlib.Path("output/recommend_items.png")

# `--help` explains this script, and trains nothing.
argparse.ArgumentParser(usage=__doc__).parse_known_args()

rng = np.random.default_rng(SEED)

# %%
# Data
# ----
# Each item has a kind, which the model does not see. A session has from five to twelve clicks on
# items of two or three kinds; 0 is padding. Half of the candidates are of a kind of the session.
count = TRAIN_SIZE + TEST_SIZE
kind = np.concatenate([[-1], rng.permutation(ITEMS) % KINDS])  # of the items 1 to ITEMS
clicks, candidates = np.zeros((count, MOST_CLICKS), "int32"), np.zeros(count, "int32")
for n in range(count):
    liked = rng.permutation(KINDS)[: rng.integers(2, 4)]
    length = rng.integers(5, MOST_CLICKS + 1)
    clicks[n, :length] = rng.choice(np.flatnonzero(np.isin(kind, liked)), length)
    wanted = liked if rng.random() < 0.8 else range(KINDS)
    candidates[n] = rng.choice(np.flatnonzero(np.isin(kind, wanted)))
same = kind[clicks] == kind[candidates][:, None]
labels = (same.sum(axis=1) >= 3).astype("float32")
train, test = slice(TRAIN_SIZE), slice(TRAIN_SIZE, None)


# %%
# Model
# -----
# One embedding serves candidates and clicks. The candidate is the query, the clicks are the memory.
# The normalizer "none" leaves the weights as they are; "softmax" makes them sum to one.
def make_model(normalizer):
    keras.utils.set_random_seed(SEED)
    clicked, candidate = keras.Input((None,), dtype="int32"), keras.Input((), dtype="int32")
    embedding = keras.layers.Embedding(ITEMS + 1, FEATURES)
    query = embedding(candidate)
    attention = TargetAttention(UNITS, normalizer, name="attention")
    interest = attention(query, embedding(clicked), value_mask=keras.ops.not_equal(clicked, 0))
    features = keras.layers.Concatenate()([query, interest])
    hidden = keras.layers.Dense(UNITS, activation="relu")(features)
    return keras.Model([clicked, candidate], keras.layers.Dense(1, activation="sigmoid")(hidden))


# %%
# Training
# --------
# Only clicks and purchases are given. The second model differs in its normalizer alone.
test_inputs, scores = [clicks[test], candidates[test]], {}
for normalizer in ("softmax", "none"):
    model = make_model(normalizer)
    model.compile(keras.optimizers.Adam(LEARNING_RATE), "binary_crossentropy", metrics=["AUC"])
    inputs = [clicks[train], candidates[train]]
    model.fit(inputs, labels[train], batch_size=BATCH_SIZE, epochs=EPOCHS, verbose=2)
    scores[normalizer] = model.evaluate(test_inputs, labels[test], verbose=0)[1]

# %%
# Result
# ------
# A good model puts a random purchase before a random candidate that was not bought: the area under
# the curve, AUC. :py:obj:`keras_attention.plotting.attention_weights` returns the weights, whose
# size tells clicks on the candidate's kind from others.
weights = attention_weights(model, test_inputs)["attention"]
valid = clicks[test] != 0
sizes = [np.abs(weights[which & valid]).mean() for which in (same[test], ~same[test])]
print(f"AUC {scores['none']:.3f}, with a softmax {scores['softmax']:.3f}.")
print(f"Mean size of a weight: {sizes[0]:.2f} for clicks on the same kind, {sizes[1]:.2f} others.")
assert scores["none"] > 0.97, "The model should count clicks on the candidate's kind."
assert sizes[0] > 2 * sizes[1], "The weights should show the kind of the candidate."

# %%
# Picture
# -------
# The weights of one long session for a candidate. Colours are the kinds.
n = int(np.flatnonzero(valid.all(axis=1) & (labels[test] == 1))[0])
figure, axes = plt.subplots(figsize=(9, 4), layout="constrained")
colours = [f"C{k}" for k in kind[clicks[test][n]]]
axes.bar(range(MOST_CLICKS), weights[n], color=colours)
axes.set_xticks(range(MOST_CLICKS), [f"item {item}" for item in clicks[test][n]], rotation=45)
candidate = candidates[test][n]
axes.set(title=f"Clicks by kind, and their weights for item {candidate}", ylabel="weight")
axes.title.set_color(f"C{kind[candidate]}")
PICTURE.parent.mkdir(parents=True, exist_ok=True)
figure.savefig(PICTURE)
print(f"The picture is in {PICTURE}.")
