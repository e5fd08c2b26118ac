"""The page and the picture of a document; the page is tested in a real browser."""

import itertools
import re

import numpy as np
import pytest

from keras_attention.plotting import Document, document_page, plot_document
from keras_attention.plotting import document_picture as picture
from keras_attention.plotting._lines import flow_lines
from keras_attention.plotting.documents import percent, read_document
from tests.browser import FAINT, show
from tests.helpers import assert_refused, refusals

HOSTILE = (
    "<script>alert(1)</script> <img src=x onerror=alert(1)> \"><b>bold</b> '><b> &amp; &lt; "
    "</style> </title> <!-- ]]> javascript:alert(1) "
    "x\x00y \x1b[0m \x7f \x85 \ud800 \u202eend $\\frac$"
)
LONG = "x" * 300


def make_document(name, label, predicted, lines, probability=0.75):
    """A document with random weights; the third word has by far the largest."""
    random, words, weights, gaps = np.random.default_rng(5), [], [], []
    shares = random.dirichlet(np.full(len(lines), 0.5))
    for number, line in enumerate(lines):
        before, found = zip(*re.findall(r"(\s*)([\w\ud800]+|[^\w\s])", line), strict=True)
        exponents = np.exp(random.normal(size=len(found)))
        exponents[2:3] *= 50
        words.append([*found])
        weights.append([*(exponents / exponents.sum())])
        gaps.append(["\n" if number else "", *before[1:]])
    return Document(words, weights, shares, name, predicted, probability, label, gaps)


REVIEW = make_document("pos/12.txt", "pos", "neg", [
    "It starts slowly , and for  half an hour nothing happens.",
    "Then it is wonderful!",
    "The cast (mostly unknown) is superb; the camera never once tells you what to feel, and by "
    "the time the fog lifts you have forgotten that you ever looked at your watch.",
])  # fmt: skip
HEBREW = make_document(
    "עברית 7", "חיובי", "חיובי", ["הסרט הזה נפלא, והשחקנים של Midnight Ferry טובים."]
)
CHINESE = "这部电影非常好看，演员的表演很出色。", "北京 naïve 👍 works."
MARKUP = ["<script>alert(1)</script>", "<img src=x onerror=alert(1)>", "&amp;", "</mark>"]
GAPS = [["<i>", "</p>", '<a href="x">', " "]]
MANY = [f"Line {n} of a hundred lines, like others." for n in range(100)]
DOCUMENTS = [
    REVIEW,
    HEBREW,
    make_document("評論", "好", "坏", CHINESE),
    make_document(HOSTILE, HOSTILE, '"><b>x', [HOSTILE]),
    make_document("long", None, "pos", [f"{LONG} is long.", LONG]),
    Document([], [], [], "empty", "pos", 1 / 3),
    Document([[]], [[]], [1.0], "no words", "pos", 1.0, "pos"),
    Document([["a", "b"]], [[0.0, 0.0]], [0.0], "zeros", "pos", 0.0, "pos"),
    Document([MARKUP], [[0.25] * 4], [1.0], "markup in words", "pos", 0.5, gaps=GAPS),
    make_document("many", "a", "a", MANY),
]


def shown(text):
    """The text as a browser shows it: control characters as signs, lone surrogates replaced."""
    signs = {code: chr(0x2400 + code) for code in range(32) if code not in (9, 10, 13)}
    return text.translate({**signs, 0x7F: "␡", 0x85: "\ufffd", 0xD800: "\ufffd"})


def test_a_document_of_no_known_class():
    document = Document([["a", "b"]], [[0.5, 0.5]], [1.0])
    page = document_page([document], "Title")
    assert "predicted" not in page
    assert "class" not in re.sub(r'class="\w+"|<style>.*</style>', "", page, flags=re.DOTALL)
    texts = [text.get_text() for text in plot_document(document).figure.texts]
    assert texts[:3] == ["100.0%", "a", "b"]
    of_class = document._replace(name="x", expected="spam")
    assert "<p>true class <bdi>spam</bdi></p>" in document_page([of_class], "Title")
    assert picture._title(of_class) == "x: true class spam"
    assert picture._title(document._replace(predicted="a")) == "predicted a, true class unknown"


