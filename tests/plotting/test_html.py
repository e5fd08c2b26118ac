"""Highlighted text as HTML."""

import html.parser

import numpy as np

from keras_attention.plotting import highlight
from tests.helpers import refusals


class Marks(html.parser.HTMLParser):
    def __init__(self, page):
        super().__init__()
        self.text, self.marks, self.tags = "", [], []
        self.feed(page)

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        if tag == "mark":
            self.marks.append((float(dict(attributes)["title"]), dict(attributes)["style"]))

    def handle_data(self, data):
        self.text += data


def test_highlighted_text_is_escaped():
    tokens = ["<script>alert(1)</script>", "&amp;", '" onclick="x', "\x00", "שלום"]
    page = highlight(tokens, [0.1, 0.2, 0.3, 0.4, 0.0])
    marks = Marks(page)
    assert marks.tags == ["p", *["mark"] * 5]
    assert marks.text == " ".join(tokens).replace("\x00", "␀")
    assert [weight for weight, _ in marks.marks] == [0.1, 0.2, 0.3, 0.4, 0]
    # The strongest is the largest.
    assert "/ 1.000" in marks.marks[3][1]
    assert "/ 0.250" in marks.marks[0][1]
    assert page._repr_html_() == page


def test_bytes_and_gaps_of_highlighted_text():
    tokens = np.array([b"caf\xc3\xa9", b"\xff"], object)
    assert Marks(highlight(tokens, [1, 0])).text == "café \ufffd"
    assert Marks(highlight(["a", ",", "b"], [0, 0, 0], ["", "", "\n"])).text == "a,\nb"
    assert Marks(highlight([], [])).text == ""
    assert Marks(highlight(iter("ab"), [0, 0])).text == "a b"


test_mistakes = refusals(
    (lambda: highlight(["a"], [0], None), "`joiner` must be one string, or ", "; received None"),
    (lambda: highlight(["a", "b", "c"], [0] * 3, ["", ""]),
     "one before each token, here 3; received ['', '']"),
    (lambda: highlight(["a", "b"], [0] * 3), "here (2,); received (3,). Pass one sample"),
)  # fmt: skip
