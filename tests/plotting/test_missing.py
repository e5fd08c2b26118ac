"""Without a package that is not always installed, an error says what to install, and no more."""

import importlib
import sys
import traceback

import numpy as np
import pytest

from keras_attention.plotting import AttentionMapCallback, _figures, plot_attention
from tests.plotting.figures import translator


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
