"""Searches, alone and with workers: they end, resume, and hide nothing.

The slow tests run with `python -m pytest -m slow tests/examples/test_tune.py`.
"""

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import keras
import numpy as np
import pytest

from examples.common.results import Results
from examples.tuning import comparison, distributed, search, tuner_files
from examples.tuning import data as letters
from examples.tuning.__main__ import parse, settings_of
from examples.tuning.model import WholeWeights

pytest.importorskip("keras_tuner", reason="keras-tuner is not installed")


def command(folder, *options):
    return [sys.executable, "-m", "examples.tuning", "--output", str(folder), *options]


def run(folder, *options, code=0):
    done = subprocess.run(
        command(folder, *options), capture_output=True, encoding="utf-8", check=False
    )
    assert done.returncode == code, done.stderr[-3000:]
    return done.stdout + done.stderr


def test_data():
    (source, target), (_, other) = letters.load_data([5, 3], seed=1)
    assert (source.shape, target.shape) == ((5, letters.SOURCE_LENGTH), (5, letters.TARGET_LENGTH))
    signs = [letters.SIGNS[n - 1] for n in target[0]]
    assert re.fullmatch(r"\d{4}-\d\d-\d\d\n", "".join(signs))
    assert len({"".join(map(str, row)) for row in [*target, *other]}) == 8


def test_a_configuration_in_a_line():
    values = {"attention_mechanism": "luong", "attention_alignment": "global", "units": 32}
    values |= {"attention_half_width": 3, "attention_units": 8, "tuner/epochs": 2, "rate": 0.12345}
    values |= {"attention_vector": False, "attention_vector_units": 64}
    expected = "mechanism luong, alignment global, units 32, vector False, rate 0.1235"
    assert sorted(comparison.describe(values).split(", ")) == sorted(expected.split(", "))
    values |= {"attention_mechanism": "bahdanau"}
    assert "attention_units 8, " in comparison.describe(values) + ", "
    assert ", units 32, " in comparison.describe(values) + ", "


@pytest.mark.slow
def test_a_model_is_the_same_whatever_was_trained_before(monkeypatch):
    begun = []

    def fit(model, *_, **__):
        begun.append(np.concatenate([np.ravel(variable) for variable in model.variables]))

    monkeypatch.setattr(keras.Model, "fit", fit)
    monkeypatch.setattr(
        keras.Model, "evaluate", lambda *_, **__: {"accuracy": 0.0, "right_dates": 0.0}
    )
    options, data = parse([]), letters.load_data([64, 4, 20], seed=1)
    values = {"units": 32, "learning_rate": 0.01, "attention_mechanism": "bahdanau"}
    for units in (32, 64, 32):
        comparison.train({**values, "units": units}, options, data)
    first, between, again = begun
    assert between.shape != first.shape
    np.testing.assert_array_equal(again, first)


def test_how_processes_end():
    assert distributed.how_it_ended(-9) == "was killed by SIGKILL"
    assert distributed.how_it_ended(3) == "ended with status 3"


@pytest.mark.parametrize(
    ("arguments", "fragment"),
    [
        (["--epochs", "0"], "--epochs must be at least 1"),
        (["--distributed", "0"], "--distributed must be at least 1"),
        (["--pairs", "100000"], "--pairs must be at most"),
        (["--timeout", "3"], "--timeout goes with --distributed"),
        (["--distributed", "1", "--timeout", "nan"], "--timeout must be positive"),
    ],
)
def test_bad_arguments(arguments, fragment, capsys):
    with pytest.raises(SystemExit) as error:
        parse(arguments)
    assert error.value.code == 2
    assert fragment in capsys.readouterr().err


QUICK = """import time

import keras


def share(model):
    return 1 - 100 / model.count_params()


def fit(model, *_, epochs, initial_epoch=0, callbacks=(), **__):
    history = keras.callbacks.History()
    called = keras.callbacks.CallbackList([*callbacks, history], model=model)
    called.on_train_begin()
    for epoch in range(initial_epoch, epochs):
        time.sleep(1)
        called.on_epoch_end(epoch, {"val_accuracy": share(model)})
    called.on_train_end()
    return history


def evaluate(model, *_, **__):
    return {"accuracy": share(model), "right_dates": 0.0}


keras.Model.fit, keras.Model.evaluate = fit, evaluate
"""


@pytest.fixture
def quick(tmp_path, monkeypatch):
    """Replaces training in all processes by a second of sleep per epoch. Large models win."""
    replace_in_processes(QUICK, tmp_path, monkeypatch)


def replace_in_processes(code, folder, patch):
    """Runs some code at the start of all processes that the test starts."""
    (folder / "sitecustomize.py").write_text(code)
    patch.setenv("PYTHONPATH", str(folder), prepend=os.pathsep)


