"""
Find one space for two languages
================================

"Sol" and "Sun" come from two languages. Each language has vectors of its own, so their words cannot
be compared. The score "general" of :py:obj:`keras_attention.LuongAttention` learns a matrix that
makes them comparable, from pairs of sentences without a dictionary. Look at the picture: before
training a word may lie anywhere. After training it lies beside its translation, even if it occurs
in no sentence.

Paper: Luong, Pham and Manning, 2015, https://arxiv.org/abs/1508.04025, the score "general".
Mikolov, Le and Sutskever, 2013, https://arxiv.org/abs/1309.4168, join two languages by a matrix.
"""

import pathlib

import keras
import matplotlib.pyplot as plt
import numpy as np
from keras import ops

from keras_attention import LuongAttention
from keras_attention.plotting import attention_weights

SEED = 0
SIZE, NEW = 4000, 6  # pairs of sentences; words that no sentence holds
MEANING, SPANISH_SIZE, ENGLISH_SIZE, NOISE = 6, 12, 16, 0.1
EPOCHS, BATCH_SIZE, LEARNING_RATE = 10, 50, 0.01
WORDS = """sol sun, lluvia rain, viento wind, nieve snow, nube cloud, pan bread, queso cheese,
manzana apple, sopa soup, leche milk, perro dog, gato cat, caballo horse, pez fish, vaca cow,
casa house, puerta door, mesa table, silla chair, cama bed, mano hand, ojo eye, boca mouth, pie foot
"""
PICTURE = pathlib.Path("output/two_spaces.png")

keras.utils.set_random_seed(SEED)
rng = np.random.default_rng(SEED)

# %%
# Data
# ----
# The vectors of both languages come from the same hidden meanings, turned in another direction and
# with noise. Both sentences of a pair name the same things, in any order.
pairs = [pair.split() for pair in WORDS.title().split(",")]
spanish, english = (np.array(words) for words in zip(*pairs, strict=True))
meanings = rng.normal(size=(len(pairs), MEANING))


def make_space(size):
    axes, _ = np.linalg.qr(rng.normal(size=(size, MEANING)))
    vectors = meanings @ axes.T + rng.normal(0, NOISE, (len(pairs), size))
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


spanish_space, english_space = make_space(SPANISH_SIZE), make_space(ENGLISH_SIZE)
new, known = np.split(rng.permutation(len(pairs)), [NEW])
things = [rng.choice(known, rng.integers(3, 8), replace=False) for _ in range(SIZE)]
spanish_ids, english_ids = (
    keras.utils.pad_sequences([rng.permutation(x) + 1 for x in things], padding="post")
    for _ in range(2)  # 0 is padding
)


# %%
# Model
# -----
# Every English word is a query and reads the Spanish sentence. The model sees only what the word
# read, and tells which English word it was: that works best if a word reads its translation. The
# vectors of the words stay as they are, so the attention has to learn the way between the spaces.
def embed(space):
    table = keras.initializers.Constant(np.pad(space, [[1, 0], [0, 0]]))
    return keras.layers.Embedding(len(space) + 1, space.shape[1], table, trainable=False)


query, value = (keras.Input((None,), dtype="int32") for _ in range(2))
attention = LuongAttention("general", name="attention")
context = attention(embed(english_space)(query), embed(spanish_space)(value), value_mask=value != 0)
probabilities = keras.layers.Dense(len(pairs) + 1, activation="softmax")(context)
model = keras.Model([query, value], probabilities)


def move_spanish():
    """Moves the Spanish words into the English space: W k in the score q W k."""
    return spanish_space @ ops.convert_to_numpy(attention.score_kernel).T


before = move_spanish()

# %%
# Training
# --------
# Padding has no weight in the loss.
model.compile(keras.optimizers.Adam(LEARNING_RATE), "sparse_categorical_crossentropy")
model.fit(
    [english_ids, spanish_ids],
    english_ids,
    sample_weight=(english_ids != 0).astype("float32"),
    batch_size=BATCH_SIZE,
    epochs=EPOCHS,
    verbose=2,
)

# %%
# Result
# ------
# The partner of an English word is the Spanish word with the largest score, among all words. New
# words find theirs too, because the same matrix moves them.
# :py:obj:`keras_attention.plotting.attention_weights` shows what the words of one sentence read.
after = move_spanish()
numbers = np.arange(len(pairs))
right_before, right = ((english_space @ x.T).argmax(axis=1) == numbers for x in (before, after))
weights = attention_weights(model, [english_ids[:1], spanish_ids[:1]])["attention"][0]
for n, row in zip(english_ids[0], weights, strict=True):
    if n:
        print(f"{english[n - 1]} reads {spanish[spanish_ids[0, row.argmax()] - 1]}")
print(f"{right.mean():.1%} of the words find their partners, {right_before.mean():.1%} before.")
print(f"{right[new].sum()} of the {NEW} words that no sentence holds find theirs.")
assert right.mean() >= 0.9 > 0.2 > right_before.mean(), "Training should join the two spaces."

# %%
# Picture
# -------
# Both languages in the English space, seen from the side where they spread most. A line joins a
# word and its translation; words that occur in no sentence are bold.
figure, panels = plt.subplots(1, 2, figsize=(13, 6.5), layout="constrained")
titles = "Before training", "After training"
for axes, moved, title in zip(panels, (before, after), titles, strict=True):
    points = np.concatenate([english_space, moved / np.linalg.norm(moved, axis=1, keepdims=True)])
    _, _, directions = np.linalg.svd(points - points.mean(axis=0))
    first, second = np.split(points @ directions[:2].T, 2)
    axes.plot(*np.stack([first, second], axis=1).T, color="0.8", zorder=0)
    for place, words, color, side in (
        (first, english, "tab:blue", "left"),
        (second, spanish, "tab:red", "right"),
    ):
        axes.scatter(*place.T, 12, color)
        for n, (word, point) in enumerate(zip(words, place, strict=True)):
            style = {"style": "italic", "weight": "bold"} if n in new else {}
            axes.annotate(f" {word} ", point, color=color, ha=side, va="center", **style)
    axes.set(title=title, xticks=[], yticks=[])
    axes.margins(0.12)
figure.suptitle("English words (blue) and Spanish words (red); bold: in no sentence")
PICTURE.parent.mkdir(parents=True, exist_ok=True)
figure.savefig(PICTURE)
print(f"The picture is in {PICTURE}.")
