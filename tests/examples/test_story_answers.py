"""Answers about stories: training, processes, results, files, runs and resuming."""

import json
import os
import pathlib
import re
import signal
import subprocess
import sys

import keras
import numpy as np
import pytest
import tensorflow as tf

from examples.stories import __main__ as command
from examples.stories import evaluation, generator, reading
from examples.stories import model as memn2n
from examples.stories.data import Task
from tests.helpers import wait_for

pytest.importorskip("tensorflow_text", reason="tokens come from it")

SETTINGS = {
    **{"units": 5, "encoding": "position", "null_memories": True, "noise": 0.1, "seed": 1},
    **{"epochs": 8, "linear_epochs": 3, "learning_rate": 0.01, "batch_size": 16},
}
# Such a model is trained in a second.
SMALL = ["--epochs", "4", "--units", "7"]


def make_task(size=80, facts=1, name="made up"):
    questions = generator.make(size + 20, facts)
    return Task("1", {1: (name, questions[:size], questions[size:])}, 50, 0.1)


# --- training ------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_model_is_the_same_whatever_was_trained_before(tmp_path):
    task = make_task()
    paths = [tmp_path / f"{n}.weights.h5" for n in range(3)]
    other = memn2n.train(task, 2, 1, SETTINGS, paths[0])
    entry = memn2n.train(task, 2, 2, SETTINGS, paths[1])
    memn2n.compiled_model.cache_clear()
    again = memn2n.train(task, 2, 2, SETTINGS, paths[2])
    assert json.dumps(entry)
    assert {**entry, "seconds": 0} == {**again, "seconds": 0}
    assert other["train_loss"] != entry["train_loss"]
    weights = []
    for path in paths:
        model, _ = memn2n.build_model(task.sizes, 2, 5)
        model.load_weights(path)
        weights.append(model.get_weights())
        assert not model.get_layer("network").linear
    assert all(map(np.array_equal, weights[1], weights[2]))
    assert not all(map(np.array_equal, weights[0], weights[1]))
    words, losses = memn2n.answers(model, task.train, task.sizes[2])
    assert again["train_error"] == pytest.approx(100 * np.mean(words != task.train.answers))
    assert again["train_loss"] == pytest.approx(losses.mean())


