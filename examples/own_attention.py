"""
Write your own attention
========================

A Gaussian kernel learns which samples are similar. Each task shows labelled samples of three new
kinds and asks for the kind of others. Two of twelve directions tell the kinds apart, and the layer
learns which. Look at the picture: the layer separates the kinds.

Paper: Vinyals et al., 2016, https://arxiv.org/abs/1606.04080, here with another score.
"""

import argparse
import pathlib

import keras
import matplotlib.pyplot as plt
import numpy as np
from keras import ops

from keras_attention import ScoringMixin
from keras_attention.plotting import attention_weights

SEED = 0
TRAIN_SIZE, TEST_SIZE = 4000, 500
KINDS, MEMORIES, QUERIES, FEATURES = 3, 15, 5, 12
EPOCHS, BATCH_SIZE, LEARNING_RATE = 15, 50, 0.01
PICTURE = pathlib.Path("output/own_attention.png")

# `--help` explains this script, and trains nothing.
argparse.ArgumentParser(usage=__doc__).parse_known_args()

keras.utils.set_random_seed(SEED)
rng = np.random.default_rng(SEED)


# %%
# The attention
# -------------
# An attention of your own needs one method, ``score``. :py:obj:`keras_attention.ScoringMixin` adds
# the softmax, masks, saving and the use in an :py:obj:`keras_attention.AttentionRNN`.
# ``project_query`` and ``project_key`` compute what depends on the queries, or on the keys, alone.
@keras.saving.register_keras_serializable("my_package")
class GaussianAttention(ScoringMixin):
    """Attention by distance: softmax_j(-|W q_i - W k_j|^2)."""

    def __init__(self, units, **kwargs):
        super().__init__(**kwargs)
        self.units = units

    def build(self, query_shape, value_shape=None, key_shape=None):
        super().build(query_shape, value_shape, key_shape)
        initializer = keras.initializers.RandomNormal(stddev=0.1)
        shape = (query_shape[-1], self.units)
        self.kernel = self.add_weight(shape, initializer, name="kernel")

    def project_query(self, query):
        return self.project(query, self.kernel)

    def project_key(self, key):
        return self.project(key, self.kernel)

    def score(self, query, key):
        difference = ops.expand_dims(query, 2) - ops.expand_dims(key, 1)
        return -ops.sum(ops.square(difference), axis=-1)


# %%
# Data
# ----
# Every task has its own three centres, and from 5 to 15 labelled samples near them. A rotation
# hides the two directions that tell the kinds apart.
count = TRAIN_SIZE + TEST_SIZE
centres = rng.normal(0, 2, (count, KINDS, 2))
kinds = rng.integers(0, KINDS, (count, MEMORIES + QUERIES))
kinds[:, :MEMORIES] = np.arange(MEMORIES) % KINDS  # every kind is shown
samples = rng.normal(0, 2, (count, MEMORIES + QUERIES, FEATURES))
telling = np.take_along_axis(centres, kinds[:, :, None], axis=1)
samples[:, :, :2] = telling + rng.normal(0, 0.4, telling.shape)
rotation, _ = np.linalg.qr(rng.normal(size=(FEATURES, FEATURES)))
samples = (samples @ rotation).astype("float32")
given = np.arange(MEMORIES) < rng.integers(5, MEMORIES + 1, count)[:, None]
labels = np.eye(KINDS, dtype="float32")[kinds]
inputs = [samples[:, MEMORIES:], labels[:, :MEMORIES], samples[:, :MEMORIES], given]
train, test = slice(TRAIN_SIZE), slice(TRAIN_SIZE, None)

# %%
# Model
# -----
# The queries are the samples to classify, the keys are the labelled samples. The values are their
# labels, so the output is a probability for every kind.
query = keras.Input((None, FEATURES))
value = keras.Input((None, KINDS))
key = keras.Input((None, FEATURES))
mask = keras.Input((None,), dtype="bool")
attention = GaussianAttention(units=2, name="attention")
model = keras.Model([query, value, key, mask], attention(query, value, key, value_mask=mask))

# %%
# Training
# --------
# The layer has one kernel, and the loss of a classifier trains it.
model.compile(keras.optimizers.Adam(LEARNING_RATE), "categorical_crossentropy")
answers = labels[train, MEMORIES:]
training_inputs = [x[train] for x in inputs]
model.fit(training_inputs, answers, batch_size=BATCH_SIZE, epochs=EPOCHS, verbose=2)

# %%
# Result
# ------
# The layer is compared with the kind of the nearest labelled sample. Then the model is saved and
# loaded: the decorator at the class lets Keras find it.
test_inputs, truth = [x[test] for x in inputs], kinds[test, MEMORIES:]
predictions = model.predict(test_inputs, verbose=0).argmax(axis=-1)
distances = np.linalg.norm(test_inputs[0][:, :, None] - test_inputs[2][:, None], axis=-1)
nearest = np.where(given[test][:, None], distances, np.inf).argmin(axis=-1)
nearest_accuracy = np.mean(np.take_along_axis(kinds[test], nearest, axis=1) == truth)
accuracy = np.mean(predictions == truth)
for n in range(3):
    print(f"new task {n + 1}: predicted kinds {predictions[n]}, true kinds {truth[n]}")
print(f"{accuracy:.1%} of the samples are right, {nearest_accuracy:.1%} by the nearest sample.")
assert accuracy > 0.8 > 0.65 > nearest_accuracy, "The layer should learn what to compare."
PICTURE.parent.mkdir(parents=True, exist_ok=True)
model.save(PICTURE.with_suffix(".keras"))
loaded = keras.models.load_model(PICTURE.with_suffix(".keras"))
again = loaded.predict(test_inputs, verbose=0).argmax(axis=-1)
assert np.all(again == predictions), "A saved model should predict the same."

# %%
# Picture
# -------
# The first new task, as it is measured and as the layer compares it.
# :py:obj:`keras_attention.plotting.attention_weights` returns the weights of the query.
weights = attention_weights(model, [x[:1] for x in test_inputs])["attention"][0, 0]
figure, panels = plt.subplots(1, 2, figsize=(11, 5), layout="constrained")
compared = samples @ ops.convert_to_numpy(attention.kernel)
titles = ("As measured: two of the twelve numbers", "As the layer compares: W times the sample")
for axes, points, title in zip(panels, (samples, compared), titles, strict=True):
    points = points[TRAIN_SIZE, :, :2]
    for kind in range(KINDS):
        shown = given[TRAIN_SIZE] & (kinds[TRAIN_SIZE, :MEMORIES] == kind)
        sizes = 30 + 500 * weights[shown]
        axes.scatter(*points[:MEMORIES][shown].T, sizes, label=f"sample of kind {kind}")
    label = f"query, of kind {truth[0, 0]}"
    axes.scatter(*points[MEMORIES], 150, "black", "*", label=label)
    axes.set(title=title, xlabel="first number", ylabel="second number")
panels[0].legend()
figure.suptitle("What the query attends to: the larger the circle, the larger the weight")
figure.savefig(PICTURE)
print(f"The picture is in {PICTURE}.")
