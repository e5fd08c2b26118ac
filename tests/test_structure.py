"""The layout of the package: what is public, which way imports point, where backends differ."""

import ast
import difflib
import graphlib
import importlib
import sys

import pytest

from tests import ROOT, fast, imports_of
from tests.backends import on_tensorflow

MODULES = {
    ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path
    for path in sorted((ROOT / "keras_attention").rglob("*.py"))
}
# What a part may import, beside itself.
BASE = {"_spec", "_typing", "backend"}
LAYERS = {*BASE, "ops", "recurrence", "attention"}
MODELS = {*BASE, "ops", "attention", "layers", "decoder", "search"}
BELOW = {
    "__main__": {None, "_demo"}, "_demo": {"seq2seq"},
    "_typing": set(), "_version": set(), "_spec": {"_typing"}, "ops": BASE,
    "backend": {"_spec", "_typing"}, "distribution": {"_spec", "_typing"},
    "text": {"_spec", "_typing"},
    "alignment": {*BASE, "ops"}, "bags": {*BASE, "ops"},
    "faithfulness": {*BASE, "ops"}, "recurrence": {*BASE, "ops"},
    "attention": LAYERS, "layers": LAYERS, "decoder": LAYERS,
    "search": {*BASE, "ops", "attention"}, "seq2seq": {*MODELS, "text"},
    "plotting": {*MODELS, "seq2seq"}, "tuning": {*MODELS, "seq2seq"},
}  # fmt: skip
every_module = pytest.mark.parametrize("name", MODULES)
BACKENDS = "tensorflow", "jax", "torch"
HOME = "keras_attention.backend"
# Modules that ask which backend runs, or import one: features of TensorFlow and a printed version.
EXCEPTIONS = "seq2seq._export", "seq2seq._text_data", "text._tensorflow"
EXCEPTIONS += "plotting.callback", "distribution", "__main__"


def ours_in(name):
    return [x for x, _ in imports_of(MODULES[name]) if x.split(".")[0] == "keras_attention"]


@every_module
def test_what_a_module_exports_and_imports(name):
    """The operations of Keras round float64 on JAX and PyTorch."""
    path, home = MODULES[name], name.startswith(HOME)
    source = path.read_text(encoding="utf-8")
    assigned = [x for x in ast.parse(source).body if isinstance(x, ast.Assign)]
    names = [ast.unparse(target) for node in assigned for target in node.targets]
    private = name.rsplit(".", 1)[-1].startswith("_") or home
    private = private and name not in [f"{HOME}.{backend}" for backend in BACKENDS]
    assert ("__all__" in names) != private
    assert ("keras", "ops") not in imports_of(path)
    assert "keras.src" not in source
    part = name.split(".")[1] if "." in name else None
    for imported in ours_in(name):
        target = imported.split(".")[1] if "." in imported else None
        assert part is None or target == part or target in BELOW[part], imported
        # Private modules are imported in their folder only; what lies at the top serves all.
        if imported.rsplit(".", 1)[-1].startswith("_") and imported.count(".") > 1:
            assert MODULES[imported].parent == path.parent, imported
    if name != HOME and name.partition(".")[2] not in EXCEPTIONS:
        own = {name.rpartition(".")[2]} & {*BACKENDS} if name.startswith(f"{HOME}.") else set()
        assert {x.split(".")[0] for x, _ in imports_of(path)} & {*BACKENDS} == own
        assert home or "backend.backend()" not in source


@every_module
def test_public_names_exist(name):
    if name.startswith(f"{HOME}."):
        return  # a backend that is not in use may not be installed
    module = importlib.import_module(name)
    names = getattr(module, "__all__", [])
    # The names at the top are those of the folders.
    in_order = sorted(set(names), key=lambda name: (not name.isupper(), name))
    assert len(names) == len(in_order)
    assert name == "keras_attention" or names == in_order
    assert all(hasattr(module, x) for x in names)


def test_no_module_imports_itself_through_others():
    edges = {name: set(ours_in(name)) & set(MODULES) for name in MODULES}
    edges["keras_attention"] -= {"keras_attention"}  # `from keras_attention import layers`
    graphlib.TopologicalSorter(edges).prepare()  # raises a `CycleError`


def interface(name):
    found = {}
    for node in ast.parse(MODULES[f"{HOME}.{name}"].read_text(encoding="utf-8")).body:
        if isinstance(node, ast.FunctionDef):
            found[node.name] = f"({ast.unparse(node.args)}) -> {ast.unparse(node.returns or node)}"
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            target = node.target if isinstance(node, ast.AnnAssign) else node.targets[0]
            found[ast.unparse(target)] = "constant"
    return {name: what for name, what in found.items() if not name.startswith("_")}


@pytest.mark.parametrize("name", BACKENDS)
def test_backends_have_and_export_the_same_names_and_signatures(name):
    assert interface(name) == interface("tensorflow")
    source = MODULES[f"{HOME}.{name}"].read_text(encoding="utf-8")
    lists = [x.value for x in ast.parse(source).body if "__all__" in ast.unparse(x)]
    exported = [one for names in lists for one in ast.literal_eval(names)]
    assert sorted(exported) == sorted(interface(name).keys() - {"__all__"})


sys.path.append(str(ROOT / "benchmarks"))
inside = importlib.import_module("inside")

# Functions of ours, their calls and files; `python benchmarks/inside.py` prints them.
PROGRAMS = {
    "eager layer": (36, 63, 10),
    "eager step": (45, 64, 14),
    "traced training step": (215, 1005, 21),
}
SOURCE = {
    "lines of code": 10200,  # texts, images and bags came after 9,900
    "share of checks, %": 10.0,
    "modules of which more than 60% is checks": 2,
    "context variables": 1,
    "imports of private modules of another folder": 0,
    "names exported at the top": 30,
    "classes from keras.Layer to LocationSensitiveAttention": 4,
}
SPARE = 1.1


@on_tensorflow
@pytest.mark.parametrize("name", fast(PROGRAMS, ["eager layer", "eager step"]))
def test_a_program_passes_few_functions(name):
    found = inside.functions_in(inside.PROGRAMS[name]())
    counts = len(found), found.total(), len({file for file, *_ in found})
    assert all(0 < n <= SPARE * most for n, most in zip(counts, PROGRAMS[name], strict=True))


def test_the_source_stays_small():
    found = inside.of_the_source()
    assert found.keys() == SOURCE.keys()
    assert {name: n for name, n in found.items() if n > SPARE * SOURCE[name]} == {}


def test_what_is_written_down_stays_public():
    """A new name may wait for the release, which writes the file again."""
    pytest.importorskip("matplotlib", reason="plotting needs matplotlib")
    from tests.public_api import FILE, entries, text

    written, found = (entries(x) for x in (FILE.read_text("utf-8"), text()))
    found = {name: members for name, members in found.items() if name in written}
    before, after = (
        [line for name, members in sorted(x.items()) for line in (name, *members)]
        for x in (written, found)
    )
    difference = difflib.unified_diff(before, after, "public_api.txt", "package")
    assert "\n".join(difference) == "", "if this is on purpose: python -m tests.public_api"
