"""Links to the notebooks of the short scripts in Colab.

The page of a script gets a link below its title. In the table of `mechanisms/index`, a row gets the
notebooks of the scripts that the pages in its middle cell name.
"""

import pathlib
import re
import tomllib

ROOT = pathlib.Path(__file__).parents[2]
# The workflow `docs` pushes the notebooks to a branch of this name: Colab opens them from GitHub.
BRANCH = "notebooks"
TITLE = re.compile(r"^.+\n=+\n", re.MULTILINE)
ROW = re.compile(r"^\|[^|\n]+\|[^|\n]+(?= \|)", re.MULTILINE)
PAGE = re.compile(r"\]\(([\w./]+\.md)\)")  # a whole page, and no section of one
SCRIPT = re.compile(r"examples/(\w+)\.(?:py|rst)\b")


def setup(app):
    app.connect("source-read", add_links)
    return {"parallel_read_safe": True}


def add_links(app, page, content):
    folder, _, name = page.rpartition("/")
    if folder == "examples" and (ROOT / "examples" / f"{name}.py").exists():
        text = f"`Open in Colab <{address(name)}>`__"
        content[0] = TITLE.sub(lambda title: f"{title[0]}\n{text}\n", content[0], count=1)
    elif page == "mechanisms/index":
        content[0] = ROW.sub(lambda row: row[0] + notebooks(row[0], "docs/mechanisms"), content[0])


def notebooks(row, folder):
    """The links to the notebooks of the scripts that the pages of a row name."""
    pages = [ROOT / folder / page for page in PAGE.findall(row)]
    names = [name for page in pages for name in SCRIPT.findall(page.read_text("utf-8"))]
    return "".join(f", [notebook]({address(name)})" for name in dict.fromkeys(names))


def address(name):
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    path = project["urls"]["Source"].removeprefix("https://github.com/")
    return f"https://colab.research.google.com/github/{path}/blob/{BRANCH}/{name}.ipynb"
