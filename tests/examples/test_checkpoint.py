"""Files of the tasks: written completely or not at all, resumed, or refused with a reason."""

import contextlib
import errno
import importlib
import json
import tempfile

import keras
import numpy as np
import pytest
import tensorflow as tf

from examples.common import checkpoint, files, saving
from examples.common.results import Results


@contextlib.contextmanager
def full_disk(size=20_000):
    """Limits every file to `size` bytes, even for root."""
    resource = pytest.importorskip("resource", reason="the limit is one of Unix")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)


def make_layers():
    x = keras.Input((50,))
    return keras.Model(x, keras.layers.Dense(3)(keras.layers.Dense(100)(x)))


def make_model():
    model = make_layers()
    model.compile(keras.optimizers.Adam(0.01), "mse")
    return model


def train(model, seed):
    x = np.random.default_rng(seed).normal(size=(7, 50)).astype("float32")
    model.train_on_batch(x, x[:, :3])
    return model.get_weights()


def names(folder):
    return sorted(path.name for path in folder.iterdir())


# --- writing -------------------------------------------------------------------------------------


def write_figure(path):
    from matplotlib.figure import Figure

    figure = Figure(figsize=(20, 20))
    axes = figure.subplots()
    axes.imshow(np.random.default_rng(0).normal(size=(200, 200)))
    files.save_figure(path, figure)


def write_saved_model(path):
    table = tf.Module()
    table.numbers = tf.Variable(np.random.default_rng(0).normal(size=10_000))

    def serve(texts):
        return {"sum": tf.reduce_sum(table.numbers) + tf.cast(tf.size(texts), "float64")}

    saving.write_saved_model(path, serve, ["texts"], [table])


WRITERS = {
    "a.txt": lambda path: files.write_text(path, "x" * 30_000),
    "a.png": write_figure,
    "a.keras": lambda path: saving.write_model(make_layers(), path, np.ones((2, 50), "float32")),
    "saved_model": write_saved_model,
}


@pytest.mark.parametrize("name", WRITERS)
def test_a_full_disk_leaves_the_earlier_results(name, tmp_path):
    path = tmp_path / name
    WRITERS[name](path)
    assert names(tmp_path) == [name]
    before = {file: file.read_bytes() for file in tmp_path.rglob("*") if file.is_file()}
    with full_disk(), pytest.raises(SystemExit) as error:
        WRITERS[name](path)
    assert str(error.value).startswith(f"{path} cannot be written: ")
    assert "File too large" in str(error.value)
    assert "\n" not in str(error.value)
    assert {file: file.read_bytes() for file in tmp_path.rglob("*") if file.is_file()} == before
    assert names(tmp_path) == [name]


def test_a_full_disk_leaves_the_last_checkpoint(tmp_path):
    model = make_model()
    saved = checkpoint.Checkpoint(tmp_path / "run", {})
    saved.restore(model)
    before = train(model, 0)
    saved.save(model, {"epoch": 1, "valid_loss": 1.0})
    before_it = names(tmp_path / "run")
    train(model, 1)
    with full_disk(), pytest.raises(SystemExit, match=r"epoch-002\.weights\.h5 cannot be written"):
        saved.save(model, {"epoch": 2, "valid_loss": 0.5})
    assert names(tmp_path / "run") == before_it
    again = make_model()
    saved = checkpoint.Checkpoint(tmp_path / "run", {})
    assert saved.restore(again) == 1
    for x, y in zip(again.get_weights(), before, strict=True):
        np.testing.assert_array_equal(x, y)
    saved.save(again, {"epoch": 2, "valid_loss": 0.5})


@pytest.mark.parametrize("place", ["file", "folder"])
def test_what_stands_in_the_way_is_named(place, tmp_path):
    path = tmp_path / "a.txt"
    (path / "b").mkdir(parents=True)
    if place == "file":
        path = path / "b" / "c" / "d"
        (tmp_path / "a.txt" / "b" / "c").write_text("x")
    before = sorted(tmp_path.rglob("*"))
    with pytest.raises(SystemExit, match=r"cannot be written: (Is a directory|Not a directory)"):
        files.write_text(path, "x")
    assert sorted(tmp_path.rglob("*")) == before


def test_an_interrupted_writer_leaves_no_temporary_file(tmp_path):
    class Figure:
        def savefig(self, path, format):
            path.write_text("half")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        files.save_figure(tmp_path / "a.png", Figure())
    assert names(tmp_path) == []


def test_a_folder_that_cannot_be_written_is_refused_at_once(tmp_path, monkeypatch):
    assert files.make_folder(tmp_path / "a" / "b").is_dir()
    assert names(tmp_path / "a" / "b") == []

    def refuse(*_, **__):
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr(tempfile, "TemporaryFile", refuse)
    with pytest.raises(SystemExit, match=r"--output .*: Read-only file system\. Choose a folder"):
        files.make_folder(tmp_path)


# For each task the options, the function that begins the work, and a folder inside the output.
TASKS = {
    "documents": (["--documents", "60"], "run_fold", "average"),
    "question_answering": (["--steps", "1"], "run", "none"),
    "stories": (["--questions", "40"], "train_all", "task-3"),
    "translation": ([], "learn_subwords", "checkpoint-none"),
    "tuning": (["--pairs", "60"], "search", "bayesian"),
}


