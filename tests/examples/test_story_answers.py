"""Answers about stories: training, processes, results, files, runs and resuming."""

import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import time
import types

import keras
import numpy as np
import pytest
import tensorflow as tf

from examples.common import workers
from examples.common.results import Results
from examples.stories import __main__ as command
from examples.stories import data as tasks
from examples.stories import encoding, evaluation, export, generator, reading, training
from examples.stories import model as memn2n
from examples.stories.trainer import PATIENCE, Trainer, _Schedule
from tests.helpers import wait_for

pytest.importorskip("tensorflow_text", reason="tokens come from it")

SETTINGS = {
    **{"units": 5, "tying": "adjacent", "encoding": "position", "null_memories": True},
    **{"linear_start": True, "noise": 0.1, "epochs": 8, "linear_epochs": 3},
    **{"learning_rate": 0.01, "batch_size": 16, "seed": 1},
}
# Two such models are trained in about a second.
SMALL = ["--questions", "60", "--epochs", "4", "--linear-epochs", "2", "--units", "7"]


def make_task(size=80, facts=1):
    questions = generator.make(size, facts)
    encoder = encoding.Encoder(questions)
    data, _ = encoder.encode(questions)
    cut = size * 3 // 4
    parts = data.select(slice(0, cut)), data.select(slice(cut, None))
    return memn2n.Task("1", encoder.words.size, 6, 11, *parts, {"1": parts[1]})


# --- training ------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("tying", ["adjacent", "layerwise"])
def test_a_model_is_the_same_whatever_was_trained_before(tying):
    task, settings = make_task(), {**SETTINGS, "tying": tying}
    trainer = Trainer(task, 2, settings)
    trainer.run(1)
    entry, weights = trainer.run(2)
    again, expected = Trainer(task, 2, settings).run(2)
    for x, y in zip(weights, expected, strict=True):
        assert np.array_equal(x, y)
    timed = {"seconds", "step_ms", "compile_seconds"}
    assert {k: v for k, v in entry.items() if k not in timed} == {
        k: v for k, v in again.items() if k not in timed
    }
    assert json.dumps(entry)
    other, _ = trainer.run(1)
    assert other["train_loss"] != entry["train_loss"]


@pytest.mark.slow
def test_the_loss_falls_and_the_model_is_no_longer_linear():
    settings = {**SETTINGS, "units": 20, "epochs": 40}
    trainer = Trainer(make_task(200), 2, settings)
    entry, _ = trainer.run(1)
    assert not trainer.network.linear
    assert entry["linear_epochs"] == 3
    assert entry["epochs"] == 43
    assert entry["train_loss"] < 0.3  # a guess among six places gives 1.8
    data = trainer.task.train
    logits = memn2n.predict(trainer.model, data, 11, size=7)
    np.testing.assert_allclose(memn2n.predict(trainer.model, data, 11), logits, atol=1e-5)
    wrong = memn2n.answers(logits) != data.answers
    assert entry["train_error"] == pytest.approx(100 * wrong.mean())


def test_an_answer_is_a_known_word():
    logits = np.array([[9, 1, 2, 9], [0, 5, -1, 9], [9, -3, -2, -9]])
    assert memn2n.answers(logits).tolist() == [2, 1, 2]


def test_an_unknown_answer_is_an_error():
    trainer = Trainer(make_task(), 1, SETTINGS)
    data = trainer.task.valid
    error, loss = trainer.error(data)
    half = data._replace(answers=np.where(np.arange(len(data.answers)) % 2, data.answers, -1))
    logits = memn2n.predict(trainer.model, data, 11)
    odd = np.arange(len(data.answers)) % 2 == 1
    right = (memn2n.answers(logits) == data.answers) & odd
    assert trainer.error(half)[0] == pytest.approx(100 * (1 - right.mean()))
    assert np.isfinite(trainer.error(half)[1])
    assert trainer.error(half)[0] >= error
    assert loss > 0


