"""Shows records of runs, `docs/results/records/NAME.toml`, and their figures in sentences.

The directive `record` takes a NAME, and shows the figures and the tables, and how they were
measured. The role `record` takes a NAME and a field, and stands for a headline or a figure:

    {record}`musk right`    {record}`digits-bags bags[gated][AUC]`    {record}`squad F1:.1f`

A field is one of `str.format`. A row of a table is named by its first cells, joined by commas.
CONTRIBUTING.md describes the files.
"""

import pathlib
import tomllib
from decimal import Decimal

from docutils import nodes
from sphinx.util.docutils import SphinxDirective, SphinxRole

FOLDER = pathlib.Path(__file__).parents[1] / "results" / "records"
KEYS = ("command", "commit", "date", "machine", "versions", "seeds", "minutes", "note")
LONGEST = 45  # rows of a table that is not folded


class RecordError(ValueError):
    """Stops a build with -W, at the line that shows the record."""


def load(name):
    """The content of a record. Its numbers keep their digits."""
    path, record = FOLDER / f"{name}.toml", {"figures": {}, "headlines": {}, "tables": {}}
    try:
        content = tomllib.loads(path.read_text("utf-8"), parse_float=Decimal)
    except (OSError, ValueError) as error:
        raise RecordError(f"{path.name}: {error}") from error
    wrong = [f"unknown key {key}" for key in content if key not in (*KEYS, *record)]
    if not content.get("figures") and not content.get("tables"):
        wrong.append("neither figures nor tables")
    for key, rows in content.get("tables", {}).items():
        if any(len(row) != len(rows[0]) for row in rows):
            wrong.append(f"rows of the table {key} differ in length from its header")
    if wrong:
        raise RecordError(f"{path.name}: {'; '.join(wrong)}")
    return record | content


def figure(name, field):
    """The text of a headline or of a figure of a record."""
    record = load(name)
    form = record["headlines"].get(field, f"{{{field}}}")
    names = record["figures"] | {key: named(rows) for key, rows in record["tables"].items()}
    try:
        return form.format_map(names)
    except (KeyError, ValueError) as error:
        raise RecordError(f"{name}.toml: cannot find or write {form}: {error!r}") from error


def headlines(name):
    return [figure(name, field) for field in load(name)["headlines"]]


def named(rows):
    """The rows of a table by as many of their first cells as tell them apart."""
    header, *rows = rows
    # `str.format` takes keys of digits for integers.
    header = [int(x) if isinstance(x, str) and x.isdecimal() else x for x in header]
    found = {}
    for row in rows:
        for n in range(1, len(row)):
            key = ", ".join(str(x).replace("`", "") for x in row[:n])
            found.setdefault(key, []).append(dict(zip(header, row, strict=True)))
    return {key: rows[0] for key, rows in found.items() if len(rows) == 1}


def to_markdown(record):
    """Figures and tables, and below them, folded away, how they were measured."""
    figures = {"figures": [["figure", ""], *record["figures"].items()]}
    tables, lines = {**(figures if record["figures"] else {}), **record["tables"]}, []
    for title, rows in tables.items():
        title = title[0].upper() + title[1:]
        grid = [[str(x).replace("|", "\\|") for x in row] for row in rows]
        grid.insert(1, ["---"] * len(grid[0]))
        shown = ["| " + " | ".join(row) + " |" for row in grid]
        if len(rows) > LONGEST:
            shown = folded(f"{title}, {len(rows) - 1} rows", shown)
        elif len(tables) > 1:
            shown = [f"{title}:", "", *shown]
        lines += [*shown, ""]
    texts = {key: record[key] for key in KEYS if key in record}
    command = ["```sh", texts.pop("command").strip(), "```", ""] if "command" in texts else []
    if "versions" in texts:
        texts["versions"] = ", ".join(map(" ".join, texts["versions"].items()))
    if "seeds" in texts:
        texts["seeds"] = ", ".join(map(str, texts["seeds"]))
    run = [f"- {key}: {text}" for key, text in texts.items()]
    return "\n".join([*lines, *folded("Command, commit and machine", [*command, *run])])


def folded(title, lines):
    return ["<details>", f"<summary>{title}</summary>", "", *lines, "", "</details>", ""]


class RecordDirective(SphinxDirective):
    required_arguments = 1

    def run(self):
        self.env.note_dependency(str(FOLDER / f"{self.arguments[0]}.toml"))
        try:
            return self.parse_text_to_nodes(to_markdown(load(self.arguments[0])))
        except RecordError as error:
            raise self.error(str(error)) from error


class RecordRole(SphinxRole):
    def run(self):
        name, _, field = self.text.partition(" ")
        self.env.note_dependency(str(FOLDER / f"{name}.toml"))
        try:
            return [nodes.Text(figure(name, field))], []
        except RecordError as error:
            return [], [self.inliner.reporter.error(str(error), line=self.lineno)]


def setup(app):
    app.add_directive("record", RecordDirective)
    app.add_role("record", RecordRole())
    return {"parallel_read_safe": True}
