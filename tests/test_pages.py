"""The page and the picture of what a classifier read, the page in a real browser."""

import itertools
import pathlib
import re
import shutil
import sys

import numpy as np
import pytest

EXAMPLES = pathlib.Path(__file__).parents[1] / "examples"
sys.path.insert(0, str(EXAMPLES))

import pages  # noqa: E402
from pages import Reading, Sentence, draw_document, write_page  # noqa: E402

HOSTILE = (
    "<script>alert(1)</script> <img src=x onerror=alert(1)> \"><b>bold</b> '><b> &amp; &lt; "
    "</style> </title> <!-- ]]> javascript:alert(1) "
    "x\x00y \x1b[0m \x7f \x85 \ud800 \u202eend $\\frac$"
)
LONG = "x" * 300


def softmax(scores):
    weights = np.exp(scores - scores.max(initial=0))
    return weights / weights.sum()


def make_reading(name, label, predicted, lines, probability=0.75):
    """With random weights, of which the third word's is by far the largest."""
    random = np.random.default_rng(5)
    sentences = []
    shares = softmax(2 * random.normal(size=len(lines)))
    for number, line in enumerate(lines):
        found = re.findall(r"(\s*)([\w\ud800]+|[^\w\s])", line)
        scores = random.normal(size=len(found))
        scores[2:3] += 4
        gaps, words = zip(*found, strict=True)
        gaps = ("\n" if number else "", *gaps[1:])
        weights = softmax(scores).tolist()
        sentences.append(Sentence(float(shares[number]), list(words), weights, list(gaps)))
    return Reading(name, label, predicted, probability, sentences)


REVIEW = make_reading(
    "pos/12.txt",
    "pos",
    "neg",
    [
        "It starts slowly , and for  half an hour nothing happens.",
        "Then it is wonderful!",
        "The cast (mostly unknown) is superb; the camera never once tells you what to feel, and by "
        "the time the fog lifts you have forgotten that you ever looked at your watch.",
    ],
)
HEBREW = make_reading(
    "עברית 7", "חיובי", "חיובי", ["הסרט הזה נפלא, והשחקנים של Midnight Ferry טובים."]
)
READINGS = [
    REVIEW,
    HEBREW,
    make_reading(
        "評論", "好", "坏", ["这部电影非常好看，演员的表演很出色。", "北京 naïve 👍 works."]
    ),
    make_reading(HOSTILE, HOSTILE, '"><b>x', [HOSTILE]),
    make_reading("long", None, "pos", [f"{LONG} is long.", LONG]),
    Reading("empty", None, "pos", 1 / 3, []),
    Reading("no words", "pos", "pos", 1.0, [Sentence(1.0, [], [], [])]),
    Reading("zeros", "pos", "pos", 0.0, [Sentence(0.0, ["a", "b"], [0.0, 0.0], ["", " "])]),
    make_reading(
        "many", "a", "a", [f"Line {n} of a hundred lines, like others." for n in range(100)]
    ),
]


def shown(text):
    """What a browser can show: control characters as signs, halves of pairs replaced."""
    signs = {code: chr(0x2400 + code) for code in range(32) if code not in (9, 10, 13)}
    return text.translate({**signs, 0x7F: "␡", 0x85: "\ufffd", 0xD800: "\ufffd"})


# --- without a browser ---------------------------------------------------------------------------


def test_a_page_is_written_whole_or_not_at_all(tmp_path):
    path = tmp_path / "page.html"
    write_page(path, "Title", READINGS)
    before = path.read_text(encoding="utf-8")
    assert not re.search(r"\b(nan|inf)\b", before, re.IGNORECASE)
    assert not re.search(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f]", before)
    with pytest.raises(ValueError, match=r"sentence 1.*nan"):
        write_page(path, "Title", [with_weight(np.nan)])
    assert path.read_text(encoding="utf-8") == before
    assert [p.name for p in tmp_path.iterdir()] == ["page.html"]


def with_weight(weight):
    return Reading("d", "a", "a", 0.5, [Sentence(1.0, ["x", "y"], [0.5, weight], ["", " "])])


