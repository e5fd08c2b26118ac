"""Builds the documentation: python -m sphinx -W --keep-going -n docs build/docs.

The build runs the short scripts of `examples/`, two at a time, unless they ran before and have not
changed. `-D plot_gallery=0` leaves them out.
`-D sphinx_gallery_conf.filename_pattern=calculator` runs one.
"""

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
    "sphinx_gallery.gen_gallery",
    "docstrings",
    "mathml",
    "api_pages",
    "scrolling",
    "colab",
    "records",
]
exclude_patterns = ["_ext"]

myst_enable_extensions = ["colon_fence", "attrs_inline", "substitution", "dollarmath"]
myst_substitutions = {"version": release}  # docs/index.md
myst_heading_anchors = 3
html_math_renderer = "mathml"

autodoc_typehints = "none"
autodoc_member_order = "bysource"
autodoc_inherit_docstrings = False
# Type names of other packages, which no page of ours describes.
nitpick_ignore_regex = [
    ("py:.*", r"(keras|numpy|np|tensorflow|collections)\..*"),
    ("py:class", ".*"),
]

# The gallery of short scripts. The folders in `examples/` are packages and not part of it, so their
# modules may have equal names.
suppress_warnings = ["sphinx_gallery.duplicate_filename"]
sphinx_gallery_conf = {
    "examples_dirs": "../examples",
    "gallery_dirs": "examples",
    "filename_pattern": r"\.py$",
    "ignore_pattern": r"(__init__|bag_tests|describe_pictures|read_numbers|search_onnx|serve_model|"
    r"train_\w+|tune_attention)\.py$",
    "within_subsection_order": "gallery.order",
    "image_scrapers": ("gallery.scrape",),
    "reset_modules": ("gallery.reset",),
    "capture_repr": (),
    "abort_on_example_error": True,
    "parallel": 2,
    "write_computation_times": False,
    "min_reported_time": 1,
    "download_all_examples": False,
    "show_signature": False,
    "first_notebook_cell": '%pip install -q "keras-attention-layers[tensorflow,plot]"\n'
    "%matplotlib inline",
    "last_notebook_cell": "figure",
}

html_theme = "furo"
html_title = f"keras_attention {release}"
html_static_path = ["_static"]
html_css_files = ["site.css"]
html_copy_source = False