def test_notes_stand_below_the_title_and_below_a_document():
    page = document_page(DOCUMENTS, "Title", "first <line>\nsecond")
    assert re.search("Title</h1>.*first &lt;line&gt;\nsecond</pre>.*<article", page, re.DOTALL)
    assert not re.search(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]", page)
    noted = REVIEW._replace(note="no <idea> of x")
    *_, legend, note = (text.get_text() for text in plot_document(noted).texts)
    assert legend.startswith("Bar: ")
    assert note == noted.note
    page = document_page([noted])
    assert "<pre" not in page
    assert ">no &lt;idea&gt; of x</p>\n</article>" in page


TWO_WORDS = Document([["x", "y"]], [[0.5, 0.5]], [1.0], "d", "a", 0.5, "a")


@pytest.mark.parametrize("x", [np.nan, np.inf, -0.25])
def test_nonsense_is_refused(x):
    for changes, message in (
        ({"word_weights": [[0.5, x]]}, "`word_weights[0]` must be finite and not neg"),
        ({"sentence_weights": [x]}, "d: `sentence_weights` must be finite and not neg"),
        ({"probability": x}, "`probability` must be a number from 0 to 1"),
    ):
        document = TWO_WORDS._replace(**changes)
        assert_refused(lambda document=document: plot_document(document), message)
        assert_refused(lambda document=document: document_page([document], ""), message)


@pytest.mark.parametrize(("name", "given", "words"), [
    ("probability", True, ("`probability` must ", " received True")),
    ("probability", 90, ("no percentage; received 90",)),
    ("words", "Dear all", ("d: `words` must be a list of sentences; received 'Dear all'",)),
    ("words", ["Dear all"],
     ("d: `words[0]` must be a list of words; received 'Dear all'. Split",)),
    ("gaps", [[]], ("`gaps[0]` must hold the text before each of 2 words; received []",)),
    ("gaps", [], ("`gaps` must have a row for each of 1 sentences; received []",)),
    ("word_weights", [], ("`word_weights` must have a row for each of 1 sentences",)),
    ("word_weights", [[1.0]], ("`word_weights[0]` ", "here (2,)", "received (1,)")),
    ("sentence_weights", [], ("`sentence_weights` ", "(sentences,), here (1,)")),
    ("sentence_weights", ["x"], ("`sentence_weights` must be an array",)),
])  # fmt: skip
def test_documents_that_do_not_agree(name, given, words):
    assert_refused(lambda: read_document(TWO_WORDS._replace(**{name: given})), *words)


test_no_document = refusals(
    (lambda: plot_document([["a"]]), "expected a `Document(words", "received [['a']]"),
    (lambda: document_page(TWO_WORDS, ""), "documents must be a list of `Document`", "[document]"),
)


def test_classes_in_bytes_and_long_ones():
    document = TWO_WORDS._replace(name=b"n" * 99, predicted=b"pos", expected="pos")
    assert "✓ right" in document_page([document], "")
    assert "predicted <strong><bdi>pos</bdi>" in document_page([document], "")
    long = document._replace(predicted="W " * 99, expected="北" * 99)
    texts = [text.get_text() for text in plot_document(long).figure.texts]
    assert {"✗", "wrong"} <= set(texts)


