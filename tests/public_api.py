"""Writes down what is public, after a change and before a release: python -m tests.public_api.

`docs/policy.md` says what users may rely on. `public_api.txt` lists it: every public name with its
arguments and the members of its own, and the names of the weights of every layer.
"""

import importlib
import inspect
import re
import sys

from tests import ROOT
from tests.conformance.layers import CASES

sys.path.append(str(ROOT / "docs" / "_ext"))
docstrings = importlib.import_module("docstrings")

# Members that Keras calls.
FOR_KERAS = re.compile(r"build|compute_\w+|\w+_config")
FILE = ROOT / "tests" / "public_api.txt"
PARTS = ["keras_attention", *(f"keras_attention.{part}" for part in docstrings.PUBLIC)]


def public_things():
    modules = [importlib.import_module(part) for part in PARTS]
    return {f"{m.__name__}.{name}": getattr(m, name) for m in modules for name in m.__all__}


def arguments(function):
    """The arguments of a function and their defaults. Annotations may change, and are left out."""
    found, kept = inspect.signature(function), []
    for x in found.parameters.values():
        if x.default is not x.empty:
            x = x.replace(default=getattr(x.default, "__name__", x.default))
        if x.name not in ("self", "_cls"):
            kept.append(x.replace(annotation=x.empty))
    return str(found.replace(parameters=kept, return_annotation=found.empty))


def members(cls, public):
    """Lists the members of a class, except what a public base class defines."""
    bases = [x for x in cls.__mro__ if x.__module__.startswith("keras_attention")]
    inherited = {name for x in bases if x is not cls and x in public for name in dir(x)}
    found = {}
    for base in reversed(bases):
        own = base is cls or base not in public
        found |= {name: x for name, x in vars(base).items() if own or name in found}
    for name, member in sorted(found.items()):
        if name.startswith("_") or FOR_KERAS.fullmatch(name):
            continue
        if name in inherited and name not in vars(cls):
            continue
        if isinstance(member, property):
            yield f"    .{name}"
        elif inspect.isroutine(member):
            yield f"    .{name}{arguments(inspect.unwrap(getattr(cls, name)))}"


def lines():
    things = public_things()
    public = {x for x in things.values() if inspect.isclass(x)}
    seen = {}
    for path, thing in things.items():
        if (first := seen.setdefault(id(thing), path)) != path:
            yield f"{path} = {first}"
        elif not inspect.isclass(thing):
            yield path + (arguments(inspect.unwrap(thing)) if callable(thing) else "")
        else:
            yield path + arguments(thing.__new__ if issubclass(thing, tuple) else thing.__init__)
            yield from members(thing, public)
    yield "\nWeights"
    for name, case in CASES.items():
        if case.duties:
            paths = [re.sub(r"_\d+/", "/", weight.path) for weight in case.built().weights]
            yield "\n    ".join([f"{case.layer.__name__}, {name}:", *paths])


def text():
    return "\n".join(lines()) + "\n"


def entries(text):
    """Splits the text into entries by their first lines, without the lines of their members."""
    found = {}
    for line in text.splitlines():
        if line and not line.startswith(" "):
            found[line] = last = []
        elif line:
            last.append(line)
    return found


if __name__ == "__main__":
    FILE.write_text(text(), "utf-8")
