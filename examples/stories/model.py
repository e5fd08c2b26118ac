"""The memory network of Sukhbaatar et al. (2015)."""

from typing import NamedTuple

import keras
import numpy as np
from keras import ops

from examples.stories.encoding import Encoded
from keras_attention import MemoryNetwork

ENCODINGS = ("position", "own-length", "bag")


class Task(NamedTuple):
    """The data that one model is trained on and tested on.

    name: "1" to "20", or "joint". words: the number of word ids. length: the number of words in the
    longest sentence. memory: the number of sentences that are remembered. train, valid: `Encoded`.
    test: one `Encoded` for each task, by its name.
    """

    name: str
    words: int
    length: int
    memory: int
    train: Encoded
    valid: Encoded
    test: dict


def build_model(task, hops, settings):
    """Builds the model that is trained, and a reader on the same layers that shows the weights.

    Args:
        task: a `Task`.
        hops: the number of hops.
        settings: as in `Trainer`.

    Returns:
        `(model, reader)`. Both take word ids of a story `(B, N, W)` and a question `(B, W')`. The
        model returns logits `(B, words)`, the reader a dictionary of `probabilities` and
        `hop_weights` `(B, K, N)`.
    """
    story = keras.Input((None, None), dtype="int32", name="story")
    question = keras.Input((None,), dtype="int32", name="question")
    network = MemoryNetwork(
        task.words,
        settings["units"],
        hops,
        tying=settings["tying"],
        position_encoding={"position": task.length, "own-length": True, "bag": False}[
            settings["encoding"]
        ],
        memory_size=task.memory,
        null_memories=settings["null_memories"],
        name="network",
    )
    network.linear = settings["linear_start"]
    # One call for both models: Keras 3.15 accepts no second call with other outputs.
    logits, weights = network(story, question, return_attention_scores=True)
    probabilities = keras.layers.Softmax(name="probabilities")(logits)
    outputs = {"probabilities": probabilities, "hop_weights": weights}
    return keras.Model([story, question], logits), keras.Model([story, question], outputs)


def compile_model(model, learning_rate, **options):
    """Compiles with the loss and the optimizer of the paper: summed, gradient norm at most 40."""
    model.compile(
        keras.optimizers.SGD(learning_rate, global_clipnorm=40.0),
        keras.losses.SparseCategoricalCrossentropy(from_logits=True, reduction="sum"),
        **options,
    )


def predict(model, data, memory, size=500):
    """Logits `(Q, words)` of an `Encoded`. Not compiled, because the sizes differ."""
    found = []
    for start in range(0, len(data.answers), size):
        inputs = data.select(slice(start, start + size)).inputs(memory)
        found.append(ops.convert_to_numpy(model(inputs, training=False)))
    return np.concatenate(found)


def answers(logits):
    """The most probable known words. The first id is padding, the last the unknown word."""
    return 1 + logits[:, 1:-1].argmax(axis=1)
