"""The figures of the pages against the results, and against the file of headline figures."""

import re
import tomllib

import pytest

from tests import ROOT

RESULTS = ROOT / "docs" / "results"
HEADLINES = tomllib.loads((RESULTS / "headlines.toml").read_text("utf-8"))
FIGURES = [(place, figure) for place, figures in HEADLINES.items() for figure in figures]
PAGES = ["README.md", "examples/README.md"]
PAGES += [str(path.relative_to(ROOT)) for path in sorted(ROOT.glob("docs/**/*.md"))]
# Pages whose every percentage and score must lead to its result.
OVERVIEWS = "README.md", "docs/mechanisms/index.md", "docs/results/index.md"

NUMBER = r"(?<![\w.#-])\d+(?:\.\d+)?"
SHOWN = re.compile(r"(?<![\w.#-])(?:\d+\.\d+|\d+(?=%))")
LINK = re.compile(r"\[([^\]]*)\]\(([^)\s]*)\)")


def read(path):
    """A page, with the tables that it includes."""

    def table(match):
        return (path.parent / match[1]).read_text("utf-8")

    text = path.read_text("utf-8")
    return re.sub(r"^```\{literalinclude\} (\S+)\n.*?^```", table, text, flags=re.DOTALL | re.M)


def section(place):
    """The text of a page of results, or of a section of it and the sections below."""
    page, _, anchor = place.partition("#")
    text = read(RESULTS / page)
    if not anchor:
        return text
    headings = list(re.finditer(r"^(#+) (.*)$", text, re.MULTILINE))
    (n,) = [n for n, heading in enumerate(headings) if slug(heading[2]) == anchor]
    after = [x.start() for x in headings[n + 1 :] if len(x[1]) <= len(headings[n][1])]
    return text[headings[n].start() : (after or [len(text)])[0]]


def slug(heading):
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def statements(page):
    """Paragraphs, items of lists and rows of tables, with the results that they link to.

    The headline figures are the texts of some of these links.
    """
    text = re.sub(r"^```.*?^```", "", (ROOT / page).read_text("utf-8"), flags=re.DOTALL | re.M)
    for statement in re.split(r"\n\s*\n|\n(?=\s*(?:[-*]|\d\.) |\|)", text):
        links = [(shown, place(page, target)) for shown, target in LINK.findall(statement)]
        yield LINK.sub(r"\1", statement), [link for link in links if link[1]]


def place(page, target):
    """The result that a link leads to, as `headlines.toml` writes it, or None."""
    path, _, anchor = target.partition("#")
    path = ((ROOT / page).parent / path).resolve()
    if path.parent != RESULTS or path.name == "index.md" or not path.is_file():
        return None
    return path.name + (anchor and f"#{anchor}")


def stands(number, text):
    """Whether a number is the rounding of one in the text, which may have a share for a percent."""
    half = 0.5 * 10.0 ** -len(number.partition(".")[2]) + 1e-9
    found = [float(x) for x in re.findall(NUMBER, text)]
    return any(abs(y - float(number)) <= half for x in found for y in (x, 100 * x))


@pytest.mark.parametrize(("place", "figure"), FIGURES)
def test_a_headline_figure_stands_in_its_section(place, figure):
    proofs = HEADLINES[place][figure]
    proofs = [proofs] if isinstance(proofs, str) else proofs
    assert [x for x in proofs if x not in section(place)] == []
    assert [x for x in re.findall(NUMBER, figure) if not stands(x, "\n".join(proofs))] == []


def test_every_headline_figure_is_shown():
    shown = {(to, text) for page in PAGES for _, links in statements(page) for text, to in links}
    assert set(FIGURES) - shown == set()


@pytest.mark.parametrize("path", sorted(RESULTS.glob("*.md")), ids=lambda path: path.stem)
def test_a_table_stands_before_the_command_that_printed_it(path):
    """Commands, commits and machines are folded away below it."""
    text = path.read_text("utf-8")
    assert text.count("<details>\n<summary>") == text.count("\n\n</details>\n")
    text = re.sub(r"^<details>.*?^</details>", "", text, flags=re.DOTALL | re.M)
    parts = re.split(
        r"^#+ ",
        re.sub(r"^```python.*?^```\n\n```text", "", text, flags=re.DOTALL | re.M),
        flags=re.M,
    )
    wrong = r"^```sh\n.*(^\||^```text|^```\{literalinclude\} tables)"
    assert [x[:60] for x in parts if re.search(wrong, x, re.DOTALL | re.M)] == []


@pytest.mark.parametrize("page", PAGES)
def test_a_page_shows_the_headline_figures_of_the_file(page):
    """In the texts of its links, and in every statement beside a link."""
    for statement, links in statements(page):
        for text, to in links:
            assert text in HEADLINES.get(to, {}) or not re.search(NUMBER, text), (text, to)
        known = {figure for _, to in links for figure in HEADLINES.get(to, {})}
        for figure in known:
            form = NUMBER.join(map(re.escape, re.split(NUMBER, figure)))
            assert set(re.findall(form, statement)) <= known, statement


@pytest.mark.parametrize("page", PAGES)
def test_a_figure_stands_in_the_results_that_its_statement_links_to(page):
    for statement, links in statements(page):
        text = "\n".join(section(to) for _, to in links)
        wrong = [x for x in SHOWN.findall(statement) if links and not stands(x, text)]
        assert wrong == [], statement


@pytest.mark.parametrize("page", OVERVIEWS)
def test_every_figure_of_an_overview_has_its_result(page):
    figures = re.compile(rf"{NUMBER}%|(?:BLEU|F1) {NUMBER}")
    assert [x for x, links in statements(page) if figures.search(x) and not links] == []
