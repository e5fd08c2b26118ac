"""The figures of the pages against the records of the results, and records that are written."""

import argparse
import datetime
import importlib
import re
import sys
import tomllib

import numpy as np
import pytest

from examples.common.records import add_record, write_record
from tests import ROOT

sys.path.append(str(ROOT / "docs" / "_ext"))
records = importlib.import_module("records")

RESULTS = ROOT / "docs" / "results"
RECORDS = sorted(path.stem for path in records.FOLDER.glob("*.toml"))
# GitHub shows these, without the role `record`.
PLAIN = "README.md", "examples/README.md"
PAGES = [*PLAIN, *(str(path.relative_to(ROOT)) for path in sorted(ROOT.glob("docs/**/*.md")))]
# Pages whose every percentage and score must lead to its result.
OVERVIEWS = "README.md", "docs/mechanisms/index.md", "docs/results/index.md"

NUMBER = r"(?<![\w.#-])\d+(?:\.\d+)?"
FIGURE = re.compile(r"(?<![\w.#-])(?:\d+\.\d+|\d+(?=%))")
LINK = re.compile(r"\[((?:\{record\}`[^`]*`|[^\]])*)\]\(([^)\s]*)\)")
ROLE = re.compile(r"\{record\}`(\S+) ([^`]+)`")
DIRECTIVE = re.compile(r"^```\{record\} (\S+)$", re.MULTILINE)


def read(page):
    return (ROOT / page).read_text("utf-8")


def with_figures(text):
    return ROLE.sub(lambda role: records.figure(role[1], role[2]), text)


def section(place):
    """The text of a page of results, or of a section of it and the sections below."""
    page, _, anchor = place.partition("#")
    text = (RESULTS / page).read_text("utf-8")
    if not anchor:
        return text
    headings = list(re.finditer(r"^(#+) (.*)$", text, re.MULTILINE))
    (n,) = [n for n, heading in enumerate(headings) if slug(heading[2]) == anchor]
    after = [x.start() for x in headings[n + 1 :] if len(x[1]) <= len(headings[n][1])]
    return text[headings[n].start() : (after or [len(text)])[0]]


def slug(heading):
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def proof(place):
    text = section(place)
    shown = [records.to_markdown(records.load(name)) for name in DIRECTIVE.findall(text)]
    return "\n".join([with_figures(text), *shown])


def headlines(place):
    return {x for name in DIRECTIVE.findall(section(place)) for x in records.headlines(name)}


def statements(page):
    """Paragraphs, items of lists and rows of tables, with the results that they link to."""
    text = re.sub(r"^```.*?^```", "", read(page), flags=re.DOTALL | re.MULTILINE)
    for statement in re.split(r"\n\s*\n|\n(?=\s*(?:[-*]|\d\.) |\|)", text):
        links = [(shown, place(page, target)) for shown, target in LINK.findall(statement)]
        shown = with_figures(LINK.sub(r"\1", statement))
        yield shown, [link for link in links if link[1]]


def place(page, target):
    """The page and the anchor of the result that a link leads to, or None."""
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


def test_every_record_and_every_headline_is_shown():
    text = "\n".join(map(read, PAGES))
    assert sorted(DIRECTIVE.findall(text)) == RECORDS
    shown = {with_figures(x) for page in PAGES for _, links in statements(page) for x, _ in links}
    shown |= {records.figure(*role) for role in ROLE.findall(text)}
    assert {x for name in RECORDS for x in records.headlines(name)} <= shown


@pytest.mark.parametrize("page", PAGES)
def test_a_figure_is_a_headline_of_its_link_and_stands_in_the_results_there(page):
    for statement, links in statements(page):
        for text, to in links:
            if re.search(NUMBER, with_figures(text)):
                assert with_figures(text) in headlines(to), (text, to)
                assert page in PLAIN or ROLE.fullmatch(text), f"{text}: use the role `record`"
        text = "\n".join(proof(to) for _, to in links)
        wrong = [x for x in FIGURE.findall(statement) if links and not stands(x, text)]
        assert wrong == [], statement


def test_every_figure_of_an_overview_has_its_result():
    figures = re.compile(rf"{NUMBER}%|(?:BLEU|F1) {NUMBER}")
    found = (statement for page in OVERVIEWS for statement in statements(page))
    assert [x for x, links in found if figures.search(x) and not links] == []


def test_a_broken_record_says_what_is_wrong(tmp_path, monkeypatch):
    monkeypatch.setattr(records, "FOLDER", tmp_path)
    for text, problem in (
        ("[figures]\nx = ", "broken.toml: Invalid value"),
        ("comand = 'x'\n[figures]\nx = 1", "broken.toml: unknown key comand"),
        ("command = 'x'", "broken.toml: neither figures nor tables"),
        ("[tables]\nt = [['a', 'b'], [1]]", "rows of the table t differ in length"),
        ("[figures]\nx = 1", "broken.toml: cannot find or write {y}: KeyError"),
    ):
        (tmp_path / "broken.toml").write_text(text)
        with pytest.raises(records.RecordError, match=re.escape(problem)):
            records.figure("broken", "y")


OLD = """
[figures]
gone = 1

[headlines]
right = "{scores, right:.1f}% of {n}, {table[a, b][x]}"
"""


def test_a_record_is_read_by_the_site_and_keeps_its_headlines(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "docs" / "_ext"))
    records = importlib.import_module("records")
    monkeypatch.setattr(records, "FOLDER", tmp_path)
    monkeypatch.setattr(sys, "orig_argv", ["/bin/python3", "-m", "examples.x", "--output", "a b"])
    monkeypatch.setenv("KERAS_BACKEND", "jax")
    path = tmp_path / "run.toml"
    path.write_text(OLD, "utf-8")
    scores = {"right": np.float32(75.25), "all": [1], "keras": "0"}
    figures = {"n": 4, "scores": scores, "unknown": None}
    table = [["", "", "x"], ["a", "b", "0.50"], ["a", "±", "1e-07"]]
    write_record(path, {**figures, "command": "twice"}, {"table": table}, seeds=[1, 2])
    assert [file.name for file in tmp_path.iterdir()] == ["run.toml"]
    assert records.headlines("run") == ["75.2% of 4, 0.50"]
    found = tomllib.loads(path.read_text("utf-8"))
    assert found["figures"] == {"n": 4, "scores, right": 75.25}
    assert found["tables"]["table"] == [["", "", "x"], ["a", "b", 0.5], ["a", "±", "1e-07"]]
    assert found["command"] == "KERAS_BACKEND=jax python -m examples.x --output 'a b'"
    assert found["date"] == datetime.date.today()
    assert found["seeds"] == [1, 2]
    assert {"python", "keras"} <= found["versions"].keys()
    assert "cores" in found["machine"]


def test_nothing_is_written_without_the_option_or_with_an_infinite_figure(tmp_path, capsys):
    parser = argparse.ArgumentParser()
    add_record(parser)
    write_record(parser.parse_args([]).record, {"x": 1})
    path = parser.parse_args(["--record", str(tmp_path / "x.toml")]).record
    with pytest.raises(ValueError, match="not JSON compliant"):
        write_record(path, {"x": float("nan")})
    assert list(tmp_path.iterdir()) == []
    with pytest.raises(SystemExit):
        parser.parse_args(["--record", str(tmp_path / "missing" / "x.toml")])
    assert f"the folder {tmp_path / 'missing'} does not exist" in capsys.readouterr().err
