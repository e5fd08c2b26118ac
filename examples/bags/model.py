"""Small networks that read a bag: features of instances, a pooling, the class of the bag."""

import keras
from keras import layers, ops

from keras_attention import AttentionPooling

POOLINGS = ("gated", "attention", "mean", "max")
UNITS = 64  # of the attention
DROPOUT = 0.5  # share of the features, after each hidden layer
LEAST = 8  # in a smaller bag each instance may decide


def pool(x, mask, kind):
    """The mean or the largest of the valid instances, `(B, T, D)` to `(B, D)`; zeros of none."""
    valid = ops.expand_dims(mask, 2)
    if kind == "mean":
        count = ops.sum(ops.cast(valid, x.dtype), axis=1)
        return ops.sum(ops.where(valid, x, 0.0), axis=1) / ops.maximum(count, 1)
    largest = ops.max(ops.where(valid, x, -1e30), axis=1)  # below every feature
    return ops.where(ops.any(valid, axis=1), largest, 0.0)


@keras.saving.register_keras_serializable(package="keras_attention_examples")
class DropInstances(layers.Layer):
    """Hides a share of each bag in training, unless fewer than `LEAST` instances are left.

    One clear instance tells the class. A model that loses it now and then must find the others too.
    """

    def __init__(self, rate, **kwargs):
        super().__init__(**kwargs)
        self.rate, self.seed_generator = rate, keras.random.SeedGenerator()

    def call(self, mask, training=False):
        if not training:
            return mask
        drawn = keras.random.uniform(ops.shape(mask), seed=self.seed_generator)
        kept = ops.logical_and(mask, drawn >= self.rate)
        left = ops.sum(ops.cast(kept, "int32"), axis=1, keepdims=True)
        return ops.where(left >= LEAST, kept, mask)

    def get_config(self):
        return {**super().get_config(), "rate": self.rate}


def build_model(features, classes, pooling, hidden, drop_instances, members):
    """Builds the model that is trained, and a reader on the same layers that shows the weights.

    Both take `instances` `(B, T, D)` and `mask` `(B, T)`. The model returns the logits of all
    members, networks that vote, `(B, members, classes)`. The reader returns their means:
    `probabilities` `(B, classes)` and, of attention, `weights` `(B, T)`.
    """
    instances = keras.Input((None, features), name="instances")
    mask = keras.Input((None,), dtype="bool", name="mask")
    logits, weights = [], []
    for n in range(members):
        x, kept = instances, DropInstances(drop_instances)(mask) if drop_instances else mask
        for width in hidden:
            x = layers.Dropout(DROPOUT)(layers.Dense(width, "relu")(x))
        if pooling in ("gated", "attention"):
            attention = AttentionPooling(UNITS, gated=pooling == "gated", name=f"attention_{n}")
            bag, weight = attention(x, mask=kept, return_attention_scores=True)
            weights.append(weight)
        else:
            bag = pool(x, kept, pooling)
        logits.append(layers.Dense(classes)(bag))
    logits = ops.stack(logits, axis=1)
    outputs = {"probabilities": ops.mean(ops.softmax(logits), axis=1)}
    if weights:
        outputs["weights"] = ops.mean(ops.stack(weights, axis=1), axis=1)
    inputs = {"instances": instances, "mask": mask}
    return keras.Model(inputs, logits), keras.Model(inputs, outputs)


def restart(model, twin):
    """Gives a compiled model the weights of a new twin, so that `fit` traces it only once."""
    model.set_weights(twin.get_weights())
    for variable in model.optimizer.variables:
        if variable.name != "learning_rate":  # a number, unless it follows a schedule
            variable.assign(ops.zeros_like(variable))


def with_scaling(reader, mean, deviation):
    """A reader of instances that are not standardised."""
    instances = keras.Input((None, len(mean)), name="instances")
    mask = keras.Input((None,), dtype="bool", name="mask")
    scale = layers.Normalization(mean=mean, variance=deviation**2)
    inputs = {"instances": instances, "mask": mask}
    return keras.Model(inputs, reader({"instances": scale(instances), "mask": mask}))