def test_padding_behind_bytes_and_strengths():
    padded = np.array([[0.25, 0.75, 0, 0], [0.5, 0.25, 0.25, 0], [0, 0, 0, 0]])
    words = [[b"caf\xc3\xa9", "b"], ["c", "d", "e"]]
    sentences = read_document(Document(words, padded, np.array([0.5, 0.5, 0])))[1]
    assert [x.weights for x in sentences] == [[0.25, 0.75], [0.5, 0.25, 0.25]]
    assert [x.gaps for x in sentences] == [[" "] * 2, [" "] * 3]
    assert ">café</mark>" in document_page([Document(words, padded, [0.5, 0.5])], "")
    assert "café" in [t.get_text() for t in plot_document(Document(words, padded, [1, 0])).texts]
    words = [["a", "b"], ["c", "d", "e"], ["f"]]
    weights = [[0.75, 0.25], [0.5, 0.5, 0.0], [1.0]]
    sentences = read_document(Document(words, weights, [0.8, 0.2, 0]))[1]
    assert [x.share for x in sentences] == pytest.approx([1, 0.25, 0])
    for sentence, strengths in zip(sentences, ([1, 1 / 3], [0.5, 0.5, 0], [0]), strict=True):
        assert sentence.strengths == pytest.approx(strengths)
    assert read_document(Document([], [], []))[1] == []
    assert [percent(x) for x in (0, 1e-9, 0.0005, 0.12345)] == ["0.0%", "<0.1%", "0.1%", "12.3%"]


def pixels(figure):
    figure.canvas.draw()
    return np.asarray(figure.canvas.buffer_rgba())[..., :3].astype(int)


def count(image, color):
    return int((image == color).all(-1).sum())


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda d: d.name[:8].encode("ascii", "replace"))
def test_a_picture_of_any_document(document):
    image = pixels(plot_document(document))
    # A heading of two lines, fourteen of text, one of legend.
    assert image.shape[0] < 20 * picture._LEADING * picture._DPI / 72
    edge = np.concatenate([image[:, :10].reshape(-1, 3), image[:, -10:].reshape(-1, 3)])
    assert (edge == 255).all(), "text runs over the edge"
    strongest = count(image, picture._WORD)
    assert (strongest > 100) == any(map(sum, document.word_weights))


def width(text):
    return 6.0 * len(text)


def test_the_heaviest_sentences_are_drawn_in_their_order():
    sentences = read_document(DOCUMENTS[-1])[1]
    rows = picture._choose_rows(sentences, width)
    assert 10 < len(rows) <= picture._LINES + 2
    drawn = [weight for weight, *_ in rows if weight is not None]
    assert sorted(drawn) == sorted(s.weight for s in sentences)[-len(drawn) :]
    assert drawn == [s.weight for s in sentences if s.weight in drawn]
    # A line says how many sentences are left out at a place.
    weights = [s.weight if s.weight in drawn else None for s in sentences]
    groups = [(weight, len([*same])) for weight, same in itertools.groupby(weights)]
    assert [weight for weight, *_ in rows] == [weight for weight, _ in groups]
    found = [line[0][2] for weight, _, line in rows if weight is None]
    words = {n: f"… {n} sentence{'s' * (n > 1)} of smaller weight" for _, n in groups}
    assert found == [words[n] for weight, n in groups if weight is None]
    # A very long sentence ends with a note that it continues.
    long = read_document(Document([["ab"] * 999], [[1 / 999] * 999], [1.0]))[1]
    rows = picture._choose_rows(long, width)
    assert len(rows) == picture._LINES
    assert rows[-1][-1][0][2] == "… the rest of the sentence"


def flow(line, room, to_left=False):
    words, gaps = zip(*((w, g) for g, w in re.findall(r"(\s*)(\w+|[^\w\s])", line)), strict=True)
    lines = flow_lines(words, gaps, [0.5] * len(words), room, width, to_left)
    assert all(0 <= x <= room - wide for line in lines for x, wide, *_ in line)
    for placed in lines:
        for (x, wide, *_), (after, *_) in itertools.pairwise(placed):
            assert x + wide <= after
    return [[word for *_, word, _ in line] for line in lines]


def test_lines_of_words():
    # Six points a letter and a space; a sign goes with its word.
    assert flow("one two, three", 8 * 6) == [["one", "two", ","], ["three"]]
    assert flow("one two, three", 7 * 6) == [["one"], ["two", ","], ["three"]]
    assert flow("abcdefgh i", 5 * 6) == [["abcd"], ["efgh"], ["i"]]
    assert flow("......... i", 5 * 6) == [["."] * 5, ["."] * 4, ["i"]]
    assert flow_lines([], [], [], 100, width) == []