@pytest.mark.parametrize("weight", [np.nan, np.inf, -0.25])
@pytest.mark.parametrize("write", [lambda p, r: write_page(p, "", [r]), draw_document])
def test_nonsense_is_refused(tmp_path, write, weight):
    good = with_weight(0.5)
    sentence = good.sentences[0]
    for reading, message in (
        (with_weight(weight), "the weights of sentence 1 must be finite and not negative"),
        (good._replace(probability=weight), "its probability must"),
        (good._replace(sentences=[sentence._replace(weight=weight)]), "sentences' weights must"),
        (good._replace(sentences=[sentence._replace(gaps=[])]), "2 words, 2 weights and 0 gaps"),
    ):
        with pytest.raises(ValueError, match=message):
            write(tmp_path / "file", reading)
    assert not list(tmp_path.iterdir())


def test_strengths():
    sentences = [
        Sentence(0.8, ["a", "b"], [0.75, 0.25], ["", ""]),
        Sentence(0.2, ["c", "d", "e"], [0.5, 0.5, 0.0], [""] * 3),
        Sentence(0.0, ["f"], [1.0], [""]),
    ]
    expected = [(1, [1, 1 / 3]), (0.25, [0.5, 0.5, 0]), (0, [0])]
    for (share, words), (other, others) in zip(pages._strengths(sentences), expected, strict=True):
        assert share == pytest.approx(other)
        assert words == pytest.approx(others)
    assert pages._strengths([]) == []


@pytest.mark.parametrize(
    ("value", "text"),
    [(0, "0.0%"), (1e-9, "<0.1%"), (0.0005, "0.1%"), (0.12345, "12.3%"), (1, "100.0%")],
)
def test_percent(value, text):
    assert pages._percent(value) == text


# --- picture -------------------------------------------------------------------------------------


def pixels(path):
    image = pytest.importorskip("matplotlib.image").imread(path)
    return np.rint(255 * image[..., :3]).astype(int)


def count(image, color):
    return int((image == color).all(-1).sum())


@pytest.mark.parametrize("reading", READINGS, ids=lambda r: r.name[:8].encode("ascii", "replace"))
def test_a_picture_of_any_document(tmp_path, reading):
    draw_document(tmp_path / "document.png", reading)
    image = pixels(tmp_path / "document.png")
    # A heading of two lines, fourteen of text, one of legend.
    assert image.shape[0] < 20 * pages._LEADING * pages._DPI / 72
    assert [p.name for p in tmp_path.iterdir()] == ["document.png"]
    edge = np.concatenate([image[:, :10].reshape(-1, 3), image[:, -10:].reshape(-1, 3)])
    assert (edge == 255).all(), "text runs over the edge"
    strongest = count(image, pages._WORD)
    assert (strongest > 100) == any(sum(s.weights) for s in reading.sentences)


def test_colours_of_a_picture(tmp_path):
    one = REVIEW.sentences[1]._replace(weight=0.75, weights=[0.0, 0.0, 1.0, 0.0, 0.0])
    two = one._replace(weight=0.25, weights=[0.0, 0.0, 0.0, 1.0, 0.0])
    draw_document(tmp_path / "document.png", REVIEW._replace(sentences=[one, two]))
    image = pixels(tmp_path / "document.png")
    for strength in (1, (0.25 / 0.75) ** 0.5):
        color = [round(255 - strength * (255 - part)) for part in pages._WORD]
        assert count(image, color) > 200
    full, third = (
        np.flatnonzero((row == hexadecimal(pages._SENTENCE)).all(-1)) for row in bars(image)
    )
    assert len(third) == pytest.approx(len(full) / 3, abs=2)
    for color in (pages._WORD, (255, 255, 255)):
        assert contrast(hexadecimal(pages._INK), color) >= 4.5
    for color in (pages._QUIET, pages._WRONG):
        assert contrast(hexadecimal(color), (255, 255, 255)) >= 4.5


def bars(image):
    """A row of pixels through each bar."""
    inside = (image == hexadecimal(pages._SENTENCE)).all(-1).any(1)
    begins = np.flatnonzero(np.diff(inside.astype(int)) == 1)
    return [image[begin + 5] for begin in begins]


def hexadecimal(color):
    return tuple(bytes.fromhex(color[1:]))


def width(text):
    return 6.0 * len(text)