def interrupt(folder, options, pattern, stop):
    """Runs a search and stops it when a line matches. Returns its output and its status."""
    process = subprocess.Popen(
        command(folder, *options),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        # A shell that runs the tests in the background makes its children ignore SIGINT.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )
    with process.stdout as output:
        text = ""
        for line in output:
            text += line
            if re.search(pattern, line):
                break
        stop(process, text)
        text += output.read()
    return text, process.wait(60)


def assert_ended(text, count):
    """Asserts that all processes of a search end within a moment."""
    numbers = re.findall(r"(?:chief|worker-\d) (\d+)", text)
    assert len(numbers) == count
    running, end = numbers, time.monotonic() + 20
    while running and time.monotonic() < end:
        time.sleep(0.2)
        running = [pid for pid in numbers if Path(f"/proc/{pid}").exists()]
    assert not running


@pytest.mark.slow
def test_a_search_that_is_killed_resumes(tmp_path, quick):
    options = ["--smoke", "--searches", "bayesian", "--trials", "2"]
    interrupt(tmp_path, options, "best of 1", lambda process, _: process.kill())
    text = run(tmp_path, *options)
    assert "bayesian, 2 trials, all completed" in text
    # The first trial did not run again.
    assert len(re.findall(r"bayesian: trial \d+:", text)) == 1
    assert "other settings" in run(tmp_path, *options, "--seed", "5", code=1)


def test_a_trial_that_a_kill_left_out_of_the_state_is_forgotten(tmp_path):
    for name in ("trial_0000", "trial_0001"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "trial.json").write_text('{"status": "RUNNING"}')
    tuner_files.forget_begun(tmp_path)  # without a state nothing is known
    (tmp_path / "oracle.json").write_text('{"start_order": ["0000"]}')
    tuner_files.forget_begun(tmp_path)
    assert [path.name for path in tmp_path.glob("trial_*")] == ["trial_0000"]


@pytest.mark.exhaustive
def test_rounds_of_hyperband_after_a_kill(tmp_path, quick):
    """Trials of the second round continue with weights from the first round."""
    options = ["--smoke", "--searches", "hyperband", "--epochs", "3"]
    first, _ = interrupt(tmp_path, options, "best of 4", lambda process, _: process.kill())
    text = run(tmp_path, *options)
    done = [re.findall(r"hyperband: trial (\d+):", x) for x in (first, text)]
    assert not set(done[0]) & set(done[1])
    count = int(re.search(r"hyperband, (\d+) trials, all completed", text)[1])
    assert count == len(done[0]) + len(done[1])
    epochs = re.findall(r"^ +\d{4} +\d\.\d{3} +(\d)  ", text, re.MULTILINE)
    assert len(epochs) == count
    assert set(epochs) == {"1", "3"}
    raised = [
        trial["hyperparameters"]["values"].get("tuner/trial_id")
        for trial in tuner_files.read_trials(tmp_path / "hyperband")
    ]
    assert any(raised)


@pytest.mark.slow
def test_a_worker_that_is_killed(tmp_path, quick):
    options = ["--smoke", "--searches", "bayesian", "--trials", "5", "--distributed", "2"]

    def kill(_, text):
        os.kill(int(re.search(r"worker-1 (\d+)", text)[1]), signal.SIGKILL)

    text, status = interrupt(tmp_path, options, r"[1-3] trials finished", kill)
    assert status == 1
    assert "worker-1 was killed by SIGKILL" in text
    assert int(re.search(r"; (\d+) finished trials are kept", text)[1]) >= 1
    assert_ended(text, 3)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("number", "workers"), [(signal.SIGINT, 2), (signal.SIGTERM, 0)], ids=["SIGINT", "SIGTERM"]
)
def test_a_search_that_is_stopped(number, workers, tmp_path, quick):
    options = ["--smoke", "--searches", "bayesian", "--trials", "9"]
    options += ["--distributed", f"{workers}"] if workers else []
    pattern = r"[1-3] trials finished|best of 1"
    text, status = interrupt(tmp_path, options, pattern, lambda p, _: p.send_signal(number))
    assert status == 1
    assert "bayesian: interrupted. The search has ended; " in text
    assert "Traceback" not in text
    assert int(re.search(r"; (\d+) finished trials are kept", text)[1]) >= 1
    assert_ended(text, workers + 1 if workers else 0)


@pytest.mark.exhaustive
def test_a_supervisor_that_is_killed(tmp_path, quick):
    options = ["--smoke", "--searches", "bayesian", "--trials", "9", "--distributed", "1"]
    pattern = r"\b[1-8] trials finished"
    text, status = interrupt(tmp_path, options, pattern, lambda p, _: p.kill())
    assert status == -signal.SIGKILL
    assert_ended(text, 2)


NO_LUCK = """import keras

def fit(*_, **__):
    raise ArithmeticError("no luck")

keras.Model.fit = fit
"""


@pytest.mark.slow
@pytest.mark.parametrize("workers", [0, 1])
def test_a_trial_that_fails(workers, tmp_path, monkeypatch):
    replace_in_processes(NO_LUCK, tmp_path, monkeypatch)
    options = ["--smoke", "--searches", "bayesian"]
    options += ["--distributed", f"{workers}"] if workers else []
    text = run(tmp_path / "out", *options, code=1)
    assert re.search(r"bayesian: trial 0+ failed: ArithmeticError: no luck. The search has", text)
    assert "Traceback" in text
    assert "in fit" in text
    assert text.rstrip().endswith("ArithmeticError: no luck")


