"""Text of any script is shortened and drawn, and highlighted in HTML."""

import html.parser

import matplotlib.font_manager as manager
import numpy as np
import pytest

from keras_attention.plotting import Hops, _text, highlight, plot_attention, plot_hops
from keras_attention.plotting._text import drawable, shorten
from tests.helpers import refusals


@pytest.mark.parametrize(("text", "room", "expected"), [
    ("abc  def", 7, "abc def"),
    ("abcdefgh", 7, "abcde …"),
    ("", 3, ""),
    (" ", 3, "␣"),
    # Marks take no room, and stay with their letter.
    ("e\u0301" * 7, 7, "e\u0301" * 7),
    ("e\u0301" * 8, 7, "e\u0301" * 5 + " …"),
])  # fmt: skip
def test_text_is_shortened(text, room, expected):
    assert shorten(text, room) == expected


def test_signs_that_cannot_be_drawn():
    first, control, hieroglyph, half = drawable("a\x00\U00014400\ud800")
    assert (first, hieroglyph) == ("a", "□")
    assert control in "␀□"
    assert half in "\ufffd□"
    assert drawable(b"caf\xc3\xa9") == "café"
    # A mark on a sign that no font has goes with it.
    assert drawable("\U00014400\u0301e\u0301") == "□e\u0301"


def test_a_mark_that_no_font_has_is_a_box(monkeypatch):
    """On a letter that a font has: matplotlib would warn, and draw a circle."""
    families = {"\u3099": None}
    monkeypatch.setattr(_text, "_family_of", lambda sign: families.get(sign, "DejaVu Sans"))
    assert drawable("◌\u3099") == "◌□"
    assert drawable("e\u3099\u3099\u0301x") == "e□x"
    assert shorten("◌\u3099" * 9, 8) == "◌□◌□◌□ …"
    assert drawable("a\u200db") == "a\u200db"
    plot_attention([[0.5, 0.5]], ["◌\u3099", "e"], ["x"]).canvas.draw()


def test_words_of_all_scripts_are_drawn_by_the_fonts_that_are_installed():
    words = ["नमस्ते", "ไทย", "தமிழ்", "한국어", "北京很好", "مرحبا", "שלום", "👍", "🇩", "é"]
    plot_attention([[1 / len(words)] * len(words)], words, ["x"]).canvas.draw()
    plot_hops(Hops(words, [[0.1] * len(words)], "北京", "தமிழ்")).canvas.draw()
    # STIX comes with matplotlib and has signs that the first known font does not have.
    fonts = [manager.findfont(name) for name in ("STIXGeneral", "DejaVu Sans")]
    codes = [set(manager.get_font(font).get_charmap()) for font in fonts]
    words = [chr(code) for code in sorted(codes[0] - codes[1]) if chr(code).isprintable()][:5]
    assert drawable("".join(words)) == "".join(words)
    plot_attention([[0.2] * 5], words, ["x"]).canvas.draw()


@pytest.mark.parametrize("draw", [
    lambda word: plot_attention([[1]], ["x"], [word]), lambda word: plot_hops(Hops([word], [[1]])),
], ids=["map", "hops"])  # fmt: skip
def test_hebrew_is_drawn_from_the_right(draw):
    """The picture equals that of the reversed letters, which are forced to run left to right."""

    def picture(word):
        figure = draw(word)
        figure.canvas.draw()
        return np.asarray(figure.canvas.buffer_rgba()).astype(int)

    word = "שלום"
    right = picture(word)
    assert np.abs(right - picture("\u202d" + word[::-1])).max() < 8
    assert np.abs(right - picture("\u202d" + word)).max() > 100


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


test_mistakes_in_html = refusals(
    (lambda: highlight(["a"], [0], None), "`joiner` must be one string, or ", "; received None"),
    (lambda: highlight(["a", "b", "c"], [0] * 3, ["", ""]),
     "one before each token, here 3; received ['', '']"),
    (lambda: highlight(["a", "b"], [0] * 3), "here (2,); received (3,). Pass one sample"),
)  # fmt: skip