def refused_at_once(name, output, monkeypatch):
    """The message of a task that refuses to begin its work. The task writes nothing."""
    command = importlib.import_module(f"examples.{name}.__main__")
    arguments, work, _ = TASKS[name]
    before = [path for path in output.rglob("*") if path.is_file()]
    monkeypatch.setattr(command, "check_extras", lambda *_, **__: None)
    monkeypatch.setattr(command, work, lambda *_, **__: pytest.fail("began to work"))
    with pytest.raises(SystemExit) as error:
        command.main([*arguments, "--output", str(output)])
    assert [path for path in output.rglob("*") if path.is_file()] == before
    return str(error.value)


@pytest.mark.parametrize("name", TASKS)
def test_a_task_refuses_a_folder_that_cannot_be_written(name, tmp_path, monkeypatch):
    temporary = tempfile.TemporaryFile

    def refuse(*given, dir=None, **options):
        if dir is None:
            return temporary(*given, **options)
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr(tempfile, "TemporaryFile", refuse)
    message = refused_at_once(name, tmp_path, monkeypatch)
    assert message.startswith(f"--output {tmp_path}")
    assert message.endswith(": Read-only file system. Choose a folder that can be written.")


@pytest.mark.parametrize("name", TASKS)
def test_a_task_refuses_an_inner_folder_that_cannot_be_written(name, tmp_path, monkeypatch):
    path = tmp_path / TASKS[name][-1]
    path.write_text("no folder")
    assert f"--output {path}: File exists. Choose a" in refused_at_once(name, tmp_path, monkeypatch)


# --- reading -------------------------------------------------------------------------------------


def flip(path, position):
    """Changes one bit."""
    data = bytearray(path.read_bytes())
    data[position] ^= 1
    path.write_bytes(data)


def truncate(path):
    path.write_bytes(path.read_bytes()[:3000])


DAMAGES = {
    "altered": (lambda path: flip(path, path.stat().st_size // 2), "was changed after"),
    "truncated": (truncate, "was changed after"),
    "overwritten": (lambda path: path.write_text("something else"), "was changed after"),
    "missing": (lambda path: path.unlink(), "cannot be read"),
}


def make_run(folder):
    """Saves two epochs; the first one is the best."""
    model = make_model()
    saved = checkpoint.Checkpoint(folder, {"a": 1})
    saved.restore(model)
    kept = []
    for epoch, loss in ((1, 0.5), (2, 0.75)):
        kept.append(train(model, epoch))
        saved.save(model, {"epoch": epoch, "valid_loss": loss})
    assert names(folder) == ["best-001.weights.h5", "epoch-002.weights.h5", "state.json"]
    return kept


def test_a_checkpoint_is_read_as_it_was_written(tmp_path):
    kept = make_run(tmp_path)
    model = make_model()
    saved = checkpoint.Checkpoint(tmp_path, {"a": 1})
    assert saved.restore(model) == 2
    assert int(model.optimizer.iterations) == 2
    for x, y in zip(model.get_weights(), kept[1], strict=True):
        np.testing.assert_array_equal(x, y)
    saved.load_best(model)
    for x, y in zip(model.get_weights(), kept[0], strict=True):
        np.testing.assert_array_equal(x, y)


@pytest.mark.parametrize("damage", DAMAGES)
@pytest.mark.parametrize("name", ["best-001.weights.h5", "epoch-002.weights.h5"])
def test_weights_that_were_changed_are_refused_by_name(name, damage, tmp_path):
    make_run(tmp_path)
    change, message = DAMAGES[damage]
    change(tmp_path / name)
    saved = checkpoint.Checkpoint(tmp_path, {"a": 1})
    with pytest.raises(SystemExit) as error:
        # Before any training.
        saved.restore(make_model())
    assert str(error.value).startswith(f"{tmp_path / name} {message}")
    assert f"Delete {tmp_path} to start again, or choose another --output." in str(error.value)
    if name.startswith("best"):
        with pytest.raises(SystemExit, match=f"{name} {message}"):
            saved.load_best(make_model())


def test_a_state_that_was_changed_is_refused_by_name(tmp_path):
    make_run(tmp_path)
    path = tmp_path / "state.json"
    text = path.read_text()
    path.write_text(text.replace("0.75", "0.25"))
    with pytest.raises(SystemExit, match=r"state\.json was changed after it was written"):
        checkpoint.Checkpoint(tmp_path, {"a": 1})
    # A state without a digest is refused too.
    state = json.loads(text)
    path.write_text(json.dumps({name: state[name] for name in ("arguments", "epoch", "history")}))
    with pytest.raises(SystemExit, match=r"state\.json cannot be read .it is not of this program"):
        checkpoint.Checkpoint(tmp_path, {"a": 1})


def test_results_that_were_changed_are_refused_by_name(tmp_path):
    path = tmp_path / "results.json"
    Results(path, {"a": 1}).add({"accuracy": 91.5, "name": "naïve ☃"})
    assert Results(path, {"a": 1}).find(accuracy=91.5)["name"] == "naïve ☃"
    path.write_text(path.read_text().replace("91.5", "97.5"))
    with pytest.raises(SystemExit, match=r"results\.json was changed after it was written"):
        Results(path, {"a": 1})
