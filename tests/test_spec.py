"""What an argument must be: declarations, errors, and what a correct call costs."""

import inspect
import re
import sys

import keras
import numpy as np
import pytest

from keras_attention import BahdanauAttention, attention, decoder, layers, seq2seq
from keras_attention._spec import AXES, REMEDIES, Spec
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


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
def test_every_precision_is_accepted(dtype):
    tensor = keras.KerasTensor((2, 3, 5), dtype)
    assert checked(query=tensor)["Dq"] == 5
    assert checked(ids=np.ones((2, 7), "uint8"))["Tk"] == 7


def test_sizes_that_are_not_known_agree_with_all():
    unknown = keras.KerasTensor((None, None, 5))
    for mask in (np.ones((3, 7), bool), np.ones((2, 4, 7), bool)):
        checked(query=unknown, attention_mask=mask)
    assert_refused(lambda: checked(query=keras.KerasTensor((2, 3, None))), "must be known")
    tensors = {
        "value": keras.KerasTensor((None, 7, 11)),
        "mask": keras.KerasTensor((None, 3), "bool"),
    }
    assert_refused(lambda: SPEC.check("layer", tensors), "`mask` must have shape (batch, 7), one")


def test_arguments_that_are_not_given_are_not_checked():
    assert SPEC.check("layer", {"value": VALUE}) == {"B": 2, "Tk": 7, "Dv": 11}


def test_sizes_that_a_layer_was_built_for():
    checked({"Dq": 5, "Dv": 11})
    assert_refused(
        lambda: checked({"Dv": 13}),
        "layer: the layer was built for `value` of 13 features; received (2, 7, 11). Check the",
    )


MISTAKES = {
    "missing": ({"value": None}, "`value` is missing, of shape (batch, memory steps, features)."),
    "a list": ({"query": [QUERY, VALUE]}, "`query` must be one tensor; received a list of 2."),
    "numbers": ({"query": 3}, "`query` must be a tensor or an array; received a int."),
    "another kind": ({"ids": QUERY[..., 0]}, "`ids` must hold word ids, integers; received dtype"),
    "another rank": (
        {"query": QUERY[0, 0]},
        "`query` must have shape (batch, steps, features), or (batch, features) for one step; "
        "received (5,). Call layer(query, value).",
    ),
    "another batch": (
        {"value": np.ones((3, 7, 11))},
        "the batch size must be the same in `query` and `value`; received `query` 2, `value` 3.",
    ),
    "other steps": (
        {"ids": np.ones((2, 6), int)},
        "the number of memory steps must be the same in `value` and `ids`; received `value` 7, "
        "`ids` 6.",
    ),
    "a mask": ({"query": GOOD["mask"]}, "Pass a mask by its name: `mask` or `attention_mask`."),
    "pairs": (
        {"attention_mask": np.ones((7, 3), bool)},
        "`attention_mask` must have shape (3, 7) or (2, 3, 7), one truth value for each pair of a "
        "query and a memory step; received (7, 3). To mask only the memory, pass `value_mask`.",
    ),
}


@pytest.mark.parametrize("name", MISTAKES)
def test_an_error_says_what_was_given_what_was_expected_and_how_to_fix_it(name):
    changes, message = MISTAKES[name]
    assert_refused(
        lambda: checked(**changes), f"layer: {message}" if message[0] != "P" else message
    )


def test_shapes_are_checked_as_tensors_are():
    sizes = SPEC.check_shapes("layer", {"query": (None, 5), "value": (None, None, 11)})
    assert sizes == {"Dq": 5, "Dv": 11}
    for shapes, message in (
        ({"query": (2, 3, 5), "value": None}, "`value` is missing"),
        ({"query": [(2, 3, 5), (2, 7, 5)]}, "`query` must be one tensor; received a list of 2"),
        ({"query": (2, 3, 5), "value": (2, 11)}, "`value` must have shape (batch, memory steps"),
        ({"query": (2, 3, None)}, "the last dimension of `query`, its features, must be known"),
    ):
        assert_refused(lambda shapes=shapes: SPEC.check_shapes("layer", shapes), message)


def test_other_declarations_of_some_arguments():
    step = SPEC.but("mask: bool[B]?")
    step.check("layer", {**GOOD, "mask": np.ones(2, bool)})
    assert_refused(lambda: step.check("layer", GOOD), "`mask` must have shape (2,)")
    checked()


DECLARED = [
    x
    for module in (attention, decoder, layers, seq2seq)
    for _, x in sorted(vars(module).items())
    if isinstance(x, type) and "CALL" in vars(x)
]


def documented(layer, name):
    """The kind and the shapes of an argument in the docstring of a layer."""
    section = re.search(r"Call arguments:\n(.*?)\n\n", inspect.getdoc(layer) + "\n\n", re.S).group(
        1
    )
    text = re.search(
        rf"\b{name}: (.*?)(?=\.\s+\w+: |\n    ?\w+: |\n\w+[\w, ]*: |\Z)", section, re.S
    )
    shapes = re.findall(r"`\(([^`()]*)\)`", text.group(1)) if text else []
    return text and text.group(1), {tuple(x.replace(",", " ").split()) for x in shapes}


@pytest.mark.parametrize("layer", DECLARED)
def test_declarations_are_those_of_the_docstring(layer):
    one_step = {x.name: x for x in getattr(layer, "STEP", layer.CALL).arguments}
    for name, kind, forms, optional in layer.CALL.arguments:
        text, shapes = documented(layer, name)
        if text is None:
            assert "see `ScoringMixin`" in inspect.getdoc(layer)
            continue
        declared = {*forms.values()}
        assert declared <= shapes <= declared | {*one_step[name].forms.values()}, name
        assert ("boolean" in text) == (kind == "bool"), name
        assert optional == (kind == "bool" or "default" in text), name
        assert all(axis in AXES or axis[0] == "D" for axes in forms.values() for axis in axes)


def test_all_remedies_are_of_a_known_problem():
    problems = {key[1] if isinstance(key, tuple) else key for key in REMEDIES}
    source = inspect.getsource(Spec) + inspect.getsource(sys.modules[Spec.__module__]._sparsity)
    assert not [problem for problem in problems if f'"{problem}"' not in source]


def checks_in(run):
    """The functions of `_spec`, and those whose names say that they check, that `run` passes."""
    names = set()

    def profile(frame, event, _):
        code = frame.f_code
        ours = event == "call" and "keras_attention" in code.co_filename
        if ours and (code.co_filename.endswith("_spec.py") or "check" in code.co_name):
            names.add(code.co_qualname)

    sys.setprofile(profile)
    try:
        run()
    finally:
        sys.setprofile(None)
    return names


def test_a_correct_call_passes_few_checks():
    layer = BahdanauAttention(3)
    call = lambda: layer(QUERY, VALUE, value_mask=GOOD["mask"])  # noqa: E731
    call()
    assert len(checks_in(call)) <= 5, checks_in(call)
    memory = layer.prepare(VALUE)
    assert len(checks_in(lambda: layer.attend(QUERY[:, 0], memory))) <= 7
