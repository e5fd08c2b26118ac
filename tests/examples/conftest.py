import os

import keras
import pytest

from tests import ROOT


@pytest.fixture(scope="session", autouse=True)
def _examples_can_be_imported():
    """Processes that the tests start find `examples`, wherever they run."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(ROOT), prepend=os.pathsep)
        yield


@pytest.fixture
def _masks_end_at_recurrent_layers(monkeypatch):
    """Makes Keras 3.15 drop the masks that 3.16 drops."""
    for layer in (keras.layers.RNN, keras.layers.Bidirectional):
        monkeypatch.setattr(layer, "compute_mask", lambda *_: None)
