"""Batches, model files, and runs that are killed at any moment: they end with the same weights."""

import gc
import pathlib
import shutil

import keras
import numpy as np
import pytest

from examples.common import training
from examples.common.training import Batches, Resume, seed_model
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
    resume.fit(model, EPOCHS, (X[20:], Y[20:]), best)
    last = model.get_weights()
    resume.load_best(model)
    return last, model.get_weights(), resume.losses("val_loss")


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    folder = tmp_path_factory.mktemp("whole")
    return folder, *train(folder)


MOMENTS = {
    "best weights": (keras.callbacks.ModelCheckpoint, "on_epoch_end"),
    "log": (keras.callbacks.CSVLogger, "on_epoch_end"),
    "weights": (keras.Model, "save_weights"),
    "replacing": (pathlib.Path, "replace"),
}


@pytest.mark.filterwarnings("ignore:Exception ignored in.*log.csv")
@pytest.mark.parametrize("after", fast([False, True], [False]), ids=["before", "after"])
@pytest.mark.parametrize("moment", fast(MOMENTS, ["replacing"], slow=3))
@pytest.mark.each_value(slow=3)  # moments
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
    last, best, losses = train(tmp_path)
    for x, y in zip([*last, *best], [*whole[1], *whole[2]], strict=True):
        np.testing.assert_array_equal(x, y)
    assert losses == pytest.approx(whole[3], rel=1e-6)
    assert list(losses) == list(range(EPOCHS))
    names = {path.name for path in tmp_path.iterdir()}
    assert names == {"last.weights.h5", "best.weights.h5", "log.csv", "settings.json"}


def test_a_best_epoch_before_the_kill_stays_the_best(tmp_path, monkeypatch):
    *_, losses = train(tmp_path)
    best = (tmp_path / "best.weights.h5").read_bytes()
    monkeypatch.setattr("tests.examples.test_training.EPOCHS", EPOCHS + 1)
    *_, longer = train(tmp_path)
    unchanged = (tmp_path / "best.weights.h5").read_bytes() == best
    assert unchanged == (longer[len(losses)] >= min(losses.values()))


FILES = {"last.weights.h5": "{", "settings.json": "{", "log.csv": "epoch,loss\n0,1.0\n"}


# `CSVLogger` does not close its file where `fit` ends with an error.
@pytest.mark.filterwarnings("ignore:Exception ignored in.*log.csv")
def test_another_run_and_a_run_that_diverges_are_refused(tmp_path, monkeypatch):
    with monkeypatch.context() as patched:
        patched.setattr("tests.examples.test_training.Y", Y * np.inf)
        with pytest.raises(SystemExit, match=r"diverged: loss \S+ after epoch 1. Lower the"):
            train(tmp_path, best=None)
    gc.collect()
    assert not (tmp_path / "last.weights.h5").exists()
    monkeypatch.setitem(SETTINGS, "rate", 0.2)
    with pytest.raises(SystemExit, match=r"rate: 0.1 then, 0.2 now.*another --output"):
        train(tmp_path)


@pytest.mark.parametrize(("name", "content"), FILES.items())
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

    read = np.ndarray.tolist
    batches = Batches(split, read, seed=1, steps=5)
    wanted = [read(x) for n in range(12) for x in split(np.random.default_rng([1, n]))]
    got = []
    for batches.epoch in range(7):
        got += [*batches()]
        assert [*batches()] == got[-5:]
    assert got == wanted[:35]
    for epoch in (6, 2):
        later = Batches(split, read, seed=1, steps=5)
        later.epoch = epoch
        assert [*later()] == wanted[5 * epoch : 5 * epoch + 5]
    assert Batches(split, read, seed=1).steps == len(split(np.random.default_rng([1, 0])))


@pytest.mark.parametrize("count", [0, 1, 7, 120])
@pytest.mark.parametrize("size", [1, 6])
@pytest.mark.parametrize("cells", [None, 1, 30, 150])
@pytest.mark.parametrize("seed", [None, 3])
@pytest.mark.each_value
def test_batches_within_a_budget(count, size, cells, seed):
    sizes = rng.integers(0, (13, 10), (count, 2))
    orders = [None if seed is None else np.random.default_rng(seed) for _ in range(2)]
    batches, again = (training.bucketed(sizes, size, order, cells) for order in orders)
    assert sorted(n for batch in batches for n in batch) == list(range(len(sizes)))
    for batch, same in zip(batches, again, strict=True):
        assert np.array_equal(batch, same)
        assert 1 <= len(batch) <= size
        if cells:
            assert len(batch) == 1 or len(batch) * sizes[batch].max(0).prod() <= cells


def make_model(scale=1.0):
    x = keras.Input((5,))
    heads = [keras.layers.Dense(n, kernel_initializer="ones")(x) for n in (2, 7)]
    # Only the last output changes, so all outputs must be compared.
    return keras.Model(x, {"a": heads[0], "b": [keras.layers.Rescaling(scale)(heads[1])]})


def test_a_model_is_written_and_read_again(tmp_path):
    model, path = make_model(), tmp_path / "model.keras"
    path.write_text("an old one")
    found = training.write_model(model, path, X[:3])
    assert [file.name for file in tmp_path.iterdir()] == ["model.keras"]
    again = keras.saving.load_model(path).predict_on_batch(X[:3])
    keras.tree.map_structure(np.testing.assert_array_equal, found, again)


@pytest.mark.parametrize("scale", [1 + 1e-4, np.nan, None])
def test_a_file_that_differs_is_noticed(scale, tmp_path, monkeypatch):
    """Also by the smallest change of a weight, although no prediction shows it."""

    def load(path):
        model = make_model(scale or 1.0)
        if scale is None:
            model.weights[0].assign(np.nextafter(model.weights[0].numpy(), 2))
        return model

    monkeypatch.setattr(keras.saving, "load_model", load)
    with pytest.raises(SystemExit, match=r"model\.keras (differs by|has other weights)"):
        training.write_model(make_model(), tmp_path / "model.keras", X[:3])
