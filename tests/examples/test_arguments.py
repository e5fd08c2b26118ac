"""The tasks: what they import, and which options they refuse before any work."""

import ast
import importlib
import shlex

import pytest

from tests import ROOT, imports_of

REFUSED = {
    "documents": {"--pooling max": "invalid choice: 'max'"},
    "pronunciation": {
        "--data x": "the following arguments are required: --language",
        "--data x --language y --backward -1": "--backward must be 0 or more",
    },
    "question_answering": {'--data ""': "--data is empty"},
    "speech": {
        "--units 6": "--units must be a multiple of 4; received 6",
        "--attention gmm --hard": "--hard goes with --attention monotonic or stepwise",
        "speak --listener absent.keras": "--listener absent.keras: no such file",
    },
    "stories": {
        '--data ""': "--data is empty",
        "--task joint 1": "received joint 1",
    },
    "translation": {
        "--train a b": "give --train (or --shards), --valid and --test, or none",
        "--input-feeding": "goes with the luong attentions",
        "--backward 1": "less than --ensemble, which is 1; received 1",
        "--shards a --valid b c --test d e": "--shards needs --steps",
        "--shards a --steps 9 --epochs 2 --valid b c --test d e": "no --epochs",
        "--shards a --steps 9 --save-every 4 --valid b c --test d e": "a multiple of --save-every",
    },
}


@pytest.mark.parametrize(("task", "line"), [(task, x) for task in REFUSED for x in REFUSED[task]])
def test_bad_options_are_refused(task, line, capsys):
    command = importlib.import_module(f"examples.{task}.__main__")
    with pytest.raises(SystemExit) as error:
        command.parse(shlex.split(line))
    assert error.value.code == 2
    assert REFUSED[task][line] in capsys.readouterr().err


FOLDERS = sorted(path.parent for path in (ROOT / "examples").glob("*/__init__.py"))
MODULES = {
    ".".join(path.relative_to(ROOT).with_suffix("").parts): path
    for folder in FOLDERS
    for path in sorted(folder.rglob("*.py"))
}


@pytest.mark.parametrize("name", MODULES)
def test_a_module_imports_its_task_and_common_alone_and_says_what_it_holds(name):
    imported = [f"{module}.{taken}".split(".") for module, taken in imports_of(MODULES[name])]
    assert {x[1] for x in imported if x[0] == "examples"} <= {name.split(".")[1], "common"}
    text = MODULES[name].read_text(encoding="utf-8")
    assert "sys.path" not in text
    assert ast.get_docstring(ast.parse(text))
