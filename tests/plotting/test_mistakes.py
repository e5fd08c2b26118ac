"""Mistakes in calls of the plotting functions."""

import keras
import numpy as np
import pytest

from keras_attention import AttentionPooling
from keras_attention.plotting import (
    AttentionMapCallback,
    Hops,
    attention_weights,
    highlight,
    plot_attention,
    plot_hops,
)
from tests.plotting.figures import translator

SOURCE, TARGET, WEIGHTS = ["das", "Haus"], ["the", "house"], [[0.9, 0.1], [0.2, 0.8]]
ONE_STRING = r"must be a list of tokens; received the string 'das Haus'\. Write .*\.split\(\)\."
MISTAKES = {
    "source in one string": (lambda: plot_attention(WEIGHTS, "das Haus", TARGET), ONE_STRING),
    "target in one string": (lambda: plot_attention(WEIGHTS, SOURCE, "das Haus"), ONE_STRING),
    "bytes in one string": (
        lambda: plot_attention(WEIGHTS, b"das Haus", TARGET),
        r"source must be a list of tokens; received the string b'das Haus'",
    ),
    "tokens in one string": (lambda: highlight("das Haus", [0.9, 0.1]), ONE_STRING),
    "memories in one string": (
        lambda: plot_hops(Hops("das Haus", WEIGHTS)),
        r"memories must be a list of strings; received the string 'das Haus'",
    ),
    "sources in one string": (
        lambda: AttentionMapCallback("logs", [], "das Haus"),
        r"sources must be a list of lists of tokens; received 'das Haus'",
    ),
    "sources of one sample": (
        lambda: AttentionMapCallback("logs", [], SOURCE),
        r"sources\[0\] must be a list of tokens; received the string 'das'",
    ),
    "targets of one sample": (
        lambda: AttentionMapCallback("logs", [], [SOURCE] * 2, TARGET),
        r"targets\[0\] must be a list of tokens; received the string 'the'",
    ),
    "swapped weights and source": (
        lambda: plot_attention(SOURCE, WEIGHTS),
        r"weights must be numbers; received \['das', 'Haus'\]",
    ),
    "swapped weights and tokens": (
        lambda: highlight([0.9, 0.1], SOURCE),
        r"weights must be numbers; received \['das', 'Haus'\]",
    ),
    "no weights": (
        lambda: plot_attention(None, SOURCE, TARGET),
        "weights must be numbers; received None",
    ),
    "rows of several lengths": (
        lambda: plot_attention([[1.0], [0.5, 0.5]], SOURCE, TARGET),
        r"weights must be numbers; received \[\[1.0\], ",
    ),
    "symbolic weights": (
        lambda: plot_attention(keras.Input((2,)), SOURCE, TARGET),
        "weights must be numbers; received <KerasTensor",
    ),
    "outputs and weights": (
        lambda: plot_attention((np.ones((1, 2, 5)), np.array([WEIGHTS])), SOURCE, TARGET),
        r"weights must be numbers; received a tuple of 2 .* Pass the second of \(output, weights\)",
    ),
    "a flag as largest": (
        lambda: plot_attention(WEIGHTS, SOURCE, TARGET, largest=True),
        "largest must be a positive number or None; received True",
    ),
    "a list of hops": (
        lambda: plot_hops([Hops(SOURCE, WEIGHTS)]),
        r"received list\. Write plot_hops\(\*samples\)",
    ),
    "one fact": (
        lambda: plot_hops(Hops(SOURCE, WEIGHTS, facts=0)),
        "facts: a list of numbers of memories; received 0",
    ),
    "facts in words": (
        lambda: plot_hops(Hops(SOURCE, WEIGHTS, facts=["das"])),
        r"facts: \['das'\] are no numbers of the 2 memories",
    ),
    "weights of a layer": (
        lambda: attention_weights(AttentionPooling(5), np.ones((2, 4, 3))),
        r"attention_pooling.* Call the layer with return_attention_scores=True",
    ),
    "weights of no model": (
        lambda: attention_weights(np.ones((2, 4, 3)), translator()),
        r"model must be a keras.Model; received ndarray\. Call attention_weights\(model, inputs\)",
    ),
    "weights of a class": (
        lambda: attention_weights(keras.Model, np.ones((2, 4, 3))),
        "model must be a keras.Model; received the class Model",
    ),
}


@pytest.mark.parametrize(("call", "message"), MISTAKES.values(), ids=MISTAKES)
def test_mistakes(call, message):
    with pytest.raises(ValueError, match=message):
        call()
