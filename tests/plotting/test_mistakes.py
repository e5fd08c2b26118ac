"""Mistakes in calls of the plotting functions, and packages that are missing."""

import importlib
import sys
import traceback

import keras
import numpy as np
import pytest

from keras_attention import AttentionPooling
from keras_attention.plotting import (
    AttentionMapCallback,
    Hops,
    _figures,
    attention_weights,
    highlight,
    plot_attention,
    plot_hops,
)
from tests.helpers import refusals
from tests.plotting.figures import translator

SOURCE, TARGET, WEIGHTS = ["das", "Haus"], ["the", "house"], [[0.9, 0.1], [0.2, 0.8]]
ONE_STRING = "must be a list of tokens; received 'das Haus'. Split the string."
ARRAY = "`weights` must be an array of shape "
MODEL = "`model` must be a keras.Model, with attention layers inside; received "
BATCH = np.ones((2, 4, 3))


def one(weights=WEIGHTS, source=SOURCE, target=TARGET, **options):
    return lambda: plot_attention(weights, source, target, **options)


def hops(*given, **facts):
    return lambda: plot_hops(Hops(*given, **facts))


def callback(*given):
    return lambda: AttentionMapCallback("logs", [], *given)


test_mistakes = refusals(
    # One string in place of a list.
    (one(source="das Haus"), ONE_STRING),
    (one(source=b"das Haus"), "`source` must be a list of tokens; received b'das Haus'"),
    (lambda: highlight("das Haus", [0.9, 0.1]), ONE_STRING),
    (hops("das Haus", WEIGHTS), "`memories` must be a list of strings; received 'das Haus'"),
    (callback("das Haus"), "`sources` must be a list of lists; received 'das Haus'"),
    # One sample in place of a list of samples.
    (callback(SOURCE), "`sources[0]` must be a list of tokens; received 'das'"),
    (lambda: plot_hops([Hops(SOURCE, WEIGHTS)]), "received ", ". Write plot_hops(*samples)"),
    # Something else as weights.
    (lambda: plot_attention(SOURCE, WEIGHTS), ARRAY, "; received ['das', 'Haus']"),
    (one(None), ARRAY, "; received None"),
    (one(keras.Input((2,))), ARRAY, "; received <KerasTensor"),
    (one(largest=True), "`largest` must be a number above 0; received True"),
    (hops(SOURCE, WEIGHTS, facts=0),
     "`facts` must be a list of indices, or a mask, of the 2 memories, from 0; received 0"),
    # Something else as a model.
    (lambda: attention_weights(AttentionPooling(5), BATCH), MODEL + "<AttentionPooling"),
    (lambda: attention_weights(BATCH, translator()), MODEL + "float64 of shape (2, 4, 3)"),
)  # fmt: skip


def a_callback(folder):
    callback = AttentionMapCallback(folder, [np.array([[3]])] * 2, [["a"]], [["b"]])
    callback.set_model(translator())
    callback.on_train_begin()


@pytest.mark.parametrize(("missing", "use", "extra"), [
    ("matplotlib.figure", lambda folder: plot_attention(np.ones((1, 1)), ["a"], ["b"]), "plot"),
    ("tensorboard", a_callback, "plot"),
    ("keras_tuner", lambda folder: importlib.import_module("keras_attention.tuning"), "tuner"),
])  # fmt: skip
def test_the_error_is_one_traceback(missing, use, extra, monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, missing, None)
    monkeypatch.delitem(sys.modules, "keras_attention.tuning", raising=False)
    _figures._figure_class.cache_clear()
    with pytest.raises(ImportError) as caught:
        use(tmp_path)
    text = "".join(traceback.format_exception(caught.value))
    assert text.count("Traceback (most recent call last)") == 1
    assert text.endswith(f'pip install "keras-attention-layers[{extra}]"\n')