@pytest.mark.slow
def test_a_file_that_a_kill_has_damaged(tmp_path):
    (tmp_path / "bayesian").mkdir()
    for name in ("oracle.json", "tuner0.json"):
        (tmp_path / "bayesian" / name).write_text('{"ongoing_tri')
    text = run(tmp_path, "--smoke", "--searches", "bayesian", code=1)
    assert "bayesian is damaged, as a kill may leave it" in text
    assert "Traceback" not in text


def test_copies_for_files_that_a_kill_has_damaged(tmp_path):
    options = parse(["--smoke", "--output", str(tmp_path)])
    tuner = search.make_tuner("bayesian", options)
    trial = tuner.oracle.create_trial("tuner0")
    tuner.save()
    tuner.on_trial_begin(trial)
    for name in tuner_files.STATES:
        (tmp_path / "bayesian" / name).write_text("")
    # A damaged file is not copied.
    tuner_files.keep_copies(tmp_path / "bayesian")
    again = search.open_tuner("bayesian", options)
    assert set(again.oracle.trials) == {trial.trial_id}
    values = again.oracle.trials[trial.trial_id].hyperparameters.values
    assert values == trial.hyperparameters.values


def test_files_of_finished_trials_that_were_changed_are_refused(tmp_path):
    options = parse(["--smoke", "--output", str(tmp_path)])
    tuner = search.make_tuner("bayesian", options)
    trial = tuner.oracle.create_trial("tuner0")
    tuner.on_trial_begin(trial)
    folder = Path(tuner.get_trial_dir(trial.trial_id))
    weights = folder / "checkpoint.weights.h5"
    weights.write_bytes(bytes(100))
    tuner.oracle.update_trial(trial.trial_id, {"val_accuracy": 0.5})
    trial.status = "COMPLETED"
    tuner.on_trial_end(trial)
    search.open_tuner("bayesian", options)
    for path in (weights, folder / "trial.json"):
        data = path.read_bytes()
        path.write_bytes(data[:-20] + b"x" + data[-19:])
        with pytest.raises(SystemExit, match=rf"{path.name} was changed .* Delete {folder.parent}"):
            search.open_tuner("bayesian", options)
        path.write_bytes(data)
    search.open_tuner("bayesian", options)
    for text in ("", "3", "[3]"):
        (folder / "digests.json").write_text(text)
        with pytest.raises(SystemExit, match=r"digests.json cannot be read .* Delete .*bayesian"):
            search.open_tuner("bayesian", options)


@pytest.mark.slow
def test_a_disk_that_is_full_ends_a_search(tmp_path, monkeypatch):
    options = parse(["--smoke", "--trials", "1", "--output", str(tmp_path)])
    monkeypatch.setattr(search, "make_hypermodel", lambda: tiny_hypermodel)
    write_bytes = Path.write_bytes

    def full(path, data):
        if path.name.endswith(".weights.h5"):
            raise OSError(28, "No space left on device")
        return write_bytes(path, data)

    with monkeypatch.context() as patch:
        patch.setattr(Path, "write_bytes", full)
        with pytest.raises(SystemExit, match=r"h5 cannot be written: No space left on device\. Ea"):
            search.search("bayesian", options, TINY)
    # The unfinished trial runs again.
    assert search.search("bayesian", options, TINY).oracle.trials

    def fails(*_):
        raise OSError(28, "No space left on device", "oracle.json")

    monkeypatch.setattr(tuner_files, "keep_copies", fails)
    options.trials = 2
    with pytest.raises(SystemExit, match=r"oracle\.json.* 1 finished trials are kept") as error:
        search.search("bayesian", options, TINY)
    assert "No space left on device" in str(error.value)


TINY = [(np.ones((4, 3), "float32"), np.ones((4, 1), "float32"))] * 2


class Tiny(WholeWeights, keras.Sequential):
    pass


def tiny_hypermodel(hp):
    model = Tiny([keras.Input((3,)), keras.layers.Dense(1)])
    rate = hp.Float("rate", 0.1, 0.2)
    model.compile(keras.optimizers.SGD(rate), "mse", metrics=["accuracy"])
    return model


def test_a_distributed_and_a_local_search_are_not_mixed(tmp_path):
    settings = settings_of(parse(["--smoke", "--distributed", "2"]))
    assert settings == settings_of(parse(["--smoke", "--distributed", "1"]))
    Results(tmp_path / "results.json", settings).save()
    with pytest.raises(SystemExit, match="other settings"):
        Results(tmp_path / "results.json", settings_of(parse(["--smoke"])))


@pytest.mark.slow
def test_time_that_is_over(tmp_path):
    text = run(tmp_path, "--smoke", "--distributed", "1", "--timeout", "3", code=1)
    assert "not done within --timeout 3.0 seconds" in text
    assert "0 finished trials are kept" in text