ONE, TWO, THREE = "אחת", "שתיים", "שלוש"


@pytest.mark.parametrize(("line", "to_left", "expected"), [
    (f"{ONE} {TWO}, {THREE}.", True, [".", THREE, ",", TWO, ONE]),
    (f"{ONE} New York 2 {TWO}", True, [TWO, "New", "York", "2", ONE]),
    (f"{ONE} 5.20 {TWO}", True, [TWO, "5", ".", "20", ONE]),
    (f"see {ONE} 7 {TWO}, and {THREE}.", False, ["see", TWO, "7", ONE, ",", "and", THREE, "."]),
    (f"see {ONE} {TWO}.", False, ["see", TWO, ONE, "."]),
])  # fmt: skip
def test_words_of_both_directions_are_drawn_in_the_order_of_reading(line, to_left, expected):
    assert flow(line, 999, to_left) == [expected]


@pytest.fixture(scope="module")
def page(browser, tmp_path_factory):
    path = tmp_path_factory.mktemp("page") / "page.html"
    path.write_text(document_page(DOCUMENTS, HOSTILE), encoding="utf-8")
    browser.get(path.as_uri())
    return browser


def ask(page, script, *arguments):
    return page.execute_script(f"return {script}", *arguments)


def test_weights_in_the_page(page):
    script = """[...document.querySelectorAll("article")].map(article =>
        [...article.querySelectorAll("li")].map(item => [Number(item.dataset.weight),
            [...item.querySelectorAll("mark")].map(mark => Number(mark.dataset.weight))]))"""
    found = ask(page, script)
    for sentences, document in zip(found, DOCUMENTS, strict=True):
        for (weight, weights), sentence in zip(sentences, read_document(document)[1], strict=True):
            assert weight == pytest.approx(sentence.weight, rel=1e-8)
            assert weights == pytest.approx(sentence.weights, rel=1e-8)
    titles = ask(page, "[...document.querySelectorAll('article [title]')].map(e => e.title)")
    assert len(titles) == sum(1 + len(words) for d in DOCUMENTS for words in d.words if words)
    assert titles[1] == f"{100 * REVIEW.word_weights[0][0]:.4g}% of the sentence"


def test_text_in_the_page_is_the_given_text(page):
    script = """[...document.querySelectorAll("article")].map(article => [
        article.querySelector("h2").textContent, article.querySelector("h2 + p").innerText,
        [...article.querySelectorAll("li p")].map(p => [p.textContent, p.innerText])])"""
    texts = ask(page, script)
    for (name, verdict, lines), document in zip(texts, DOCUMENTS, strict=True):
        assert name == shown(document.name)
        label = "unknown" if document.expected is None else shown(document.expected)
        marks = {None: "", document.predicted: " ✓ right"}
        label += marks.get(document.expected, " ✗ wrong")
        predicted = re.escape(shown(document.predicted))
        assert re.fullmatch(rf"predicted {predicted} \(.*, true class {re.escape(label)}", verdict)
        for (text, seen), sentence in zip(lines, read_document(document)[1], strict=True):
            parts = zip(sentence.gaps, sentence.words, strict=True)
            assert text == shown("".join(gap + word for gap, word in parts)).lstrip()
            # Two spaces between words are two on the screen.
            assert seen == text
    text = ask(page, "document.body.innerText")
    assert "10 documents; 4 of 7 classified rightly." in text
    assert not re.search(r"\b(nan|inf|infinity|none|undefined)\b", text.lower())
    assert ask(page, "document.title") == " ".join(shown(HOSTILE).split())


