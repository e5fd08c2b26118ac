"""Searches, alone and with workers: they end, resume, and hide nothing.

The slow tests run with `python -m pytest -m slow tests/examples/test_tune.py`.
"""

import os
import re
import signal
import subprocess
import sys

import numpy as np
import pytest

pytest.importorskip("keras_tuner", reason="keras-tuner is not installed")
import keras_tuner

from examples.tuning import data as letters
from examples.tuning.__main__ import main, parse
from examples.tuning.evaluation import describe
from examples.tuning.model import DateTranslator
from examples.tuning.search import make_tuner

SMOKE = ["--smoke", "--searches", "bayesian"]


def test_data():
    (source, target), (_, other) = letters.load_data([5, 3], seed=1)
    assert (source.shape, target.shape) == ((5, letters.SOURCE_LENGTH), (5, letters.TARGET_LENGTH))
    signs = [letters.SIGNS[n - 1] for n in target[0]]
    assert re.fullmatch(r"\d{4}-\d\d-\d\d\n", "".join(signs))
    assert len({"".join(map(str, row)) for row in [*target, *other]}) == 8


def weights_of(values):
    hp = keras_tuner.HyperParameters()
    hp.values = values
    return DateTranslator(seed=0).build(hp).get_weights(), describe(hp)


@pytest.mark.slow
def test_a_model_is_the_same_whatever_was_built_before():
    values = {"units": 32, "learning_rate": 0.00123456, "attention_mechanism": "bahdanau"}
    (first, _), (between, _), (again, line) = (
        weights_of({**values, "units": units}) for units in (32, 64, 32)
    )
    assert [x.shape for x in between] != [x.shape for x in first]
    for x, y in zip(again, first, strict=True):
        np.testing.assert_array_equal(x, y)
    # The options of the other mechanism are left out.
    assert {"units 32", "attention_units 32", "learning_rate 0.001235"} < set(line.split(", "))
    assert "attention_alignment" not in line


@pytest.mark.parametrize(
    ("arguments", "fragment"),
    [
        (["--pairs", "100000"], "--pairs: must be in [1, 71549]"),
        (["--searches", "grid"], "--searches: invalid choice: 'grid'"),
    ],
)
def test_bad_arguments(arguments, fragment, capsys):
    with pytest.raises(SystemExit) as error:
        parse(arguments)
    assert error.value.code == 2
    assert fragment in capsys.readouterr().err


def test_a_search_with_other_settings_is_refused(tmp_path, monkeypatch):
    monkeypatch.setattr("examples.tuning.__main__.load_data", lambda *_: sys.exit("loads"))
    with pytest.raises(SystemExit, match="loads"):
        main([*SMOKE, "--output", str(tmp_path)])
    for other in (["--seed", "5"], ["--distributed", "2"]):
        with pytest.raises(SystemExit, match="other settings"):
            main([*SMOKE, "--output", str(tmp_path), *other])


def finish(oracle):
    trial = oracle.create_trial("tuner0")
    oracle.update_trial(trial.trial_id, {"val_accuracy": 0.5})
    trial.status = "COMPLETED"
    oracle.end_trial(trial)


@pytest.mark.parametrize(
    "damaged",
    [
        pytest.param("oracle.json", marks=pytest.mark.exhaustive),
        pytest.param("trial_0/trial.json", marks=pytest.mark.slow),
        pytest.param("trial_1/trial.json", marks=pytest.mark.exhaustive),
    ],
)
def test_files_that_a_kill_has_damaged(damaged, tmp_path):
    options = parse([*SMOKE, "--output", str(tmp_path)])
    tuner = make_tuner("bayesian", options)
    finish(tuner.oracle)
    begun = tuner.oracle.create_trial("tuner0")
    tuner.save()
    for name in (damaged, "tuner0.json"):
        (tmp_path / "bayesian" / name).write_text('{"tri')
    again = make_tuner("bayesian", options).oracle
    assert [(x.trial_id, x.status, x.score) for x in again.trials.values()] == [
        ("0", "COMPLETED", 0.5)
    ]
    trial = again.create_trial("tuner0")
    assert trial.trial_id == begun.trial_id
    assert trial.hyperparameters.values == begun.hyperparameters.values


