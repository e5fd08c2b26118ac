"""The command lines of the tasks: types of numbers, and what is refused before any work."""

import importlib
import shlex

import pytest

REFUSED = {
    "documents": {'--data ""': "--data needs a path", "--pooling max": "invalid choice: 'max'"},
    "pronunciation": {
        "--data x": "the following arguments are required: --language",
        "--data x --language y --ensemble 2 --backward 2": "which is 2; received 2",
        "--data x --language y --backward -1": "--backward must be 0 or more",
    },
    "question_answering": {'--data ""': "--data is empty"},
    "speech": {
        "sing": "invalid choice: 'sing'",
        "--units 6": "--units must be a multiple of 4; received 6",
        "--attention gmm --hard": "--hard goes with --attention monotonic or stepwise",
        "speak --listener absent.keras": "--listener absent.keras: no such file",
    },
    "stories": {
        '--data ""': "--data is empty",
        "--task one": "--task takes numbers, or all, or joint; received one",
        "--task joint 1": "received joint 1",
    },
    "translation": {
        "--train a b": "give --train (or --shards), --valid and --test, or none",
        "--input-feeding": "goes with the luong attentions",
        "--units 7": "must be even",
        "--backward 1": "less than --ensemble, which is 1; received 1",
        "--shards a --train b c": "not allowed with argument",
        "--shards a --valid b c --test d e": "--shards needs --steps",
        "--shards a --steps 9 --epochs 2 --valid b c --test d e": "no --epochs",
        "--shards a --steps 9 --save-every 4 --valid b c --test d e": "a multiple of --save-every",
        "--steps 3": "goes with --shards",
    },
}


@pytest.mark.parametrize(("task", "line"), [(task, x) for task in REFUSED for x in REFUSED[task]])
def test_bad_options_are_refused(task, line, capsys):
    command = importlib.import_module(f"examples.{task}.__main__")
    with pytest.raises(SystemExit) as error:
        command.parse(shlex.split(line))
    assert error.value.code == 2
    assert REFUSED[task][line] in capsys.readouterr().err
