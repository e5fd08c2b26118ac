"""Writes a page for every public name, before the pages are read."""

import collections
import importlib
import inspect
import pathlib
import re

from docstrings import marked, public_names

# The parts of the reference, in its order, and what is said of each. None stands for the docstring
# of the module.
PARTS = {
    "layers": "Attention layers.",
    "attention": "The protocol of an attention: base classes, and the tuples that they exchange.",
    "decoder": "Attention inside a recurrence.",
    "seq2seq": "Sequence to sequence: the model, its encoder and its heads.",
    "text": "Tokenizers: texts to ids and back.",
    "search": None,
    "ops": "The equations as functions.",
    "alignment": "Losses that teach alignments, and durations.",
    "bags": "Losses of bags: instances and survival.",
    "plotting": "Pictures and pages of weights.",
    "faithfulness": "Whether weights are reasons.",
    "tuning": "Searches for hyperparameters with keras-tuner.",
    "distribution": "Several devices.",
}
Fields = collections.namedtuple("Fields", "field")
# Bases whose members are shown with a class of ours.
ENDS = "Layer, Model, Callback, HyperModel, tuple, object"


def setup(app):
    app.connect("builder-inited", write)
    app.connect("autodoc-skip-member", skip)
    return {"parallel_read_safe": True}


def skip(app, what, name, thing, skipped, options):
    """Leaves out what Keras documents, and fields of tuples, which a class lists."""
    if isinstance(thing, type(Fields.field)):
        return True
    function = inspect.unwrap(getattr(thing, "fget", None) or thing)
    module = getattr(function, "__module__", None) or ""
    return True if module.split(".")[0] == "keras" else None


def write(app):
    folder = pathlib.Path(app.srcdir) / "api"
    names = public_names("keras_attention")
    mechanisms = pages_of_mechanisms(folder.parent / "mechanisms")
    listed = {part: [] for part in PARTS}
    for name, path in names.items():
        listed[part_of(path)].append(path)
        _update(folder / f"{path}.rst", page(name, path, mechanisms.get(path)))
    wanted = {f"{path}.rst" for path in names.values()} | {"index.rst"}
    for old in folder.glob("*.rst"):
        if old.name not in wanted:
            old.unlink()
    _update(folder / "index.rst", index(listed))


def part_of(path):
    """The part of the reference that a name belongs to: the longest that its module begins with."""
    module, _, name = path.rpartition(".")
    thing = getattr(importlib.import_module(module), name)
    # What no part holds, such as `compiling`, belongs to the part that exports it.
    for own in (getattr(thing, "__module__", module), module):
        parts = [part for part in PARTS if f"{own}.".startswith(f"keras_attention.{part}.")]
        if parts:
            return max(parts, key=len)
    raise LookupError(f"No part of the reference holds {path}.")


def pages_of_mechanisms(folder):
    """From public names to the pages that end with them, beside equations and figures."""
    found = {}
    for file in sorted(folder.glob("*.md")):
        ending = file.read_text("utf-8").partition("API: ")[2]
        found |= dict.fromkeys(re.findall(r"`([\w.]+)`", ending), file.stem)
    return found


def page(name, path, mechanism):
    module, _, _ = path.rpartition(".")
    thing = getattr(importlib.import_module(module), name)
    lines = [name, "=" * len(name), "", f".. currentmodule:: {module}", ""]
    if mechanism:
        text = "Equations, which task it suits, and figures"
        lines += [f":doc:`{text} </mechanisms/{mechanism}>`", ""]
    if inspect.isclass(thing):
        lines += [f".. autoclass:: {name}", "   :members:", f"   :inherited-members: {ENDS}"]
    elif callable(thing):
        lines += [f".. autofunction:: {name}"]
    else:
        lines += [f".. autodata:: {name}"]
    return "\n".join([*lines, ""])


def index(listed):
    lines = ["API reference", "=============", ""]
    for part, paths in listed.items():
        title = f"``keras_attention.{part}``"
        lines += [title, "-" * len(title), ""]
        lines += [PARTS[part] or f".. automodule:: keras_attention.{part}", ""]
        lines += [".. list-table::", "   :widths: 30 70", ""]
        paths = sorted(paths, key=str.lower)
        for path in paths:
            lines += [
                f"   * - :py:obj:`{path.rpartition('.')[2]} <{path}>`",
                f"     - {summary(path)}",
            ]
        lines += ["", ".. toctree::", "   :hidden:", "", *(f"   {path}" for path in paths), ""]
    return "\n".join(lines)


def summary(path):
    """The first sentence of a docstring."""
    module, _, name = path.rpartition(".")
    text = inspect.getdoc(getattr(importlib.import_module(module), name)) or ""
    first = " ".join(text.split("\n\n")[0].split())
    first = re.split(r"(?<=[.:]) (?=[A-Z])", first)[0].rstrip(":")
    return marked(first, {})


def _update(path, text):
    """Writes a page if it has changed, so that Sphinx reads only what is new."""
    path.parent.mkdir(exist_ok=True)
    if not path.exists() or path.read_text("utf-8") != text:
        path.write_text(text, "utf-8")
