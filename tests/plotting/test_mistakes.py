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
ONE_STRING = r"must be a list of tokens; received 'das Haus'\. Split the string\."
MISTAKES = {
    "source in one string": (lambda: plot_attention(WEIGHTS, "das Haus", TARGET), ONE_STRING),
    "target in one string": (lambda: plot_attention(WEIGHTS, SOURCE, "das Haus"), ONE_STRING),
    "bytes in one string": (
        lambda: plot_attention(WEIGHTS, b"das Haus", TARGET),
        "`source` must be a list of tokens; received b'das Haus'",
    ),
    "tokens in one string": (lambda: highlight("das Haus", [0.9, 0.1]), ONE_STRING),
    "memories in one string": (
        lambda: plot_hops(Hops("das Haus", WEIGHTS)),
        "`memories` must be a list of strings; received 'das Haus'",
    ),
    "sources in one string": (
        lambda: AttentionMapCallback("logs", [], "das Haus"),
        "`sources` must be a list of lists; received 'das Haus'",
    ),
    "sources of one sample": (
        lambda: AttentionMapCallback("logs", [], SOURCE),
        r"`sources\[0\]` must be a list of tokens; received 'das'",
    ),
    "targets of one sample": (
        lambda: AttentionMapCallback("logs", [], [SOURCE] * 2, TARGET),
        r"`targets\[0\]` must be a list of tokens; received 'the'",
    ),
    "swapped weights and source": (
        lambda: plot_attention(SOURCE, WEIGHTS),
        r"`weights` must be an array of shape .*; received \['das', 'Haus'\]",
    ),
    "swapped weights and tokens": (
        lambda: highlight([0.9, 0.1], SOURCE),
        r"`weights` must be an array of shape .*; received \['das', 'Haus'\]",
    ),
    "no weights": (
        lambda: plot_attention(None, SOURCE, TARGET),
        "`weights` must be an array of shape .*; received None",
    ),
    "rows of several lengths": (
        lambda: plot_attention([[1.0], [0.5, 0.5]], SOURCE, TARGET),
        r"`weights` must be an array of shape .*; received \[\[1.0\], ",
    ),
    "symbolic weights": (
        lambda: plot_attention(keras.Input((2,)), SOURCE, TARGET),
        "`weights` must be an array of shape .*; received <KerasTensor",
    ),
    "outputs and weights": (
        lambda: plot_attention((np.ones((1, 2, 5)), np.array([WEIGHTS])), SOURCE, TARGET),
        "(?s)`weights` must be an array",
    ),
    "a flag as largest": (
        lambda: plot_attention(WEIGHTS, SOURCE, TARGET, largest=True),
        "`largest` must be a number above 0; received True",
    ),
    "a list of hops": (
        lambda: plot_hops([Hops(SOURCE, WEIGHTS)]),
        r"received .*\. Write plot_hops\(\*samples\)",
    ),
    "one fact": (
        lambda: plot_hops(Hops(SOURCE, WEIGHTS, facts=0)),
        "`facts` must be a list of indices, or a mask, of the 2 memories, from 0; received 0",
    ),
    "facts in words": (
        lambda: plot_hops(Hops(SOURCE, WEIGHTS, facts=["das"])),
        r"`facts` must .* the 2 memories, from 0; received \['das'\]",
    ),
    "weights of a layer": (
        lambda: attention_weights(AttentionPooling(5), np.ones((2, 4, 3))),
        "`model` must be a keras.Model, with attention layers inside; received <AttentionPooling",
    ),
    "weights of no model": (
        lambda: attention_weights(np.ones((2, 4, 3)), translator()),
        r"`model` must be a keras.Model, .* inside; received float64 of shape \(2, 4, 3\)",
    ),
    "weights of a class": (
        lambda: attention_weights(keras.Model, np.ones((2, 4, 3))),
        "`model` must be a keras.Model, with attention layers inside; received the class Model",
    ),
}


@pytest.mark.parametrize(("call", "message"), MISTAKES.values(), ids=MISTAKES)
def test_mistakes(call, message):
    with pytest.raises(ValueError, match=message):
        call()
