"""The equations of the docstrings, typeset as MathML."""

import importlib
import inspect
import re
import sys
import xml.etree.ElementTree

import pytest

from tests import ROOT

sys.path.append(str(ROOT / "docs" / "_ext"))
docstrings = importlib.import_module("docstrings")
equations = importlib.import_module("equations")
NAMES = docstrings.public_names("keras_attention")


def block_of(path):
    """The MathML on the page of a public name, with the code form below it, or None."""
    module, _, name = path.rpartition(".")
    text = inspect.getdoc(getattr(importlib.import_module(module), name)) or ""
    found = "\n".join(docstrings.convert(text.splitlines(), NAMES))
    code = r"\s+\.\. code-block:: text\n\n((?: {4}.*\n|\n)*)"
    return re.search(r'(<div class="equations".*</div>)' + code, found)


@pytest.mark.parametrize("name", NAMES)
def test_every_block_is_well_formed(name):
    """It has the letters and digits of the code form, in their order."""
    block = block_of(NAMES[name])
    if block:
        root = xml.etree.ElementTree.fromstring(block[1])
        code = re.sub(r"\bsum(?=_)|\bpi\b", "", block[2])  # they become signs
        assert re.findall("[a-zA-Z0-9]", "".join(root.itertext())) == re.findall(
            "[a-zA-Z0-9]", code
        )


def test_every_layer_has_one():
    for name in "BahdanauAttention", "LuongAttention", "MemoryNetwork", "AttentionRNN":
        assert block_of(NAMES[name])


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a[b,i]^2", "<msubsup><mi>a</mi><mrow><mi>b</mi><mo>,</mo><mi>i</mi></mrow>"
         "<mrow><mn>2</mn></mrow></msubsup>"),
        ("h~", "<mover><mi>h</mi><mo>~</mo></mover>"),
        ("W^T", "<msup><mi>W</mi><mrow><mi>T</mi></mrow></msup>"),
        ("s_{i-1}", "<msub><mi>s</mi><mrow><mi>i</mi><mo>−</mo><mn>1</mn></mrow></msub>"),
        ("sum_j", "<msub><mo>∑</mo><mrow><mi>j</mi></mrow></msub>"),
        ("next_state(z)", "<mi>next_state</mi><mrow><mo>(</mo><mi>z</mi><mo>)</mo></mrow>"),
        ("x<y", "<mi>x</mi><mo>&lt;</mo><mi>y</mi>"),
        ("u'[b]", "<msubsup><mi>u</mi><mrow><mi>b</mi></mrow><mrow><mo>′</mo></mrow></msubsup>"),
    ],
)  # fmt: skip
def test_a_formula(text, expected):
    assert equations.formula(text) == f"<mrow>{expected}</mrow>"


def test_rows_have_columns_and_remarks():
    found = equations.typeset(["c[b]   = k     a remark", "       v       another"])
    root = xml.etree.ElementTree.fromstring(found)
    rows = [["".join(x.itertext()) for x in row] for row in root.iter("mtr")]
    assert rows == [["cb", "=k", "a remark"], ["", "=v", "another"]]
