"""
Explain the risk of a patient
=============================

Most patients have a diagnosis, and some visits are treatments. The risk is high if no treatment
follows the diagnosis, so the order of the visits decides, and counting codes says little.
:py:obj:`keras_attention.RETAIN` finds the risk and says what each code of each visit adds to it.
Look at the picture: one code of one visit explains the risk of the patient.

Paper: Choi et al., 2016, https://arxiv.org/abs/1608.05745
"""

import argparse
import pathlib

import keras
import matplotlib.pyplot as plt
import numpy as np

from keras_attention import RETAIN

SEED = 0
TRAIN_SIZE, TEST_SIZE = 3000, 1000
CODES, MOST_VISITS, UNITS = 20, 10, 32
DIAGNOSIS, TREATMENT = 3, 11
EPOCHS, BATCH_SIZE, LEARNING_RATE = 6, 100, 0.01
PICTURE = pathlib.Path("output/explain_patients.png")

# `--help` explains this script, and trains nothing.
argparse.ArgumentParser(usage=__doc__).parse_known_args()

keras.utils.set_random_seed(SEED)
rng = np.random.default_rng(SEED)

# %%
# Data
# ----
# A visit has a one for each of its codes. A history has four to ten visits with random codes. Three
# of four patients have the diagnosis in one visit, and a quarter of the visits have the treatment.
# The mask says which visits are no padding.
count = TRAIN_SIZE + TEST_SIZE
visits = (rng.random((count, MOST_VISITS, CODES)) < 0.15).astype("float32")
visits[:, :, DIAGNOSIS] = 0
visits[:, :, TREATMENT] = rng.random((count, MOST_VISITS)) < 0.25
lengths = rng.integers(4, MOST_VISITS + 1, count)
steps = np.arange(MOST_VISITS)
mask = steps < lengths[:, None]
visits[~mask] = 0
diagnosed = rng.integers(0, lengths)
ill = rng.random(count) < 0.75
visits[ill, diagnosed[ill], DIAGNOSIS] = 1
treated = np.any(visits[:, :, TREATMENT] * (steps > diagnosed[:, None]), axis=1)
labels = (ill & ~treated).astype("float32")
train, test = slice(TRAIN_SIZE), slice(TRAIN_SIZE, None)

# %%
# Model
# -----
# The layer is the whole model. It returns a logit, the logarithm of the odds of a high risk.
inputs, valid = keras.Input((None, CODES)), keras.Input((None,), dtype="bool")
retain = RETAIN(UNITS)
model = keras.Model([inputs, valid], retain(inputs, mask=valid))

# %%
# Training
# --------
# Only the risk is given. Nobody tells the model which visit or which code decides.
loss = keras.losses.BinaryCrossentropy(from_logits=True)
model.compile(keras.optimizers.Adam(LEARNING_RATE), loss)
options = {"batch_size": BATCH_SIZE, "epochs": EPOCHS, "verbose": 2}
model.fit([visits[train], mask[train]], labels[train], **options)

# %%
# Result
# ------
# The contributions of all codes add up to the logit less the bias. Among the patients with a high
# risk, the largest one should be the diagnosis, in its visit.
# Counting is a logistic regression on how often each code occurs.
test_visits, test_mask, truth = visits[test], mask[test], labels[test]
logits = model.predict([test_visits, test_mask], verbose=0)[:, 0]
shares = keras.ops.convert_to_numpy(retain.contributions(test_visits, test_mask))[..., 0]
bias = float(retain.class_bias[0])
difference = np.abs(shares.sum(axis=(1, 2), dtype="float64") + bias - logits).max()
accuracy = np.mean((logits > 0) == truth)

counting = keras.Sequential([keras.layers.Dense(1)])
counting.compile(keras.optimizers.Adam(LEARNING_RATE), loss)
counting.fit(visits[train].sum(axis=1), labels[train], epochs=EPOCHS, verbose=0)
by_counting = np.mean((counting.predict(test_visits.sum(axis=1), verbose=0)[:, 0] > 0) == truth)

high = np.flatnonzero((truth == 1) & (logits > 0))
first = shares[high].reshape(len(high), -1).argmax(axis=1)
found = np.mean(first == diagnosed[test][high] * CODES + DIAGNOSIS)
print(f"{accuracy:.1%} of the risks are right, {by_counting:.1%} by counting codes.")
print(f"In {found:.1%} of {len(high)} high risks the diagnosis in its visit contributes most.")
largest = np.abs(logits).max()
print(f"The contributions add up to the logits, of size {largest:.0f}, to {difference:.0e}.")
assert accuracy > 0.95 > 0.85 > by_counting, "The model should know the order of the visits."
assert found > 0.95, "The contributions should show what decides."

# %%
# Picture
# -------
# What every code of every visit adds to the risk of one patient. A code that does not occur adds
# nothing.
n = high[lengths[test][high].argmax()]
largest = np.abs(shares[n]).max()
figure, axes = plt.subplots(figsize=(8, 6), layout="constrained")
image = axes.imshow(shares[n].T, cmap="RdBu_r", vmin=-largest, vmax=largest, aspect="auto")
names = {DIAGNOSIS: "diagnosis", TREATMENT: "treatment"}
axes.set_yticks(range(CODES), [names.get(k, f"code {k}") for k in range(CODES)])
axes.set_xticks(range(MOST_VISITS), range(1, MOST_VISITS + 1))
axes.set(xlabel="visit", title=f"A risk of {1 / (1 + np.exp(-logits[n])):.0%}, and its reasons")
figure.colorbar(image, label="added to the logit")
PICTURE.parent.mkdir(parents=True, exist_ok=True)
figure.savefig(PICTURE)
print(f"The picture is in {PICTURE}.")
