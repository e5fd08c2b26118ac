"""A run that is killed and started again ends as one that was not; training on several devices."""

import io
import json
import os
import re
import signal
import subprocess
import sys
import zipfile

import h5py
import numpy as np
import pytest

from examples.common import dates
from examples.translation.shards import write_shards
from tests import ROOT, fast
from tests.examples import arrays_in
from tests.helpers import wait_for

# Each has at least four epochs. The last argument names the folder of the state of the first model.
SMALL = {
    "question_answering": (
        "--units 3 --batch-size 40 --steps 30 --save-every 5 --flow none", "none/checkpoint"),
    "speech": (
        "listen --attention monotonic --units 8 --utterances 40 --longest 3 --lengths 2 "
        "--epochs 5 --batch-size 8 --beam 2", "listen/checkpoint"),
    "translation": (
        "--attention none --units 6 --embedding 5 --vocabulary 99 --batch-size 8 --steps 60 "
        "--save-every 10 --beam 2 --dropout 0.3", "checkpoint-none-1"),
}  # fmt: skip


def arguments_of(task, folder):
    """The options of a small run, for the translation with shards of dates."""
    options, checkpoint = SMALL[task]
    if task == "translation":
        pytest.importorskip("grain", reason="it reads the shards")
        sides, few = dates.make_pairs((300, 8), seed=3)
        for name, pair in (("train", sides), ("few", few)):
            for side, texts in zip("ab", pair, strict=True):
                (folder / f"{name}.{side}").write_text("\n".join(texts) + "\n", encoding="utf-8")
        write_shards([folder / "train.a", folder / "train.b"], folder / "shards")
        few = f"{folder / 'few.a'} {folder / 'few.b'}"
        options += f" --shards {folder / 'shards'} --valid {few} --test {few}"
    return [sys.executable, "-m", f"examples.{task}", *options.split()], checkpoint


def files_of(output):
    [path] = output.rglob("model.keras")
    with zipfile.ZipFile(path) as archive, archive.open("model.weights.h5") as stored:
        weights = arrays_in(h5py.File(io.BytesIO(stored.read())))
    [summary] = output.rglob("summary.json")
    return json.loads(summary.read_text(encoding="utf-8")), weights


@pytest.mark.slow
@pytest.mark.parametrize("task", fast(SMALL, ["translation"], slow=0))
def test_a_killed_command_ends_with_the_same_weights(task, tmp_path):
    command, checkpoint = arguments_of(task, tmp_path)
    options = {"cwd": ROOT, "stdout": subprocess.PIPE, "stderr": subprocess.STDOUT, "text": True}
    whole, killed = tmp_path / "whole", tmp_path / "killed"

    def run(folder):
        done = subprocess.run([*command, "--output", folder], **options, check=False)
        assert done.returncode == 0, done.stdout
        return done.stdout

    run(whole)
    with subprocess.Popen([*command, "--output", killed], **options) as process:
        wait_for((killed / checkpoint / "last.weights.h5").exists)
        process.send_signal(signal.SIGKILL)
    assert "Resuming after epoch" in run(killed)
    (summary, weights), (others, expected) = files_of(killed), files_of(whole)
    assert summary == others
    assert weights.keys() == expected.keys()
    for name, x in weights.items():
        np.testing.assert_array_equal(x, expected[name], err_msg=name)


SCRIPT = ROOT / "examples" / "train_on_devices.py"


def start(*command, devices=4, **settings):
    settings |= {"JAX_PLATFORMS": "cpu", "PYTHONPATH": str(ROOT), "JAX_NUM_CPU_DEVICES": devices}
    settings["XLA_FLAGS"] = "--xla_backend_optimization_level=0"  # most of the time compiles
    return subprocess.Popen(
        [sys.executable, *map(str, command)],
        env={**os.environ, **{name: str(x) for name, x in settings.items()}},
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def finish(process, code=0):
    printed, _ = process.communicate(timeout=300)
    assert process.returncode == code, printed
    return printed


def train(folder, epochs, *more, **options):
    return finish(start(SCRIPT, "--epochs", epochs, "--output", folder, *more, **options))


def assert_equal(folder, other):
    found = []
    for path in (folder, other):
        with h5py.File(path / "last.weights.h5") as file:
            found.append(arrays_in(file))
    assert found[0].keys() == found[1].keys()
    assert len(found[0]) > 30
    for name, x in found[0].items():
        np.testing.assert_allclose(x, found[1][name], rtol=0, atol=1e-4, err_msg=name)


@pytest.fixture(scope="module")
def one(tmp_path_factory):
    pytest.importorskip("jax", reason="JAX is not installed")
    folder = tmp_path_factory.mktemp("one")
    train(folder, 2, devices=1)
    return folder


@pytest.mark.exhaustive
def test_a_run_on_devices_that_share_weights_resumes_on_fewer_and_equals_one_device(one, tmp_path):
    printed = train(tmp_path, 1, "--model-parallel", 2)
    shares = re.search(r"each device holds (\S+) of (\S+) weights", printed).groups()
    held, total = (int(x.replace(",", "")) for x in shares)
    assert held < 0.6 * total
    printed = train(tmp_path, 2, devices=2)
    assert "Epoch 2/2" in printed
    assert "Epoch 1/2" not in printed
    assert_equal(tmp_path, one)


@pytest.mark.exhaustive
def test_two_processes_stop_after_a_death_and_resume_to_equal_one_device(one, tmp_path):
    def both(epochs, port):
        command = SCRIPT, "--epochs", epochs, "--output", tmp_path
        settings = {"KERAS_DISTRIBUTION_JOB_ADDRESSES": f"127.0.0.1:{port}"}
        settings |= {"KERAS_DISTRIBUTION_NUM_PROCESSES": 2}
        name = "KERAS_DISTRIBUTION_PROCESS_ID"
        return [start(*command, devices=1, **settings, **{name: n}) for n in range(2)]

    first, second = both(1000, 12_345 + os.getpid() % 1000)
    try:
        wait_for((tmp_path / "last.weights.h5").exists, seconds=600)
    finally:
        second.kill()
    finish(first, code=1)
    second.communicate()
    printed = [finish(process) for process in both(2, 14_345 + os.getpid() % 1000)]
    assert "Epoch 1/2" not in printed[0]
    if "Epoch 2/2" in printed[0]:  # else both epochs were over before the death
        assert_equal(tmp_path, one)