def rates(losses, epochs=8, linear_epochs=20, stop_at=None):
    """The epochs of a training with these validation losses: whether linear, and the rate."""
    model = keras.Sequential([keras.Input((1,)), keras.layers.Dense(1)])
    model.compile(keras.optimizers.SGD(1.0))

    rest = iter(losses)
    trainer = types.SimpleNamespace(
        network=types.SimpleNamespace(linear=bool(losses)),
        task=types.SimpleNamespace(valid=None),
        settings={"learning_rate": 0.08, "epochs": epochs, "linear_epochs": linear_epochs},
        error=lambda data: (0.0, next(rest)),
    )
    schedule = _Schedule(trainer, "")
    schedule.set_model(model)
    model.stop_training, found = False, []
    while not model.stop_training:
        schedule.on_epoch_begin(len(found))
        found.append((trainer.network.linear, float(model.optimizer.learning_rate)))
        loss = float("nan") if len(found) == stop_at else 1.0
        schedule.on_epoch_end(len(found) - 1, {"loss": loss})
    return found


def halved(base):
    return [(False, pytest.approx(base / 2 ** (n // 2))) for n in range(8)]


def test_the_learning_rate_is_halved_every_quarter():
    assert rates([]) == halved(0.08)


def test_the_softmax_is_put_back_when_the_validation_loss_no_longer_falls():
    falls = [1.0, 0.9, 0.8]
    stays = [0.8] * PATIENCE
    linear = [(True, pytest.approx(0.04))] * (3 + PATIENCE)
    assert rates([*falls, *stays, 0.1]) == linear + halved(0.08)


def test_the_linear_epochs_are_limited():
    losses = [1 / (n + 1) for n in range(30)]
    assert rates(losses, linear_epochs=5) == [(True, pytest.approx(0.04))] * 5 + halved(0.08)


def test_a_diverged_training_ends():
    assert len(rates([], stop_at=3)) == 3


# --- processes -----------------------------------------------------------------------------------


def square(number):
    """The work of the processes in the tests below."""
    if number == 13:
        import os

        os._exit(3)
    if number == 99:
        while not workers.asked_to_stop():
            time.sleep(0.05)
        raise workers.Stopped
    return number * number


class NotAsked:
    asked = False


@pytest.mark.slow
def test_work_on_several_processes():
    assert sorted(workers.run(square, [1, 2, 3], 2, NotAsked)) == [1, 4, 9]
    assert list(workers.run(square, [], 2, NotAsked)) == []


@pytest.mark.slow
def test_a_process_that_ends_unexpectedly_ends_the_run():
    with pytest.raises(SystemExit, match=r"fewer --jobs need less.*Finished models are kept"):
        list(workers.run(square, [13], 1, NotAsked))


@pytest.mark.slow
def test_work_that_is_asked_to_stop():
    class Asked:
        asked = False

    found = []
    for result in workers.run(square, [2, 99, 3, 99, 4], 1, Asked):
        found.append(result)
        Asked.asked = True
    assert found == [4]


# --- results -------------------------------------------------------------------------------------


def entry(repeat, error, loss=1.0, diverged=False):
    return {
        **{"repeat": repeat, "train_error": error, "train_loss": None if diverged else loss},
        **{"diverged": diverged, "task": "1", "hops": 3, "data": "x", "test_errors": {"1": 7.0}},
    }


def test_the_lowest_training_error_counts():
    assert training.best_of([entry(1, 3.0), entry(2, 2.0), entry(3, 4.0)])["repeat"] == 2
    assert training.best_of([entry(1, 0.0, 0.2), entry(2, 0.0, 0.1)])["repeat"] == 2
    assert training.best_of([entry(1, 0.0, diverged=True), entry(2, 90.0)])["repeat"] == 2


def test_models_are_kept_with_their_weights(tmp_path):
    models = training.Models(tmp_path, {"units": 1})
    models.add(entry(2, 3.0), [np.ones((2, 3)), np.array(True)])
    again = training.Models(tmp_path, {"units": 1})
    (found,) = again.entries("1", 3, "x", range(1, 4))
    assert found == {**entry(2, 3.0), "digest": found["digest"]}
    ones, true = again.weights(found)
    assert ones.shape == (2, 3)
    assert true
    assert again.entries("1", 3, "other data", [2]) == []
    again.add({**entry(2, 3.0), "data": "y"}, [np.zeros(1)])
    assert again.weights(found)[0].shape == (2, 3)
    with pytest.raises(SystemExit, match=r"other settings .units: 1 then, 2 now"):
        training.Models(tmp_path, {"units": 2})


def test_weights_that_were_changed_are_refused_before_any_work(tmp_path):
    training.Models(tmp_path, {"units": 1}).add(entry(2, 3.0), [np.ones(200)])
    (path,) = (tmp_path / "weights").iterdir()
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)
    with pytest.raises(SystemExit, match=rf"{path.name} was changed after it was written"):
        training.Models(tmp_path, {"units": 1})
    path.unlink()
    with pytest.raises(SystemExit, match=rf"{path.name} cannot be read .No such file"):
        training.Models(tmp_path, {"units": 1})


def test_a_disk_that_fills_up_leaves_the_models_before(tmp_path, monkeypatch):
    models = training.Models(tmp_path, {"units": 1})
    models.add(entry(1, 3.0), [np.ones(200)])
    files = sorted(tmp_path.rglob("*"))

    def full(path, data):
        path.write_text("half")
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(pathlib.Path, "write_bytes", full)
        with pytest.raises(SystemExit, match=r"npz cannot be written: No space left on device\. E"):
            models.add(entry(2, 3.0), [np.ones(200)])
    assert sorted(tmp_path.rglob("*")) == files
    again = training.Models(tmp_path, {"units": 1})
    assert [e["repeat"] for e in again.entries("1", 3, "x", range(1, 4))] == [1]


def corpus_of(train, test, memory=50, noise=0.1, name="counting"):
    return tasks.Corpus({7: (name, train, test)}, False, memory, noise)


def test_what_falls_out_of_the_memory_is_told(capsys):
    short, long = generator.make(40, 1, seed=1), generator.make(40, 3, seed=1)
    corpus = corpus_of(short, long)
    size = corpus.tasks["7"].memory
    longest = max(len(q.story) for q in short)
    assert size == longest + np.ceil(longest / 10)
    lost = sum(max(0, len(q.story) - size) for q in long)
    told = capsys.readouterr().out.splitlines()
    assert len(told) == 1
    assert told[0].startswith("task 7, 40 test questions; words that were not seen in training: ")
    assert told[0].endswith(f"fall out of the memory, the oldest of their stories: {lost:,}")
    assert corpus_of(short, long, memory=3).tasks["7"].memory == 3


def test_the_paper_is_beside_its_own_tasks_only():
    questions = generator.make(40, 1)
    settings = {**SETTINGS, "noise": 0.1}
    arguments = types.SimpleNamespace(size="1k", data="x")
    own = corpus_of(questions, questions)
    assert evaluation.published(3, own, settings, arguments)["7"] == 17.3
    other = corpus_of(questions, questions, name="made up")
    assert evaluation.published(3, other, settings, arguments) == {}
    arguments.size = "10k"
    assert evaluation.published(3, own, settings, arguments) == {}


@pytest.mark.parametrize(
    ("right", "expected"),
    [("++++++", "++++"), ("------", "----"), ("+-+-+-", "++--"), ("+-----", "+---")],
)
def test_questions_are_chosen_to_be_drawn(right, expected):
    questions = generator.make(40, 1)
    corpus = corpus_of(questions, questions[: len(right)])
    data = corpus.tasks["7"].test["7"]
    good = np.array([sign == "+" for sign in right])
    guesses = {"7": np.where(good, data.answers, 0)}
    chosen = export.choose(corpus, "7", guesses, 4)
    assert "".join(right[n] for _, n in chosen) == expected


def test_the_papers_figures():
    tables = [[float(x) for x in text.split()] for text in evaluation.PUBLISHED.values()]
    assert [len(errors) for errors in tables] == [20] * 5
    # The means that the paper gives.
    means = [13.9, 16.3, 25.8, 15.6, 12.4]
    np.testing.assert_allclose(np.mean(tables, axis=1), means, atol=0.06)


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


@pytest.fixture(scope="module")
def whole_run(data_path, tmp_path_factory):
    """The output folder of a run on files, and what the run printed."""
    output = tmp_path_factory.mktemp("run") / "output"
    started = [sys.executable, "-m", "examples.stories", "--data", str(data_path), "--output"]
    more = ["--repeats", "2", "--hops", "2", "1", *SMALL[2:]]
    run = subprocess.run(
        [*started, str(output), *more], capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stderr
    return output, run.stdout


@pytest.mark.slow
def test_what_a_run_prints(whole_run):
    _, printed = whole_run
    assert "models to train: 8; processes: " in printed
    assert printed.count("repeat 2: training error") == 4
    assert "[8/8]" in printed
    assert "2 hops, best of 2 by training error" in printed.replace("each task, ", "")
    table = re.findall(r"^ +\d made up \d +[\d.]+ +[\d.]+ ± [\d.]+$", printed, re.M)
    assert len(table) == 4
    assert len(re.findall(r"^ +mean +[\d.]+$", printed, re.M)) == 2
    assert re.search(r"a step takes [\d.]+ to [\d.]+ ms when compiled", printed)


@pytest.mark.slow
def test_the_table_is_of_the_best(whole_run):
    output, printed = whole_run
    entries = json.loads((output / "results.json").read_text())["results"]
    assert len(entries) == 8
    tables = re.findall(r"^ +(\d) made up \d +([\d.]+)", printed, re.M)
    for hop_count, rows in ((2, tables[:2]), (1, tables[2:])):
        for task, error in rows:
            found = [r for r in entries if (r["task"], r["hops"]) == (task, hop_count)]
            best = min(found, key=lambda r: (r["train_error"], r["train_loss"]))
            assert float(error) == pytest.approx(best["test_errors"][task], abs=0.051)


@pytest.mark.slow
def test_what_a_run_writes(whole_run, data_path):
    output, _ = whole_run
    for task in ("task-1", "task-2"):
        assert {file.name for file in (output / task).iterdir()} == {
            *("model.keras", "saved_model", "hops.png")
        }
    model = keras.saving.load_model(output / "task-2" / "model.keras")
    found = model([np.ones((1, 4, 3), "int32"), np.ones((1, 2), "int32")])
    assert found["hop_weights"].shape == (1, 2, 4)
    assert len(list((output / "weights").iterdir())) == 8


@pytest.mark.slow
def test_the_saved_model_takes_any_strings(whole_run, data_path):
    output, _ = whole_run
    model = tf.saved_model.load(output / "task-1" / "saved_model")
    serve = model.signatures["serving_default"]
    questions = reading.read(data_path / "qa1_made-up-1_test.txt")[:5]
    longest = max(len(q.story) for q in questions)
    texts = [" ".join(q.story) for q in questions]
    asked = [q.text for q in questions]
    texts += ["", "... !", "北京 is\x00 far. " * 40, texts[0].replace("walked", "flew")]
    asked += ["Where is Ines?", "", "Who\n?", asked[0]]
    found = serve(story=tf.constant(texts), question=tf.constant(asked))
    assert found["hop_weights"].shape[:2] == (9, 2)
    assert np.isfinite(found["probability"]).all()
    assert found["forgotten_sentences"][5:7].numpy().tolist() == [0, 0]
    assert found["forgotten_sentences"][7].numpy() > 40 - 2 * longest > 0
    flown = texts[0].count("walked")
    unknown = found["unknown_words"].numpy()
    assert unknown[:7].tolist() == [0] * 7
    assert unknown[7] == 2 * 40 + 1  # "is" is known from questions
    assert unknown[8] == flown
    for row, question in enumerate(questions):
        begins, ends = found["start_byte"][row].numpy(), found["end_byte"][row].numpy()
        spans = [texts[row][b:e] for b, e in zip(begins, ends, strict=True) if e > b]
        assert spans == list(question.story)
    # A question alone gets the same answer as in a batch.
    alone = serve(story=tf.constant(texts[3:4]), question=tf.constant(asked[3:4]))
    assert alone["answer"][0] == found["answer"][3]
    np.testing.assert_allclose(alone["probability"][0], found["probability"][3], rtol=1e-5)
    nothing = serve(story=tf.constant([], tf.string), question=tf.constant([], tf.string))
    assert nothing["answer"].shape == (0,)


@pytest.mark.slow
def test_finished_models_are_not_trained_again(whole_run, data_path, monkeypatch, capsys):
    output, _ = whole_run
    monkeypatch.setattr(workers, "run", lambda *_: pytest.fail("trained again"))
    monkeypatch.setattr(command, "save", lambda *_: None)
    arguments = ["--data", str(data_path), "--output", str(output), *SMALL[2:]]
    command.main([*arguments, "--hops", "2", "1", "--repeats", "2"])
    assert "8 of 8 models are finished already" in capsys.readouterr().out
    # A run with fewer models uses the same ones.
    command.main([*arguments, "--hops", "1", "--repeats", "1", "--task", "2"])
    assert "made up 2" in capsys.readouterr().out
    monkeypatch.setattr(workers, "run", lambda work, jobs, *_: print(len(jobs), "jobs") or [])
    command.main([*arguments, "--hops", "1", "--repeats", "3", "--task", "2"])
    assert "1 jobs" in capsys.readouterr().out


@pytest.mark.slow
def test_one_model_of_all_tasks(data_path, tmp_path, capsys):
    arguments = ["--data", str(data_path), "--output", str(tmp_path), *SMALL[2:], "--jobs", "1"]
    command.main([*arguments, "--task", "joint", "--hops", "1", "--encoding", "bag"])
    printed = capsys.readouterr().out
    assert "one model for all tasks" in printed
    (result,) = json.loads((tmp_path / "results.json").read_text())["results"]
    assert set(result["test_errors"]) == {"1", "2"}
    assert (tmp_path / "joint" / "hops.png").exists()


def children(process):
    """The children of a process, and their children."""
    path = pathlib.Path(f"/proc/{process}/task/{process}/children")
    found = [int(child) for child in path.read_text().split()]
    return found + [other for child in found for other in children(child)]


def running(process):
    path = pathlib.Path(f"/proc/{process}/stat")
    return path.exists() and path.read_text().rsplit(")", 1)[1].split()[0] != "Z"


def task_1(data_path, output, *more):
    given = ["--data", str(data_path), "--output", str(output), "--task", "1", "--jobs", "1"]
    return [sys.executable, "-m", "examples.stories", *given, *more]


@pytest.mark.exhaustive
@pytest.mark.skipif(not pathlib.Path("/proc/self/task").exists(), reason="Linux only")
def test_a_killed_run_resumes(data_path, tmp_path):
    output = tmp_path / "killed"
    more = ["--hops", "1", "--repeats", "3", "--epochs", "30", "--units", "7"]
    with subprocess.Popen(task_1(data_path, output, *more), stdout=subprocess.DEVNULL) as run:
        wait_for((output / "results.json").exists)
        started = children(run.pid)
        run.send_signal(signal.SIGKILL)
    assert started
    # The processes that it had started end too.
    wait_for(lambda: not any(map(running, started)), 20)
    before = json.loads((output / "results.json").read_text())["results"]
    assert 1 <= len(before) < 3
    again = subprocess.run(
        task_1(data_path, output, *more), capture_output=True, text=True, check=False
    )
    assert again.returncode == 0, again.stderr
    assert f"{len(before)} of 3 models are finished already" in again.stdout
    after = json.loads((output / "results.json").read_text())["results"]
    assert after[: len(before)] == before
    assert sorted(r["repeat"] for r in after) == [1, 2, 3]


@pytest.mark.slow
@pytest.mark.skipif(not hasattr(os, "killpg"), reason="needs process groups")
@pytest.mark.parametrize("early", [False, True], ids=["in training", "at once"])
def test_a_run_is_stopped(data_path, tmp_path, early):
    more = ["--hops", "1", "--repeats", "2", *(["--epochs", "100000"] if early else SMALL[2:])]
    run = subprocess.Popen(
        task_1(data_path, tmp_path, *more),
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    with run:
        wanted = "models to train: 2" if early else "[1/2]"
        for line in run.stdout:
            if wanted in line:
                break
        # The terminal sends Ctrl-C to all processes.
        os.killpg(run.pid, signal.SIGINT)
        rest, _ = run.communicate(timeout=120)
    assert "the memory was full" not in rest
    if early or "[2/2]" not in rest:
        assert run.returncode == 1
        assert not list((tmp_path / "task-1").iterdir())


# --- command line --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "fragment"),
    [
        (["--data", ""], "--data is empty"),
        (["--data", "x", "--questions", "9"], "--questions are for the generated stories"),
        (["--task", "one"], "--task takes numbers, or all, or joint; received one"),
        (["--task", "joint", "1"], "received joint 1"),
        (["--hops", "0"], "--hops must be at least 1; received 0"),
        (["--noise", "1"], "--noise must be in [0, 1)"),
        (["--learning-rate", "nan"], "--learning-rate must be in [0, inf)"),
        (["--repeats", "0"], "--repeats must be at least 1"),
        (["--memory", "0"], "--memory must be at least 1"),
        (["--jobs", "0"], "--jobs must be at least 1"),
        (["--questions", "19"], "--questions must be at least 20; received 19"),
        (["--size", "10k"], "--size is for the files of --data"),
        (["--seed", "-1"], "--seed must be in"),
    ],
)
def test_bad_arguments(arguments, fragment, capsys):
    with pytest.raises(SystemExit):
        command.parse(arguments)
    assert fragment in capsys.readouterr().err


def test_defaults():
    one, joint = command.parse([]), command.parse(["--data", "x", "--task", "joint"])
    assert (one.units, one.epochs, one.linear_epochs, one.hops) == (20, 100, 20, [3, 1])
    assert (joint.units, joint.epochs, joint.linear_epochs, joint.hops) == (50, 60, 30, [3])


def test_a_task_that_is_not_there(data_path, tmp_path):
    given = ["--data", str(data_path), "--output", str(tmp_path / "x")]
    with pytest.raises(SystemExit, match=r"--task 1 7: .* has the tasks 1, 2\."):
        command.main([*given, "--task", "1", "7"])
    assert not (tmp_path / "x").exists()


def test_too_few_questions(data_path, tmp_path):
    text = "1 Ann is home.\n2 Where is Ann?\thome\t1\n"
    for kind in ("train", "test"):
        (tmp_path / f"qa1_a_{kind}.txt").write_text(text)
    with pytest.raises(SystemExit, match="task 1: 1 questions to train on, fewer than 20"):
        command.main(["--data", str(tmp_path), "--output", str(tmp_path / "x")])
    assert not (tmp_path / "x").exists()


@pytest.mark.slow
def test_results_of_other_settings_are_refused(whole_run, data_path):
    output, _ = whole_run
    before = (output / "results.json").read_text()
    with pytest.raises(SystemExit, match="units: 7 then, 8 now"):
        command.main(["--data", str(data_path), "--output", str(output), *SMALL[2:-1], "8"])
    assert (output / "results.json").read_text() == before


def test_results_are_read_again(tmp_path):
    Results(tmp_path / "results.json", {"a": 1}).add({"task": "1"})
    (tmp_path / "results.json").write_text('{"arguments"')
    with pytest.raises(SystemExit, match="cannot be read"):
        training.Models(tmp_path, {"a": 1})
