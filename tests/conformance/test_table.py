"""Nothing is missing from the table of layers, and every entry survives its own configuration."""

import json

import keras
import pytest

from tests.conformance.layers import CASES, arguments_of, every_case, public_layers


def test_every_public_layer_is_in_the_table_once_in_the_default_run_and_exported():
    cases = CASES.values()
    assert public_layers() == {case.layer for case in cases}
    assert public_layers() == {case.layer for case in cases if case.exported}
    first = [case.layer for case in cases if case.first and case.duties]
    assert sorted(first, key=str) == sorted(public_layers(), key=str)


@pytest.mark.parametrize("layer", sorted(public_layers(), key=lambda layer: layer.__name__))
def test_every_argument_is_in_the_table(layer):
    cases = [case for case in CASES.values() if case.layer is layer and case.duties]
    assert arguments_of(layer) == {name for case in cases for name in (*case.options, *case.parts)}


@every_case
def test_config(case):
    layer = case.make()
    config = layer.get_config()
    assert arguments_of(case.layer) <= set(config)
    assert {name: config[name] for name in case.options} == case.options
    twin = case.layer.from_config(config)
    assert type(twin) is case.layer
    text = json.dumps(keras.saving.serialize_keras_object(layer))
    again = keras.saving.deserialize_keras_object(json.loads(text))
    for copy in (twin, again):
        assert json.dumps(keras.saving.serialize_keras_object(copy)) == text
    for name in case.parts:
        assert type(getattr(again, name)) is type(getattr(layer, name))
