"""What an argument must be: declarations, errors, and what a correct call costs."""

import inspect
import re

import keras
import numpy as np
import pytest

from keras_attention import attention, decoder, layers, seq2seq
from keras_attention._spec import AXES, Spec
from tests.helpers import assert_refused

SPEC = Spec(
    *("query: float[B Tq Dq] | float[B Dq]", "value: float[B Tk Dv]", "ids: int[B Tk]?"),
    *("mask: bool[B Tk]?", "attention_mask: bool[Tq Tk] | bool[B Tq Tk]?"),
)
QUERY, VALUE, IDS = np.ones((2, 3, 5)), np.ones((2, 7, 11)), np.ones((2, 7), int)
GOOD = {"query": QUERY, "value": VALUE, "ids": IDS, "mask": np.ones((2, 7), bool)}


def checked(built=(), **changes):
    return SPEC.check("layer", {**GOOD, **changes}, dict(built))


def test_sizes_are_returned_by_axis():
    assert checked() == {"B": 2, "Tq": 3, "Dq": 5, "Tk": 7, "Dv": 11}
    assert checked(query=QUERY[:, 0], ids=None, mask=None) == {"B": 2, "Dq": 5, "Tk": 7, "Dv": 11}
    assert SPEC.check("layer", {"value": VALUE}) == {"B": 2, "Tk": 7, "Dv": 11}
    step = SPEC.replace("mask: bool[B]?")
    step.check("layer", {**GOOD, "mask": np.ones(2, bool)})
    assert_refused(lambda: step.check("layer", GOOD), "`mask` must be boolean, of shape (2,)")
    for dtype in ("float16", "bfloat16", "float32", "float64"):
        assert checked(query=keras.KerasTensor((2, 3, 5), dtype))["Dq"] == 5
    assert checked(ids=np.ones((2, 7), "uint8"))["Tk"] == 7


def test_sizes_that_are_not_known_and_those_that_a_layer_was_built_for():
    unknown = keras.KerasTensor((None, None, 5))
    for mask in (np.ones((3, 7), bool), np.ones((2, 4, 7), bool)):
        checked(query=unknown, attention_mask=mask)
    value, mask = keras.KerasTensor((None, 7, 11)), keras.KerasTensor((None, 3), "bool")
    message = "`mask` must be boolean, of shape (batch, 7), because"
    assert_refused(lambda: SPEC.check("layer", {"value": value, "mask": mask}), message)
    checked({"Dq": 5, "Dv": 11})
    assert_refused(
        lambda: checked({"Dv": 13}),
        "layer: `value` must be floating-point, of shape (2, 7, 13), because the layer was built "
        "for `value` of 13 features; received float64 of shape (2, 7, 11). Call layer(query,",
    )


STEPS, EITHER = "(2, memory steps, features)", "(batch, steps, features) or (batch, features)"
LISTED = "received [float64 of shape (2, 3, 5), float64 of shape (2, 7, 11)]. "


@pytest.mark.parametrize(("name", "given", "message"), [
    ("value", None, f"`value` must be floating-point, of shape {STEPS}; received None. "
     "Call layer(query, value)."),
    ("query", [QUERY, VALUE], f"`query` must be floating-point, of shape {EITHER}; {LISTED}Call"),
    ("value", [QUERY, VALUE], LISTED + "Several memories need a MultiSource. Call"),
    ("ids", QUERY[..., 0],
     "`ids` must be integer ids, of shape (2, 7), because `value` has 7 memory steps; received "
     'float64 of shape (2, 3). Cast them: keras.ops.cast(ids, "int32"). Call'),
    ("query", IDS,
     "received int64 of shape (2, 7). Embed ids first: keras.layers.Embedding(vocabulary_size, "
     'features)(ids). Cast other values: keras.ops.cast(query, "float32"). Call'),
    ("value", np.ones((3, 7, 11)), f"`value` must be floating-point, of shape {STEPS}, because "
     "`query` has batch size 2; received float64 of shape (3, 7, 11). Call"),
    ("query", keras.KerasTensor((2, 3, None)),
     "`query` must be floating-point, of shape (2, 3, features) or (2, features); received "
     "float32 of shape (2, 3, None). Give the features to keras.Input. Call"),
    ("query", GOOD["mask"],
     "received bool of shape (2, 7). Pass a mask by its name: `mask` or `attention_mask`. Call"),
    ("mask", IDS, "`mask` must be boolean, of shape (2, 7); received int64 of shape (2, 7). It is "
     "True where a step is valid: compute it, such as ids != 0, or cast it: "
     'keras.ops.cast(mask, "bool").'),
    ("attention_mask", np.ones((7, 3), bool),
     "`attention_mask` must be boolean, of shape (3, 7) or (2, 3, 7), because `query` has 3 "
     "steps; received bool of shape (7, 3). To mask only the memory, pass `value_mask`. Call"),
])  # fmt: skip
def test_an_error_says_what_was_given_what_was_expected_and_how_to_fix_it(name, given, message):
    words = f"layer: `{name}` must be ", "; received "
    assert_refused(lambda: checked(**{name: given}), message, *words)


def test_shapes_are_checked_as_tensors_are():
    sizes = SPEC.check_shapes("layer", {"query": (None, 5), "value": (None, None, 11)})
    assert sizes == {"Dq": 5, "Dv": 11}
    received = "; received float32 of shape "
    for query, value, message in (
        ((2, 3, 5), None, f"`value` must be floating-point, of shape {STEPS}; received None"),
        ([(2, 3, 5), (2, 7, 5)], VALUE.shape,
         "received [float32 of shape (2, 3, 5), float32 of shape (2, 7, 5)]"),
        ((2, 3, 5), (2, 11), f"of shape {STEPS}{received}(2, 11)"),
        ((2, 3, None), VALUE.shape, f"{received}(2, 3, None)"),
    ):  # fmt: skip
        shapes = {"query": query, "value": value}
        assert_refused(lambda shapes=shapes: SPEC.check_shapes("layer", shapes), message)


DECLARED = [
    x
    for module in (attention, decoder, layers, seq2seq)
    for _, x in sorted(vars(module).items())
    if isinstance(x, type) and "CALL" in vars(x)
]


def documented(layer, name):
    text = inspect.getdoc(layer) + "\n\n"
    (section,) = re.search(r"Call arguments:\n(.*?)\n\n", text, re.S).groups()
    end = r"(?=\.\s+\w+: |\n    ?\w+: |\n\w+[\w, ]*: |\Z)"
    text = re.search(rf"\b{name}: (.*?){end}", section, re.S)
    shapes = re.findall(r"`\(([^`()]*)\)`", text.group(1)) if text else []
    return text and text.group(1), {tuple(x.replace(",", " ").split()) for x in shapes}


@pytest.mark.parametrize("layer", DECLARED)
def test_declarations_are_those_of_the_docstring(layer):
    one_step = {x.name: x for x in getattr(layer, "STEP", layer.CALL).arguments}
    for name, kind, declared_shapes, optional in layer.CALL.arguments:
        text, shapes = documented(layer, name)
        if text is None:
            assert "see `ScoringMixin`" in inspect.getdoc(layer)
            continue
        declared = {*declared_shapes.values()}
        assert declared <= shapes <= declared | {*one_step[name].shapes.values()}, name
        assert ("boolean" in text) == (kind == "bool"), name
        assert optional == (kind == "bool" or "default" in text), name
        axes = {axis for axes in declared_shapes.values() for axis in axes}
        assert {axis for axis in axes if axis[0] != "D"} <= {*AXES}
