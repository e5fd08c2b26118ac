"""Builds the documentation: python -m sphinx -W --keep-going -n docs build/docs."""

import pathlib
import sys

HERE = pathlib.Path(__file__).parent
sys.path[:0] = [str(HERE.parent), str(HERE / "_ext")]

import keras_attention  # noqa: E402

project = "keras_attention"
copyright = "2026, the authors of keras_attention"
version = release = keras_attention.__version__

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx_copybutton",
    "docstrings",
    "api_pages",
]
exclude_patterns = ["_ext"]

myst_enable_extensions = ["colon_fence", "attrs_inline"]
myst_heading_anchors = 3

autodoc_typehints = "none"
autodoc_member_order = "bysource"
autodoc_inherit_docstrings = False
# Type names of other packages, which no page of ours describes.
nitpick_ignore_regex = [
    ("py:.*", r"(keras|numpy|np|tensorflow|collections)\..*"),
    ("py:class", ".*"),
]

html_theme = "furo"
html_title = "keras_attention"
html_static_path = []
html_copy_source = False
