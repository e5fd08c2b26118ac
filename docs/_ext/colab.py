"""Links the page of each short script to its notebook in Colab."""

import pathlib
import re
import tomllib

ROOT = pathlib.Path(__file__).parents[2]
# The workflow `docs` pushes the notebooks to a branch of this name: Colab opens them from GitHub.
BRANCH = "notebooks"
TITLE = re.compile(r"^.+\n=+\n", re.MULTILINE)


def setup(app):
    app.connect("source-read", add_link)
    return {"parallel_read_safe": True}


def add_link(app, page, content):
    """Puts the link below the title."""
    folder, _, name = page.rpartition("/")
    if folder == "examples" and (ROOT / "examples" / f"{name}.py").exists():
        text = f"`Open in Colab <{address(name)}>`__"
        content[0] = TITLE.sub(lambda title: f"{title[0]}\n{text}\n", content[0], count=1)


def address(name):
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    path = project["urls"]["Source"].removeprefix("https://github.com/")
    return f"https://colab.research.google.com/github/{path}/blob/{BRANCH}/{name}.ipynb"