QUICK = """
import time, keras
from keras_attention import Seq2Seq

def share(model):
    return 1 - 100 / model.count_params()

def fit(model, *_, epochs, initial_epoch=0, callbacks=(), **__):
    history = keras.callbacks.History()
    called = keras.callbacks.CallbackList([*callbacks, history], model=model)
    called.on_train_begin()
    for epoch in range(initial_epoch, epochs):
        time.sleep(0.5)
        called.on_epoch_end(epoch, {"val_accuracy": share(model)})
    called.on_train_end()
    return history

def evaluate(model, *_, **__):
    return {"accuracy": share(model), "right_dates": 0.0}

Seq2Seq.fit, Seq2Seq.evaluate = fit, evaluate
"""
FAILING = QUICK.replace("    history =", '    raise ArithmeticError("no luck")\n    history =', 1)
# The second trial of a process does not end, so that a test can kill it.
WAITING = QUICK.replace("def fit", "fits = []\n\ndef fit").replace(
    "    history =", "    fits.append(1)\n    time.sleep(600 * (len(fits) > 1))\n    history =", 1
)


def search(folder, code, *options, until=None, stop=None):
    """Runs a search whose training is replaced. Calls `stop` with its output when a line matches.

    In `QUICK` an epoch is half a second of sleep, and large models win.
    """
    (folder / "sitecustomize.py").write_text(code)
    path = os.pathsep.join([str(folder), os.environ["PYTHONPATH"]])
    process = subprocess.Popen(
        [
            sys.executable,
            "-m",
            "examples.tuning",
            *SMOKE,
            "--output",
            str(folder / "out"),
            *options,
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        env={**os.environ, "PYTHONPATH": path, "PYTHONUNBUFFERED": "1"},
    )
    text = ""
    with process.stdout as output:
        for line in output:
            text += line
            if until and re.search(until, text):
                stop(process, text)
                until = None
    assert until is None, text
    return text, process.wait(600)


@pytest.mark.parametrize(
    "name",
    [
        pytest.param("bayesian", marks=pytest.mark.slow),
        pytest.param("hyperband", marks=pytest.mark.exhaustive),
    ],
)
def test_a_search_that_is_killed_resumes(name, tmp_path):
    options = ["--searches", name, "--trials", "2", "--epochs", "2"]
    stop = lambda process, _: process.kill()  # noqa: E731
    killed, _ = search(tmp_path, WAITING, *options, until="Running Trial #2", stop=stop)
    text, status = search(tmp_path, QUICK, *options)
    assert status == 0, text
    count = int(re.search(rf"{name}, (\d+) trials, all completed", text)[1])
    done = [set(re.findall(r"Trial (\d+) Complete", x)) for x in (killed, text)]
    assert not done[0] & done[1]
    assert done[0] | done[1] == {str(n + 1) for n in range(count)}
    assert "is ahead by" in text
    text, _ = search(tmp_path, QUICK, *options)
    assert "Running Trial" not in text


@pytest.mark.exhaustive
def test_a_worker_that_is_killed_ends_the_search(tmp_path):
    options = ["--trials", "3", "--distributed", "2"]

    def kill(_, text):
        os.kill(int(re.search(r"worker-1 (\d+)", text)[1]), signal.SIGKILL)

    text, status = search(tmp_path, QUICK, *options, until="trial [01] found 0.9", stop=kill)
    assert status == 1
    assert "worker-1 ended with status -9. Finished trials are kept" in text
    for pid in re.findall(r"(?:chief|worker-\d) (\d+)", text):
        with pytest.raises(ProcessLookupError):
            os.kill(int(pid), 0)
    text, status = search(tmp_path, QUICK, *options)
    assert status == 0, text
    assert "bayesian, 3 trials, all completed" in text


@pytest.mark.slow
def test_a_trial_that_fails_stops_the_search_with_its_cause(tmp_path):
    text, status = search(tmp_path, FAILING)
    assert status == 1
    assert "ArithmeticError: no luck" in text
    assert text.count("Search: Running Trial") == 1
