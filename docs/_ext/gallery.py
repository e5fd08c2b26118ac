"""The gallery of short scripts: its pictures, its order, and a clean state for each script."""

import gc
import os
import pathlib
import re
import weakref

import keras
from matplotlib import pyplot
from matplotlib.figure import Figure
from sphinx_gallery import notebook
from sphinx_gallery.scrapers import figure_rst

ROOT = pathlib.Path(__file__).parents[2]
SHOWN = weakref.WeakSet()

# Scripts start processes that import the package, and open no window.
os.environ["PYTHONPATH"] = os.pathsep.join(filter(None, [str(ROOT), os.getenv("PYTHONPATH")]))
os.environ["MPLBACKEND"] = "Agg"
to_markdown = notebook.rst2md


def text_of_notebook(source, *args, **kwargs):
    """Turns links to pages of the site into code, because a notebook has no such pages."""
    return to_markdown(re.sub(r":py:obj:(`[^`]+`)", r"\1", source), *args, **kwargs)


notebook.rst2md = text_of_notebook  # sphinx-gallery has no option for it


def scrape(block, block_vars, gallery_conf):
    """Saves the new figures among the variables of a script.

    The scraper of sphinx-gallery finds only figures of pyplot. `keras_attention.plotting` makes
    figures without it.
    """
    paths = []
    for figure in list(block_vars["example_globals"].values()):
        if isinstance(figure, Figure) and figure not in SHOWN:
            SHOWN.add(figure)
            paths.append(next(block_vars["image_path_iterator"]))
            figure.savefig(paths[-1], bbox_inches="tight")
    return figure_rst(paths, gallery_conf["src_dir"])


def reset(gallery_conf, fname):
    """Frees the models and figures of the script before."""
    pyplot.close("all")
    keras.utils.clear_session()
    gc.collect()


def order(filename):
    """Sorts scripts as the table in `examples/README.md` does."""
    table = (ROOT / "examples" / "README.md").read_text("utf-8")
    scripts = re.findall(r"^\| `python examples/(\w+\.py)` ", table, re.MULTILINE)
    return scripts.index(pathlib.Path(filename).name)