def test_the_heaviest_sentences_are_drawn_in_their_order():
    sentences = READINGS[-1].sentences
    rows = pages._choose_rows(sentences, width)
    assert 10 < len(rows) <= pages._LINES + 2
    drawn = [weight for weight, *_ in rows if weight is not None]
    assert sorted(drawn) == sorted(s.weight for s in sentences)[-len(drawn) :]
    assert drawn == [s.weight for s in sentences if s.weight in drawn]
    # Dots stand for what is left out, once a place.
    weights = [s.weight if s.weight in drawn else None for s in sentences]
    assert [weight for weight, *_ in rows] == [weight for weight, _ in itertools.groupby(weights)]
    assert all((line[0][2] == "…") == (weight is None) for weight, _, line in rows)
    # Nothing is left out of a short one, and a very long sentence ends with dots.
    assert len(pages._choose_rows(REVIEW.sentences, width)) < 10
    rows = pages._choose_rows([Sentence(1.0, ["ab"] * 999, [1 / 999] * 999, [" "] * 999)], width)
    assert len(rows) == pages._LINES
    assert rows[-1][-1][0][2] == "…"


def flow(line, room, to_left=False):
    words, gaps = zip(*((w, g) for g, w in re.findall(r"(\s*)(\w+|[^\w\s])", line)), strict=True)
    lines = pages._flow(words, gaps, [0.5] * len(words), room, width, to_left)
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
    assert pages._flow([], [], [], 100, width) == []


def test_words_of_both_directions_are_drawn_in_the_order_of_reading():
    one, two, three = "אחת", "שתיים", "שלוש"
    assert flow(f"{one} {two}, {three}.", 999, True) == [[".", three, ",", two, one]]
    assert flow(f"{one} New York 2 {two}", 999, True) == [[two, "New", "York", "2", one]]
    assert flow(f"{one} 5.20 {two}", 999, True) == [[two, "5", ".", "20", one]]
    assert flow(f"see {one} 7 {two}, and {three}.", 999) == [
        ["see", two, "7", one, ",", "and", three, "."]
    ]
    assert flow(f"see {one} {two}.", 999) == [["see", two, one, "."]]
    assert flow(f"{one} New York", 999, True) == [["New", "York", one]]
    assert flow(f"see {one}, ok", 999) == [["see", one, ",", "ok"]]


# --- in a browser --------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    names = ("chromium", "chromium-browser", "google-chrome")
    program = next(filter(None, map(shutil.which, names)), None)
    driver = shutil.which("chromedriver")
    if not (program and driver):
        pytest.skip("the page needs chromium and chromedriver to be seen: apt-get install chromium")
    webdriver = pytest.importorskip("selenium.webdriver")
    options = webdriver.ChromeOptions()
    options.binary_location = program
    for option in (
        *("headless=new", "no-sandbox", "disable-gpu", "disable-quic", "no-first-run"),
        *("disable-dev-shm-usage", "disable-background-networking"),
        f"user-data-dir={tmp_path_factory.mktemp('profile')}",
    ):
        options.add_argument(f"--{option}")
    # With its path given, selenium looks for no driver on the net.
    with webdriver.Chrome(options, webdriver.ChromeService(driver)) as browser:
        yield browser


@pytest.fixture(scope="module")
def page(browser, tmp_path_factory):
    path = tmp_path_factory.mktemp("page") / "page.html"
    write_page(path, HOSTILE, READINGS)
    browser.get(path.as_uri())
    return browser


def ask(page, script, *arguments):
    """The value of an expression in the page."""
    return page.execute_script(f"return {script}", *arguments)