def test_documents_cannot_inject_anything(page):
    from selenium.common.exceptions import NoAlertPresentException

    tags = set(ask(page, "[...document.querySelectorAll('*')].map(e => e.localName)"))
    allowed = "html head meta title style body article h1 h2 p ol li a bdi br mark span strong"
    assert tags <= set(allowed.split())
    script = "[...document.querySelectorAll('body *')].flatMap(e => e.getAttributeNames())"
    allowed = {"class", "id", "href", "style", "title", "dir", "data-weight"}
    assert set(ask(page, script)) <= allowed
    links = ask(page, "[...document.links].map(a => a.getAttribute('href'))")
    assert links == ["#d1", "#d3", "#d4"]
    assert ask(page, "performance.getEntriesByType('resource').length") == 0
    with pytest.raises(NoAlertPresentException):
        _ = page.switch_to.alert
    # Even markup that came in would neither run nor load.
    script = """const done = arguments[0];
        document.addEventListener("securitypolicyviolation", e => {
            (window.refused ??= []).push(e.effectiveDirective);
            if (window.refused.length === 3) done();
        });
        const [script, image] = ["script", "img"].map(x => document.createElement(x));
        script.textContent = "window.ran = true";
        image.src = "picture.gif";
        image.setAttribute("onerror", "window.ran = true");
        document.body.append(script, image);"""
    page.execute_async_script(script)
    page.execute_script("document.querySelectorAll('script, img').forEach(e => e.remove())")
    assert ask(page, "window.ran === undefined")
    assert set(ask(page, "window.refused")) == {"script-src-elem", "script-src-attr", "img-src"}


def numbers_in(color):
    return [*map(float, re.findall(r"[\d.]+", color))]


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_contrast_and_strength_of_colours(page, scheme):
    show(page, page.current_url, 1200, scheme)
    assert page.execute_script(FAINT) == []
    paper = numbers_in(ask(page, "getComputedStyle(document.body).backgroundColor"))
    assert (sum(paper) < 200) == (scheme == "dark")
    script = """[...document.querySelectorAll("article")].map(article =>
        [...article.querySelectorAll("li")].map(item => [...item.querySelectorAll("mark")].map(
            mark => getComputedStyle(mark).backgroundColor)))"""
    for colors, document in zip(ask(page, script), DOCUMENTS, strict=True):
        for row, sentence in zip(colors, read_document(document)[1], strict=True):
            alphas = [[*numbers_in(color), 1.0][3] for color in row]
            pairs = zip(sentence.weights, alphas, strict=True)
            for (a, faint), (b, strong) in itertools.pairwise(sorted(pairs)):
                assert faint <= strong
                assert faint < strong or b <= a + 0.1 or sentence.share < 1
    script = """[...document.querySelectorAll("article:first-of-type .bar")].map(
        e => parseFloat(getComputedStyle(e).backgroundSize))"""
    shares = REVIEW.sentence_weights
    expected = [100 * share / max(shares) for share in shares]
    assert ask(page, script) == pytest.approx(expected, abs=0.1)


@pytest.mark.parametrize("wide", [400, 1200])
def test_nothing_runs_over_the_edge(page, wide):
    show(page, page.current_url, wide, "light")
    assert ask(page, "innerWidth") == wide
    assert ask(page, "document.documentElement.scrollWidth") <= wide
    sides = "(e => [e.getBoundingClientRect().left, e.getBoundingClientRect().right])"
    rows = f"[...document.querySelectorAll('li')].map(li => [...li.children].map{sides})"
    for share, bar, text in ask(page, rows):
        assert share[1] < bar[0] < bar[1] < text[0]
        assert text[1] - text[0] > wide / 2


def test_text_from_right_to_left(page):
    script = """[[...document.querySelectorAll("li p")].slice(0, 4).map(
            p => getComputedStyle(p).direction),
        [...document.querySelectorAll("#d2 mark")].map(
            mark => [mark.textContent, mark.getBoundingClientRect().left])]"""
    directions, boxes = ask(page, script)
    assert directions == ["ltr"] * 3 + ["rtl"]
    left = dict(boxes)
    words = "הסרט", "הזה", "נפלא", "Ferry", "Midnight", "טובים", "."
    assert [*words] == sorted(words, key=left.get, reverse=True)
