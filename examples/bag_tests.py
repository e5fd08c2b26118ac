"""
Test a pooling of bags
======================

A bag is positive if it holds certain instances. A model that learns something else may look right,
until other bags come. Three tests of Raff and Holt find out: in training the label can be told from
an instance that must not matter, and in the test it is the other way round. Softmax attention, the
mean and the maximum fail. A model whose output can only grow with every instance passes all three.
Look at the table: an AUC below 0.5 means that the model learned the wrong thing.

Paper: Raff and Holt, 2023, https://arxiv.org/abs/2310.17867
"""

import argparse

import keras
import numpy as np
from keras import layers, ops
from sklearn.metrics import roc_auc_score

from keras_attention import AttentionPooling

SEEDS = 3
BAGS, FEATURES, LONGEST = 600, 16, 64
UNITS, CONCEPTS = 64, 64
EPOCHS, BATCH_SIZE, LEARNING_RATE = 40, 50, 0.003

# `--help` explains this script, and trains nothing.
argparse.ArgumentParser(usage=__doc__).parse_known_args()


# %%
# Data
# ----
# Each kind of instance has a normal distribution, alike in every feature. *Poison* lies in all
# negative bags of the training, and in all positive bags of the test.
def draw(mean, deviation, count=1):
    return rng.normal(mean, deviation, (count, FEATURES))


def single_concept(positive, test):
    concept = [draw(*((0, 3), (1, 1))[rng.integers(2)]) for _ in range(rng.integers(1, 4))]
    return [*concept] if positive else [], positive == test


def multiple_concepts(positive, test):
    pairs = rng.integers(1, 4)
    if positive:
        return [draw(2, 0.1, pairs), draw(3, 0.1, pairs)], test
    return [draw(rng.integers(2, 4), 0.1)], not test


def false_frequency(positive, test):
    if positive:
        return [draw(2, 0.1), draw(3, 0.1)], False
    return [draw(2, 0.1, rng.integers(35, 45) if test else 1)], False


def make(kind, test):
    """Bags, their masks and labels."""
    bags, mask = np.zeros((BAGS, LONGEST, FEATURES), "float32"), np.zeros((BAGS, LONGEST), bool)
    labels = np.arange(BAGS) % 2
    for bag, valid, label in zip(bags, mask, labels, strict=True):
        concepts, poisoned = kind(bool(label), test)
        poison = [draw(-10, 0.1)] if poisoned else []
        instances = np.concatenate([draw(0, 1, rng.integers(1, 10)), *concepts, *poison])
        bag[: len(instances)], valid[: len(instances)] = rng.permutation(instances), True
    return [bags, mask], labels


# %%
# Models
# ------
# All read instances through two hidden layers. The last model looks for `CONCEPTS` concepts. It
# takes the largest probability of each over the instances, and adds them with weights that are not
# negative. So no instance can make a bag less positive, and counts do not matter.
def largest(x, mask):
    return ops.max(ops.where(mask[:, :, None], x, -1e9), axis=1)


def mean(x, mask):
    valid = ops.cast(mask[:, :, None], x.dtype)
    return ops.sum(x * valid, axis=1) / ops.sum(valid, axis=1)


def attention(x, mask):
    return AttentionPooling(UNITS, gated=True)(x, mask=mask)


def attention_without_softmax(x, mask):
    return AttentionPooling(UNITS, gated=True, normalizer="normalized_sigmoid")(x, mask=mask)


def largest_of_concepts(x, mask):
    few = keras.initializers.Constant(-2.0)  # concepts are rare
    return largest(layers.Dense(CONCEPTS, "sigmoid", bias_initializer=few)(x), mask)


def build(pool):
    bag, mask = keras.Input((LONGEST, FEATURES)), keras.Input((LONGEST,), dtype="bool")
    hidden = layers.Dense(UNITS, "relu")(layers.Dense(UNITS, "relu")(bag))
    options = {}
    if pool is largest_of_concepts:
        bias = keras.initializers.Constant(-CONCEPTS / 4)
        options = {"kernel_constraint": "non_neg", "kernel_initializer": "ones"}
        options["bias_initializer"] = bias
    logit = layers.Dense(1, **options)(pool(hidden, mask))
    return keras.Model([bag, mask], logit)


# %%
# Result
# ------
# The area under the ROC curve, on bags distributed as in training and on the test bags.
def auc(model, inputs, labels):
    return roc_auc_score(labels, model.predict(inputs, verbose=0)[:, 0])


poolings = attention, attention_without_softmax, mean, largest, largest_of_concepts
print(f"{'pooling':<28}{'test':<20}{'like training':<16}{'test':<16}passes")
for kind in (single_concept, multiple_concepts, false_frequency):
    for pool in poolings:
        rows = []
        for seed in range(SEEDS):
            rng = np.random.default_rng(seed)
            keras.utils.set_random_seed(seed)
            model = build(pool)
            loss = keras.losses.BinaryCrossentropy(from_logits=True)
            model.compile(keras.optimizers.Adam(LEARNING_RATE), loss)
            model.fit(*make(kind, False), BATCH_SIZE, EPOCHS, verbose=0)
            rows.append([auc(model, *make(kind, test)) for test in (False, True)])
        low, high = np.min(rows, axis=0), np.max(rows, axis=0)
        texts = [f"{a:.2f} to {b:.2f}" for a, b in zip(low, high, strict=True)]
        names = [x.__name__.replace("_", " ") for x in (pool, kind)]
        passes = "yes" if low[1] > 0.95 else "no"
        print(f"{names[0]:<28}{names[1]:<20}{texts[0]:<16}{texts[1]:<16}{passes}", flush=True)