def test_weights_in_the_page(page):
    found = ask(
        page,
        """[...document.querySelectorAll("article")].map(article =>
            [...article.querySelectorAll("li")].map(item => [
                Number(item.dataset.weight),
                [...item.querySelectorAll("mark")].map(mark => Number(mark.dataset.weight)),
            ]))""",
    )
    for sentences, reading in zip(found, READINGS, strict=True):
        for (weight, weights), sentence in zip(sentences, reading.sentences, strict=True):
            assert weight == pytest.approx(sentence.weight, rel=1e-8)
            assert weights == pytest.approx(sentence.weights, rel=1e-8)
            if sum(sentence.weights):
                assert sum(weights) == pytest.approx(1, abs=1e-7)
        if sum(s.weight for s in reading.sentences):
            assert sum(weight for weight, _ in sentences) == pytest.approx(1, abs=1e-7)
    titles = ask(page, "[...document.querySelectorAll('article [title]')].map(e => e.title)")
    assert len(titles) == sum(1 + len(s.words) for r in READINGS for s in r.sentences)
    assert all(re.fullmatch(r"[\d.e-]+% of the (sentence|document)", t) for t in titles)
    assert titles[1] == f"{100 * REVIEW.sentences[0].weights[0]:.4g}% of the sentence"


def test_text_in_the_page_is_the_given_text(page):
    texts = ask(
        page,
        """[...document.querySelectorAll("article")].map(article => [
            article.querySelector("h2").textContent,
            article.querySelector("h2 + p").innerText,
            [...article.querySelectorAll("li p")].map(p => [p.textContent, p.innerText]),
        ])""",
    )
    for (name, verdict, lines), reading in zip(texts, READINGS, strict=True):
        assert name == shown(reading.name)
        label = "unknown" if reading.label is None else shown(reading.label)
        assert verdict.startswith(f"predicted {shown(reading.predicted)} (")
        assert f", true class {label}" in verdict
        marks = {None: "", reading.predicted: " ✓ right"}
        assert verdict.endswith(label + marks.get(reading.label, " ✗ wrong"))
        for (text, seen), sentence in zip(lines, reading.sentences, strict=True):
            parts = zip(sentence.gaps, sentence.words, strict=True)
            assert text == shown("".join(gap + word for gap, word in parts)).lstrip()
            # Two spaces between words are two on the screen.
            assert seen == text
    text = ask(page, "document.body.innerText")
    assert "9 documents; 4 of 7 classified rightly." in text
    assert not re.search(r"\b(nan|inf|infinity|none|undefined)\b", text.lower())
    assert ask(page, "document.title") == " ".join(shown(HOSTILE).split())


def test_documents_cannot_inject_anything(page):
    from selenium.common.exceptions import NoAlertPresentException

    tags = set(ask(page, "[...document.querySelectorAll('*')].map(e => e.localName)"))
    assert tags <= {
        *("html", "head", "meta", "title", "style", "body", "article", "h1", "h2", "p", "ol", "li"),
        *("a", "bdi", "br", "mark", "span", "strong"),
    }
    assert ask(page, "document.querySelectorAll('style').length") == 1
    names = set(
        ask(page, "[...document.querySelectorAll('body *')].flatMap(e => e.getAttributeNames())")
    )
    assert names <= {"class", "id", "href", "style", "title", "dir", "data-weight"}
    links = ask(page, "[...document.links].map(a => a.getAttribute('href'))")
    assert links == ["#d1", "#d3", "#d4"]
    assert ask(page, "performance.getEntriesByType('resource').length") == 0
    with pytest.raises(NoAlertPresentException):
        _ = page.switch_to.alert
    # Even markup that came in would neither run nor load.
    page.execute_async_script(
        """const done = arguments[0];
        document.addEventListener("securitypolicyviolation", e => {
            (window.refused ??= []).push(e.effectiveDirective);
            if (window.refused.length === 3) done();
        });
        const script = document.createElement("script");
        script.textContent = "window.ran = true";
        document.body.append(script);
        const image = document.createElement("img");
        image.src = "picture.gif";
        image.setAttribute("onerror", "window.ran = true");
        document.body.append(image);
        """
    )
    page.execute_script("document.querySelectorAll('script, img').forEach(e => e.remove())")
    assert ask(page, "window.ran === undefined")
    assert set(ask(page, "window.refused")) == {"script-src-elem", "script-src-attr", "img-src"}


def blend(color, under):
    """Of CSS: rgb(r, g, b) or rgba(r, g, b, a)."""
    red, green, blue, alpha = [*map(float, re.findall(r"[\d.]+", color)), 1.0][:4]
    return tuple(
        alpha * c + (1 - alpha) * u for c, u in zip((red, green, blue), under, strict=True)
    )


