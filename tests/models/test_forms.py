"""The form of the inputs in a `.keras` file, from which a loaded model is built."""

import json
import zipfile

import keras
import numpy as np
import pytest

from tests.helpers import assert_refused
from tests.models.cases import make_model

GOOD = {"shape": [None, None], "dtype": "int64"}


def change(path, form):
    """Writes another form into a file."""
    with zipfile.ZipFile(path) as file:
        entries = {name: file.read(name) for name in file.namelist()}
    config = json.loads(entries["config.json"])
    assert config["build_config"] == {"form": [GOOD, GOOD]}
    config["build_config"]["form"] = form
    entries["config.json"] = json.dumps(config).encode()
    with zipfile.ZipFile(path, "w") as file:
        for name, data in entries.items():
            file.writestr(name, data)


@pytest.mark.parametrize(
    "form",
    [
        [{**GOOD, "shape": [2**20, 2**20]}, GOOD],
        [{**GOOD, "shape": [None, 2**20]}, GOOD],
        [{**GOOD, "shape": [None, None, -1]}, GOOD],
        [{**GOOD, "shape": [None, None, "8"]}, GOOD],
        [{**GOOD, "shape": "8"}, GOOD],
        [{"dtype": "int32"}, GOOD],
        ["ids", GOOD],
        "ids",
        [3, GOOD],
    ],
)
def test_a_damaged_form_is_refused(form, tmp_path):
    model = make_model()
    model((np.full((1, 2), 3), np.full((1, 2), 3)))
    model.save(tmp_path / "model.keras")
    change(tmp_path / "model.keras", form)
    assert_refused(
        lambda: keras.saving.load_model(tmp_path / "model.keras"),
        "The form of the inputs in a saved model must be nested lists or dictionaries",
        "Save the model again",
    )