@pytest.mark.slow
@pytest.mark.parametrize(("most", "linear"), [(20, 13), (5, 5), (0, 0)])
def test_the_linear_start_ends_when_the_validation_loss_no_longer_falls(most, linear, monkeypatch):
    seen, losses = [], iter([1.0, 0.9, 0.8] + [0.8] * 10 + [0.1])

    class Record(keras.callbacks.TerminateOnNaN):
        def on_epoch_end(self, epoch, logs=None):
            network = self.model.get_layer("network")
            seen.append((network.linear, float(self.model.optimizer.learning_rate)))

    monkeypatch.setattr(keras.callbacks, "TerminateOnNaN", Record)
    monkeypatch.setattr(memn2n, "answers", lambda *_: (None, [next(losses)]))
    settings = {**SETTINGS, "learning_rate": 0.08, "linear_epochs": most}
    assert memn2n.fit_model(make_task(), 1, 1, settings)[1] == linear
    halved = [(False, pytest.approx(0.08 / 2 ** (n // 2))) for n in range(8)]
    assert seen == [(True, pytest.approx(0.04))] * linear + halved


def test_an_answer_is_a_known_word():
    logits = tf.constant([[9.0, 1, 2, 9], [0, 5, -1, 9], [9, -3, -2, -9]])
    data = make_task(20).train.select(slice(0, 3))._replace(answers=np.array([2, 1, -1]))
    words, losses = memn2n.answers(lambda inputs, training: logits, data, 11)
    assert words.tolist() == [2, 1, 2]
    expected = -np.log(
        [np.exp(2) / np.exp([9, 1, 2, 9]).sum(), np.exp(5) / np.exp([0, 5, -1, 9]).sum()]
    )
    np.testing.assert_allclose(losses, [*expected, np.nan], rtol=1e-6)


# --- results -------------------------------------------------------------------------------------


def entry(error, loss=1.0):
    return {"train_error": error, "train_loss": loss}


def test_the_lowest_training_error_counts():
    assert evaluation.best_of([entry(3.0), entry(2.0), entry(4.0)]) == entry(2.0)
    assert evaluation.best_of([entry(0.0, 0.2), entry(0.0, 0.1)]) == entry(0.0, 0.1)
    assert evaluation.best_of([entry(0.0, None), entry(90.0)]) == entry(90.0)
    assert evaluation.best_of([entry(0.0, None)]) is None


# --- runs ----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def data_path(tmp_path_factory):
    """Two tasks as files: generated stories in the official format."""
    folder = tmp_path_factory.mktemp("data")
    for number in (1, 2):
        for kind, seed in (("train", 1), ("test", 2)):
            lines = []
            for question in generator.make(60, number, seed):
                lines += [f"{n} {sentence}" for n, sentence in enumerate(question.story, 1)]
                facts = " ".join(str(n + 1) for n in question.facts)
                lines.append(
                    f"{len(question.story) + 1} {question.text}\t{question.answer}\t{facts}"
                )
            path = folder / f"qa{number}_made-up-{number}_{kind}.txt"
            path.write_text("\n".join(lines) + "\n")
    return folder


def start(data_path, output, *more, **options):
    given = ["--data", str(data_path), "--output", str(output), *more]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    command = [sys.executable, "-c", INTERRUPTIBLE, "-m", "examples.stories", *given]
    return subprocess.Popen(command, **pipes, **options)


@pytest.fixture(scope="module")
def whole_run(data_path, tmp_path_factory):
    """The output folder of a run on files with two processes, and what the run printed."""
    output = tmp_path_factory.mktemp("run") / "output"
    more = ["--repeats", "2", "--hops", "2", "1", "--jobs", "2", *SMALL]
    with start(data_path, output, *more) as run:
        printed, _ = run.communicate()
    assert run.returncode == 0, printed
    return output, printed


@pytest.mark.slow
def test_what_a_run_prints_and_writes(whole_run):
    output, printed = whole_run
    assert "models to train: 8 of 8" in printed
    assert printed.count("repeat 2: training error") == 4
    assert "each task, 2 hops, best of 2 by training error" in printed
    entries = json.loads((output / "results.json").read_text())
    assert len(entries) == len([*(output / "weights").iterdir()]) == 8
    tables = re.findall(r"^ +(\d) made up \d +([\d.]+) +[\d.]+ ± [\d.]+$", printed, re.M)
    assert len(tables) == 4
    for (task, error), hops in zip(tables, "2211", strict=True):
        found = [x for x in entries if x["model"].startswith(f"{task}-hops-{hops}-")]
        best = min(found, key=lambda x: (x["train_error"], x["train_loss"]))
        assert float(error) == pytest.approx(best["test_errors"][task], abs=0.051)
    for task in ("task-1", "task-2"):
        names = {file.name for file in (output / task).iterdir()}
        assert names == {"model.keras", "saved_model", "hops.png"}
    model = keras.saving.load_model(output / "task-2" / "model.keras")
    found = model([np.ones((1, 4, 3), "int32"), np.ones((1, 2), "int32")])
    assert found["hop_weights"].shape == (1, 2, 4)


@pytest.mark.slow
def test_finished_models_are_kept(whole_run, data_path, monkeypatch, capsys):
    output, _ = whole_run
    asked = []
    monkeypatch.setattr(command, "train_all", lambda jobs, _: asked.append(len(jobs)) or [])
    monkeypatch.setattr(command, "save", lambda *_: None)
    arguments = ["--data", str(data_path), "--output", str(output), *SMALL]
    command.main([*arguments, "--hops", "2", "1", "--repeats", "2"])
    # A run with fewer models uses the same ones.
    command.main([*arguments, "--hops", "1", "--repeats", "1", "--task", "2"])
    assert asked == [0, 0]
    assert "made up 2" in capsys.readouterr().out
    before = (output / "results.json").read_text()
    with pytest.raises(SystemExit, match="units: 7 then, 8 now"):
        command.main([*arguments[:-1], "8"])
    assert (output / "results.json").read_text() == before


@pytest.mark.slow
def test_one_model_of_all_tasks(data_path, tmp_path, capsys):
    arguments = ["--data", str(data_path), "--output", str(tmp_path), *SMALL, "--jobs", "1"]
    command.main([*arguments, "--task", "joint", "--hops", "1", "--encoding", "bag"])
    assert "one model for all tasks" in capsys.readouterr().out
    (result,) = json.loads((tmp_path / "results.json").read_text())
    assert set(result["test_errors"]) == {"1", "2"}
    assert (tmp_path / "joint" / "hops.png").exists()


# --- command line --------------------------------------------------------------------------------


def test_tasks_that_cannot_be_used(data_path, tmp_path):
    output = tmp_path / "x"
    given = ["--data", str(data_path), "--output", str(output)]
    with pytest.raises(SystemExit, match=r"--task 1 7: .* has the tasks 1, 2\."):
        command.main([*given, "--task", "1", "7"])
    for kind in ("train", "test"):
        text = "1 Ann is home.\n2 Where is Ann?\thome\t1\n"
        (tmp_path / f"qa1_a_{kind}.txt").write_text(text)
    with pytest.raises(SystemExit, match="task 1: 1 questions to train on, fewer than 20"):
        command.main(["--data", str(tmp_path), "--output", str(output)])
    assert not output.exists()