def contrast(one, two):
    """Of WCAG 2.1, 1 to 21."""

    def luminance(color):
        parts = [c / 255 for c in color]
        parts = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
        return 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2]

    light, dark = sorted((luminance(one), luminance(two)), reverse=True)
    return (light + 0.05) / (dark + 0.05)


def emulate(page, scheme):
    features = [{"name": "prefers-color-scheme", "value": scheme}]
    page.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_contrast_and_strength_of_colours(page, scheme):
    emulate(page, scheme)
    # The colours behind each text, from the page's on.
    found = ask(
        page,
        """[...document.querySelectorAll("body *")].filter(e => !e.matches("br")).map(e => {
            const layers = [];
            for (let x = e; x; x = x.parentElement)
                layers.unshift(getComputedStyle(x).backgroundColor);
            return [e.outerHTML.slice(0, 80), getComputedStyle(e).color, layers];
        })""",
    )
    paper = blend(ask(page, "getComputedStyle(document.body).backgroundColor"), (0, 0, 0))
    assert (sum(paper) < 200) == (scheme == "dark")
    seen = set()
    for where, color, layers in found:
        under = (0, 0, 0)
        for layer in layers:
            under = blend(layer, under)
        assert contrast(blend(color, under), under) >= 4.5, where
        seen.add(under)
    assert len(seen) > 20

    for number, reading in enumerate(READINGS):
        colors = ask(
            page,
            """[...document.querySelectorAll("article")[arguments[0]].querySelectorAll("li")].map(
                item => [...item.querySelectorAll("mark")].map(
                    mark => getComputedStyle(mark).backgroundColor))""",
            number,
        )
        for row, sentence in zip(colors, reading.sentences, strict=True):
            away = [
                sum(abs(c - p) for c, p in zip(blend(x, paper), paper, strict=True)) for x in row
            ]
            pairs = zip(sentence.weights, away, strict=True)
            for (a, far), (b, farther) in itertools.pairwise(sorted(pairs)):
                assert far <= farther
                if b > a + 0.1 and sentence.weight == max(s.weight for s in reading.sentences):
                    assert far < farther
    bars = ask(
        page,
        """[...document.querySelectorAll("article:first-of-type .bar")].map(
            e => parseFloat(getComputedStyle(e).backgroundSize))""",
    )
    shares = [sentence.weight for sentence in REVIEW.sentences]
    assert bars == pytest.approx([100 * share / max(shares) for share in shares], abs=0.1)


@pytest.mark.parametrize("wide", [400, 1200])
def test_nothing_runs_over_the_edge(page, wide):
    page.execute_cdp_cmd(
        "Emulation.setDeviceMetricsOverride",
        {"width": wide, "height": 900, "deviceScaleFactor": 1, "mobile": False},
    )
    assert ask(page, "innerWidth") == wide
    assert ask(page, "document.documentElement.scrollWidth") <= wide
    boxes = ask(
        page,
        """[...document.querySelectorAll("body, body *")].filter(e => e.getClientRects().length)
            .map(e => [e.getBoundingClientRect().left, e.getBoundingClientRect().right])""",
    )
    assert all(0 <= left <= right <= wide for left, right in boxes)
    rows = ask(
        page,
        """[...document.querySelectorAll("li")].map(li => [...li.children].map(
            e => [e.getBoundingClientRect().left, e.getBoundingClientRect().right]))""",
    )
    for share, bar, text in rows:
        assert share[1] < bar[0] < bar[1] < text[0]
        assert text[1] - text[0] > wide / 2


def test_text_from_right_to_left(page):
    directions, boxes = ask(
        page,
        """[[...document.querySelectorAll("li p")].slice(0, 4).map(
                p => getComputedStyle(p).direction),
            [...document.querySelectorAll("#d2 mark")].map(
                mark => [mark.textContent, mark.getBoundingClientRect().left])]""",
    )
    assert directions == ["ltr"] * 3 + ["rtl"]
    words = HEBREW.sentences[0].words
    assert [word for word, _ in boxes] == words
    left = dict(boxes)
    assert left["הסרט"] > left["הזה"] > left["נפלא"] > left["Ferry"] > left["Midnight"]
    assert left["Midnight"] > left["טובים"] > left["."]
