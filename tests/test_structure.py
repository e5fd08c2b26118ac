"""The layout of the package: what is public, which way imports point, where backends differ."""

import ast
import graphlib
import importlib
import pathlib

import pytest

ROOT = pathlib.Path(__file__).parents[1]
FILES = sorted((ROOT / "keras_attention").rglob("*.py"))
MODULES = {
    ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path
    for path in FILES
}
# What a part may import, beside itself.
BASE = {"_spec", "_typing", "backend"}
BELOW = {
    "__main__": {None},
    "_spec": {"_typing"},
    "_typing": set(),
    "_version": set(),
    "alignment": {*BASE, "ops"},
    "backend": {"_spec", "_typing"},
    "distribution": {"_spec", "_typing"},
    "faithfulness": {*BASE, "ops"},
    "ops": BASE,
    "recurrence": {*BASE, "ops"},
    "attention": {*BASE, "ops", "recurrence"},
    "layers": {*BASE, "ops", "recurrence", "attention"},
    "decoder": {*BASE, "ops", "recurrence", "attention"},
    "search": {*BASE, "ops", "attention"},
    "text": {"_spec", "_typing"},
    "seq2seq": {*BASE, "ops", "attention", "layers", "decoder", "search", "text"},
    "plotting": {*BASE, "ops", "attention", "layers", "decoder", "search", "seq2seq"},
    "tuning": {*BASE, "ops", "attention", "layers", "decoder", "search", "seq2seq"},
}
every_module = pytest.mark.parametrize("name", MODULES)
BACKENDS = "tensorflow", "jax", "torch"
HOME = "keras_attention.backend"
# Modules that ask which backend runs, or import one: features of TensorFlow and a printed version.
EXCEPTIONS = {
    f"keras_attention.{name}"
    for name in (
        *("seq2seq._export", "seq2seq._text_data", "text._tensorflow"),
        *("plotting.callback", "distribution", "__main__"),
    )
}


def imports_of(path):
    """The modules of the package that a module imports, in functions too."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        names = [node.module] if isinstance(node, ast.ImportFrom) else []
        names += [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        yield from (name for name in names if name.split(".")[0] == "keras_attention")


@every_module
def test_a_module_is_private_or_says_what_is_public(name):
    tree = ast.parse(MODULES[name].read_text(encoding="utf-8"))
    assigned = [x for node in tree.body if isinstance(node, ast.Assign) for x in node.targets]
    names = [ast.unparse(x) for x in assigned]
    private = name.rsplit(".", 1)[-1].startswith("_") or name.startswith(HOME)
    private = private and name not in [f"{HOME}.{backend}" for backend in BACKENDS]
    assert ("__all__" in names) != private


@every_module
def test_public_names_exist(name):
    if name.startswith(f"{HOME}."):
        return  # a backend that is not in use may not be installed
    module = importlib.import_module(name)
    names = getattr(module, "__all__", [])
    # The names at the top are those of the folders.
    in_order = sorted(set(names), key=lambda name: (not name.isupper(), name))
    assert name == "keras_attention" or names == in_order
    assert len(names) == len(in_order)
    assert all(hasattr(module, x) for x in names)


@every_module
def test_imports_point_down(name):
    part = name.split(".")[1] if "." in name else None
    for imported in imports_of(MODULES[name]):
        target = imported.split(".")[1] if "." in imported else None
        assert part is None or target == part or target in BELOW[part], imported


@every_module
def test_private_modules_are_imported_in_their_folder_only(name):
    folder = MODULES[name].parent
    modules = [x for x in imports_of(MODULES[name]) if x.rsplit(".", 1)[-1].startswith("_")]
    # What lies at the top serves all folders.
    assert not [x for x in modules if x.count(".") > 1 and MODULES[x].parent != folder]


def test_no_module_imports_itself_through_others():
    edges = {name: set(imports_of(path)) & set(MODULES) for name, path in MODULES.items()}
    edges["keras_attention"] -= {"keras_attention"}  # `from keras_attention import layers`
    graphlib.TopologicalSorter(edges).prepare()  # raises a `CycleError`


@every_module
def test_operations_come_from_one_module(name):
    """The operations of Keras round float64 on JAX and PyTorch."""
    tree = ast.parse(MODULES[name].read_text(encoding="utf-8"))
    found = [x for x in ast.walk(tree) if isinstance(x, ast.ImportFrom) and x.module == "keras"]
    assert "ops" not in [alias.name for x in found for alias in x.names]


def test_no_private_part_of_keras_is_used():
    assert not [path for path in FILES if "keras.src" in path.read_text(encoding="utf-8")]


def interface(name):
    """What a module defines for others: constants, and functions with their signatures."""
    found = {}
    for node in ast.parse(MODULES[f"{HOME}.{name}"].read_text(encoding="utf-8")).body:
        if isinstance(node, ast.FunctionDef):
            found[node.name] = f"({ast.unparse(node.args)}) -> {ast.unparse(node.returns or node)}"
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            target = node.target if isinstance(node, ast.AnnAssign) else node.targets[0]
            found[ast.unparse(target)] = "constant"
    return {name: what for name, what in found.items() if not name.startswith("_")}


@pytest.mark.parametrize("name", BACKENDS)
def test_backends_have_the_same_names_and_signatures(name):
    assert interface(name) == interface("tensorflow")


@pytest.mark.parametrize("name", BACKENDS)
def test_a_backend_exports_what_it_defines(name):
    source = MODULES[f"{HOME}.{name}"].read_text(encoding="utf-8")
    lists = [x.value for x in ast.parse(source).body if "__all__" in ast.unparse(x)]
    exported = [one for names in lists for one in ast.literal_eval(names)]
    assert sorted(exported) == sorted(interface(name).keys() - {"__all__"})


@every_module
def test_nothing_else_asks_which_backend_runs(name):
    """Backends differ in one folder; everything else says what it needs."""
    if name in EXCEPTIONS or name.startswith(HOME):
        return
    source = MODULES[name].read_text(encoding="utf-8")
    imported = {x.split(".")[0] for x in all_imports(ast.parse(source))}
    assert not imported & {*BACKENDS}
    assert "backend.backend()" not in source


@pytest.mark.parametrize("name", [*BACKENDS, "context", "operations", "structures"])
def test_a_backend_imports_no_other(name):
    source = MODULES[f"{HOME}.{name}"].read_text(encoding="utf-8")
    imported = {x.split(".")[0] for x in all_imports(ast.parse(source))}
    assert imported & {*BACKENDS} == {name} & {*BACKENDS}


def all_imports(tree):
    """The modules that a module imports, in functions too."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            yield node.module
        elif isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
