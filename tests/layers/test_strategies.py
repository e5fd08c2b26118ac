"""The warning of strategies that Keras 3 does not support."""

import warnings

import pytest

from keras_attention import AttentionPooling
from tests.backends import on_tensorflow


@on_tensorflow
@pytest.mark.parametrize("name", ["MultiWorkerMirroredStrategy", "ParameterServerStrategy"])
def test_an_unsupported_strategy_warns_and_names_what_works(name, monkeypatch):
    import tensorflow as tf

    # The strategy itself would wait for other machines.
    strategy = object.__new__(getattr(tf.distribute, name))
    monkeypatch.setattr(tf.distribute, "has_strategy", lambda: True)
    monkeypatch.setattr(tf.distribute, "get_strategy", lambda: strategy)
    with pytest.warns(UserWarning, match=rf"{name}.*keras\.distribution\.initialize"):
        AttentionPooling(3)


@on_tensorflow
def test_a_supported_strategy_does_not_warn():
    import tensorflow as tf

    with warnings.catch_warnings(), tf.distribute.MirroredStrategy(["CPU:0"]).scope():
        warnings.simplefilter("error")
        AttentionPooling(3)
