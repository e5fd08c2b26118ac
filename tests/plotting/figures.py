"""Figures that nothing is cut off from, and a model to draw."""

import itertools

import keras
import numpy as np

from keras_attention import BahdanauAttention

ODD = ["$x_1$ costs 5$", "北京很好", "\u202eabc", "<b>" * 60, "שלום", "", "\x00\t\ud800", "مرحبا"]


def weights_of(*sizes):
    x = np.random.default_rng(1).random(sizes)
    return x / x.sum(-1, keepdims=True)


def drawn_boxes(figure):
    figure.canvas.draw()
    renderer = figure.canvas.get_renderer()
    texts = [*figure.texts]
    for axes in figure.axes:
        labels = [axes.title, axes.xaxis.label, axes.yaxis.label]
        labels += [*axes.get_xticklabels(), *axes.get_yticklabels()]
        texts += [*axes.texts, *(labels if axes.axison else [])]
    return [(x.get_text(), x.get_window_extent(renderer)) for x in texts if x.get_text()]


def assert_nothing_is_cut_off(figure):
    boxes = drawn_boxes(figure)
    wide, high = figure.canvas.get_width_height()
    for text, box in boxes:
        assert 0 <= box.x0 <= box.x1 <= wide, text
        assert 0 <= box.y0 <= box.y1 <= high, text


def assert_labels_are_apart(labels, axis):
    boxes = [x.get_window_extent() for x in labels if x.get_text()]
    sides = sorted(((b.x0, b.x1) if axis == "x" else (b.y0, b.y1)) for b in boxes)
    for (_, end), (begin, _) in itertools.pairwise(sides):
        assert end <= begin + 1


def translator():
    source, target = keras.Input((None,), dtype="int32"), keras.Input((None,), dtype="int32")
    memory = keras.layers.Embedding(11, 5, mask_zero=True, name="memory")(source)
    query = keras.layers.Embedding(11, 5, name="query")(target)
    context = BahdanauAttention(7, name="attention")(query, memory)
    return keras.Model([source, target], keras.layers.Dense(11)(context))
