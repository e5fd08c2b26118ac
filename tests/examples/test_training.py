"""A run that is killed at any moment and started again ends with the same weights."""

import csv
import gc
import pathlib
import shutil

import keras
import numpy as np
import pytest

from examples.common import files, training
from examples.common.training import Batches, Resume, moving_average, pair_batches, seed_model
from tests import Killed, fast

EPOCHS = 3
SETTINGS = {"seed": 3, "rate": 0.1}
rng = np.random.default_rng(0)
X, Y = rng.normal(size=(24, 5)).astype("float32"), rng.normal(size=(24, 1)).astype("float32")


def train(folder, best="val_loss"):
    seed_model(1)
    inputs = keras.Input((5,))
    hidden = keras.layers.Dropout(0.3, seed=1)(keras.layers.Dense(7, "tanh")(inputs))
    model = keras.Model(inputs, keras.layers.Dense(1)(hidden))

    def split(order):
        return np.split(order.permutation(20), 5)

    batches = Batches(split, lambda rows: (X[rows], Y[rows]), seed=3, steps=4)
    resume = Resume(folder, SETTINGS, batches)
    # Eager, because a graph takes longer to trace than these steps take to run.
    model.compile(keras.optimizers.Adam(0.1), "mse", run_eagerly=True)
    start = resume.restore(model)
    options = {"validation_data": (X[20:], Y[20:]), "verbose": 0, "shuffle": False}
    callbacks = resume.callbacks(best)
    model.fit(batches.dataset(), epochs=EPOCHS, initial_epoch=start, callbacks=callbacks, **options)
    last = model.get_weights()
    resume.load_best(model)
    return last, model.get_weights(), resume.history


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A finished run: its folder, its last and best weights, and its log."""
    folder = tmp_path_factory.mktemp("whole")
    return folder, *train(folder)


MOMENTS = {
    "best weights": (keras.callbacks.ModelCheckpoint, "on_epoch_end"),
    "log": (keras.callbacks.CSVLogger, "on_epoch_end"),
    "weights": (keras.Model, "save_weights"),
    "replacing": (pathlib.Path, "replace"),
    "removing": (training, "remove"),
}
# The default run kills where the state of a run is written.
moments_first = [
    x if x == "replacing" else pytest.param(x, marks=pytest.mark.slow) for x in MOMENTS
]


# `CSVLogger` does not close its file where `fit` ends with an error.
@pytest.mark.filterwarnings("ignore:Exception ignored in.*log.csv")
@pytest.mark.parametrize("after", fast([False, True], [False]), ids=["before", "after"])
@pytest.mark.parametrize("moment", moments_first)
@pytest.mark.each_value(slow=4)  # moments
def test_a_killed_run_ends_with_the_same_weights(moment, after, whole, tmp_path, monkeypatch):
    owner, name = MOMENTS[moment]
    function, calls = getattr(owner, name), []

    def killed(*args, **kwargs):
        if "settings" in str(args[0]):  # written before the training
            return function(*args, **kwargs)
        calls.append(args)
        if len(calls) == 2 and not after:
            raise Killed
        result = function(*args, **kwargs)
        if len(calls) == 2:
            raise Killed
        return result

    with monkeypatch.context() as patched:
        patched.setattr(owner, name, killed)
        with pytest.raises(Killed):
            train(tmp_path)
    gc.collect()
    last, best, history = train(tmp_path)
    for x, y in zip([*last, *best], [*whole[1], *whole[2]], strict=True):
        np.testing.assert_array_equal(x, y)
    assert [row["epoch"] for row in history] == list(range(EPOCHS))
    losses = [[row["loss"] for row in rows] for rows in (history, whole[3])]
    np.testing.assert_allclose(*losses, rtol=1e-6)
    names = {path.name for path in tmp_path.iterdir()}
    kept = {f"epoch-{EPOCHS:04d}.weights.h5", "best.weights.h5", "log.csv", "settings.json"}
    assert names >= kept
    assert not [name for name in names if name.startswith("tmp-")]


def test_a_best_epoch_before_the_kill_stays_the_best(tmp_path, monkeypatch):
    train(tmp_path)
    best = (tmp_path / "best.weights.h5").read_bytes()
    with open(tmp_path / "log.csv", encoding="utf-8") as file:
        losses = [float(row["val_loss"]) for row in csv.DictReader(file)]
    monkeypatch.setattr("tests.examples.test_training.EPOCHS", EPOCHS + 1)
    *_, history = train(tmp_path)
    unchanged = (tmp_path / "best.weights.h5").read_bytes() == best
    assert unchanged == (history[-1]["val_loss"] >= min(losses))


def test_a_folder_of_another_run_is_refused(tmp_path, monkeypatch):
    train(tmp_path)
    monkeypatch.setitem(SETTINGS, "rate", 0.2)
    with pytest.raises(SystemExit, match=r"rate: 0.1 then, 0.2 now.*another --output"):
        train(tmp_path)


@pytest.mark.parametrize(
    ("name", "content"),
    [
        (f"epoch-{EPOCHS:04d}.weights.h5", "{"),
        ("settings.json", "{"),
        ("log.csv", ""),
        ("log.csv", "epoch,loss\n0,1.0,2.0\n1,1.0\n2,1.0\n"),
    ],
)
def test_damaged_files_are_refused(name, content, whole, tmp_path):
    shutil.copytree(whole[0], tmp_path, dirs_exist_ok=True)
    (tmp_path / name).write_text(content)
    with pytest.raises(SystemExit, match=rf"{name}: cannot be used .* Delete {tmp_path}"):
        train(tmp_path)


def test_passes_go_on_from_epoch_to_epoch_in_their_own_orders():
    sizes = [4, 6, 3]

    def split(order):
        rows = order.permutation(20)
        return np.array_split(rows, sizes[rows[0] % 3])

    def read(rows):
        return rows.tolist()

    batches = Batches(split, read, seed=1, steps=5)
    wanted = [read(x) for n in range(12) for x in split(np.random.default_rng([1, n]))]
    got = []
    for batches.epoch in range(7):
        got += [[*batches()], [*batches()]][0]
    assert got == wanted[:35]
    for epoch in (6, 2):
        later = Batches(split, read, seed=1, steps=5)
        later.epoch = epoch
        assert [*later()] == wanted[5 * epoch : 5 * epoch + 5]
    assert Batches(split, read, seed=1).steps == len(split(np.random.default_rng([1, 0])))


def test_an_epoch_does_not_wait_for_the_tuning_of_its_dataset():
    """TensorFlow would stop its thread only when that wakes up, which takes up to a minute."""
    batches = Batches(lambda order: [np.arange(3)], lambda rows: (X[rows], Y[rows]), seed=3)
    assert batches.dataset().options().autotune.enabled is False


def test_a_dataset_knows_the_size_of_equal_batches():
    """Where TensorFlow does not know it, an LSTM of Keras takes a tenth more time on a CPU."""

    def shapes(size):
        batches = Batches(lambda order: [np.arange(3)], lambda rows: (X[rows], Y[rows]), 3, 1, size)
        return [tuple(x.shape) for x in batches.dataset().element_spec]

    assert shapes(3) == [(3, *(None,) * (X.ndim - 1)), (3, *(None,) * (Y.ndim - 1))]
    assert {shape[0] for shape in shapes(None)} == {None}


@pytest.mark.parametrize("steps", [1, 2, 5, 150])
def test_moving_averages_forget_the_first_weights(steps):
    """A momentum of 0.998 would keep three quarters of them after 150 steps."""
    weight, zero = keras.Variable(0.0), keras.ops.zeros(())
    optimizer = keras.optimizers.SGD(1.0, **moving_average(0.998, steps))
    optimizer.build([weight])
    for _ in range(steps):
        optimizer.apply([zero])
        weight.assign(1.0)
    optimizer.apply([zero])
    optimizer.finalize_variable_values([weight])
    assert float(weight) >= 0.95
    assert moving_average(0.998, 1500)["ema_momentum"] == 0.998


@pytest.mark.filterwarnings("ignore:Exception ignored in.*log.csv")
def test_divergence_ends_the_run_without_a_state(tmp_path, monkeypatch):
    monkeypatch.setattr("tests.examples.test_training.Y", Y * np.inf)
    with pytest.raises(SystemExit, match=r"diverged: loss \S+ after epoch 1. Lower the"):
        train(tmp_path, best=None)
    gc.collect()
    assert not [*tmp_path.glob("epoch-*")]


def test_a_folder_that_cannot_be_written_is_refused(tmp_path):
    (tmp_path / "file").write_text("x")
    with pytest.raises(SystemExit, match=r"--output .*file.* Choose a folder that can be written"):
        Resume(tmp_path / "file" / "run", SETTINGS)


FULL = r"file.txt cannot be written: disk full\. Earlier results are unchanged"


@pytest.mark.parametrize(
    ("error", "raised", "message"),
    [(Killed(), Killed, None), (OSError("disk full"), SystemExit, FULL)],
)
def test_a_file_is_replaced_only_when_the_new_one_is_complete(error, raised, message, tmp_path):
    path = tmp_path / "file.txt"
    files.write_text(path, "old")

    def write():
        with files.whole_file(path) as temporary:
            temporary.write_text("half")
            raise error

    with pytest.raises(raised, match=message):
        write()
    assert path.read_text() == "old"
    assert [*tmp_path.iterdir()] == [path]


def test_results_are_found_again_and_belong_to_their_settings(tmp_path):
    results = files.Results(tmp_path / "results.json", {"seed": 1, "sizes": (2, 3)})
    results.add({"task": 1, "error": 0.5})
    again = files.Results(tmp_path / "results.json", {"seed": 1, "sizes": (2, 3)})
    assert again.find(task=1) == {"task": 1, "error": 0.5}
    assert again.find(task=2) is None
    with pytest.raises(SystemExit, match=r"sizes: \[2, 3\] then, \[2, 4\] now"):
        files.Results(tmp_path / "results.json", {"seed": 1, "sizes": (2, 4)})
    for content in ("[", "{}"):
        (tmp_path / "results.json").write_text(content)
        with pytest.raises(SystemExit, match=r"results.json: cannot be used .* Delete"):
            files.Results(tmp_path / "results.json", {"seed": 1, "sizes": (2, 3)})


def test_batches_hold_every_pair_once():
    rows = range(23)
    pairs = [([5 + i] * (1 + i % 7) + [3], [6 + i] * (1 + i % 5) + [3]) for i in rows]
    seen = []
    for pair, again in pair_batches(pairs, 4, seed=1)():
        assert again is pair[1]
        assert len(again) <= 4
        assert [x.shape[1] % 4 for x in pair] == [0, 0]
        for row in zip(*pair, strict=True):
            lists = tuple(x[x != 0].tolist() for x in row)
            assert all(not x[len(ids) :].any() for x, ids in zip(row, lists, strict=True))
            seen.append(lists)
    assert sorted(seen) == sorted(pairs)
    assert seen != pairs
    lengths = [len(x[0]) for (x, _), _ in pair_batches(pairs, 4)()]
    assert lengths == sorted(lengths)


def test_ids_are_padded_and_never_cut():
    assert training.pad([[5, 6], []]).tolist() == [[5, 6, 0, 0], [0] * 4]


class Time:
    """Stands in for the module `time`: every step takes as long as a table says."""

    now = 0.0

    def perf_counter(self):
        return self.now


@pytest.fixture
def clock(monkeypatch):
    monkeypatch.setattr(training, "time", Time())
    return training.time


def run_epochs(progress, clock, first, epochs, start=0, steps=10, validated=3, logs=None):
    """Calls a callback as `fit` does: steps of 2 seconds, and of 1 second in validation.

    In the first epoch, the first step of both takes `first` seconds more. Returns the logs of each
    epoch.
    """
    found = []
    progress.set_params({"epochs": epochs})
    progress.on_train_begin()
    for epoch in range(start, epochs):
        progress.on_epoch_begin(epoch)
        extra = first * (epoch == start)
        for step in range(steps):
            clock.now += 2 + extra * (step == 0)
            progress.on_train_batch_end(step)
        progress.on_test_begin()
        for step in range(validated):
            clock.now += 1 + extra * (step == 0)
            progress.on_test_batch_end(step)
        found.append({"loss": 0.5, **(logs or {})})
        progress.on_epoch_end(epoch, found[-1])
    return found


@pytest.mark.parametrize("start", [0, 3])
@pytest.mark.parametrize("steps", [2, 10])
def test_the_time_left_is_right_from_the_first_epoch(start, steps, clock):
    logs = run_epochs(training.Progress(), clock, 50, 6, start, steps)
    epoch = 2 * steps + 3
    left = [row["minutes_left"] * 60 for row in logs]
    np.testing.assert_allclose(left, [epoch * n for n in reversed(range(6 - start))])
    assert [row["seconds"] for row in logs] == [epoch + 100, *[epoch] * (5 - start)]


def test_further_trainings_trace_too(clock):
    logs = run_epochs(training.Progress(trainings=3), clock, 50, 6)
    left = [row["minutes_left"] * 60 for row in logs]
    np.testing.assert_allclose(left, [2 * 100 + 23 * (17 - n) for n in range(6)])


def test_a_step_that_is_somewhat_longer_is_not_taken_for_tracing(clock):
    timer = training.Clock()
    for first, steady in ((3.9, 23.9), (4.1, 20)):  # more than the 2 seconds of the others
        before = timer.steady
        run_epochs(timer, clock, first, 1, validated=0)
        assert timer.steady - before == pytest.approx(steady)


def test_a_log_has_a_line_a_minute(clock, capsys):
    """20 epochs of 23 seconds; the first takes 33 seconds."""
    run_epochs(training.Progress(), clock, 5, 20, logs={"val_loss": 1.23456})
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(":")[0] for line in lines] == [
        *(f"epoch {n} of 20" for n in (3, 6, 9, 12, 15, 18, 20))
    ]
    assert lines[0] == "epoch 3 of 20: loss 0.5, val_loss 1.235, about 7 min left"
    assert lines[-2].endswith("less than a minute left")
    assert lines[-1] == "epoch 20 of 20: loss 0.5, val_loss 1.235"
    run_epochs(training.Progress(trainings=0), clock, 5, 20)
    assert "left" not in capsys.readouterr().out


def test_a_terminal_shows_the_time_left_between_epochs(clock, capsys, monkeypatch):
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    run_epochs(training.Progress(), clock, 5, 4)
    assert capsys.readouterr().out.splitlines() == [
        *["about 1 min left"],
        *["less than a minute left"] * 2,
    ]


def test_the_bar_of_keras_shows_no_times(tmp_path, capsys):
    seed_model(1)
    model = keras.Sequential([keras.Input((5,)), keras.layers.Dense(1)])
    model.compile("sgd", "mse", run_eagerly=True)
    resume = Resume(tmp_path, SETTINGS)
    model.fit(X, Y, epochs=2, verbose=2, callbacks=resume.callbacks())
    assert "minutes_left" not in capsys.readouterr().out
    assert [row["minutes_left"] > 0 for row in resume.history] == [True, False]
    assert all(row["seconds"] > 0 for row in resume.history)
