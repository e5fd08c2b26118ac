"""The scripts for several devices: the same result on any number of them, and after a death."""

import csv
import json
import os
import signal
import subprocess
import sys

import h5py
import numpy as np
import pytest

from tests import ROOT
from tests.helpers import wait_for

SIZE = ["--steps", "10", "--batch", "8", "--units", "8"]


# Each command runs in one process, because starting one takes seconds.
SEVERAL = """
import importlib, json, sys

for script, *argv in json.loads(sys.argv[1]):
    importlib.import_module(f"examples.distribution.{script}").main(argv)
"""


def start(*command, backend="jax", **settings):
    """Starts Python in the folder of the clone."""
    settings |= {"KERAS_BACKEND": backend, "JAX_PLATFORMS": "cpu", "PYTHONPATH": str(ROOT)}
    settings["XLA_FLAGS"] = "--xla_backend_optimization_level=0"  # most of the time compiles
    return subprocess.Popen(
        [sys.executable, *command],
        env={**os.environ, **settings},
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def finish(process, seconds=300, code=0):
    """What a process prints before it ends, with this code and in this time."""
    try:
        printed, _ = process.communicate(timeout=seconds)
    finally:
        process.send_signal(signal.SIGINT)  # it then ends the processes that it started
    assert process.returncode == code, printed
    return printed


def several(*commands, backend="jax"):
    """Runs commands with four devices for JAX."""
    commands = json.dumps([[str(x) for x in command] for command in commands])
    return finish(start("-c", SEVERAL, commands, backend=backend, JAX_NUM_CPU_DEVICES="4"))


def result(folder):
    """The loss of every epoch, and all weights with the state of the optimizer."""
    with open(folder / "log.csv", encoding="utf-8") as file:
        losses = {row["epoch"]: float(row["loss"]) for row in csv.DictReader(file)}
    weights = {}

    def add(name, x):
        if isinstance(x, h5py.Dataset):
            weights[name] = x[()]

    with h5py.File(folder / "last.weights.h5") as found:
        found.visititems(add)
    return [*losses.values()], weights


def assert_equal(folder, other):
    (losses, weights), (others, expected) = result(folder), result(other)
    np.testing.assert_allclose(losses, others, rtol=0, atol=1e-5)
    assert weights.keys() == expected.keys()
    for name, x in weights.items():
        np.testing.assert_allclose(x, expected[name], rtol=0, atol=1e-5, err_msg=name)


def assert_resumed(folder, epochs):
    """Checks that each epoch was trained once, so all but the first began with a checkpoint."""
    assert len((folder / "log.csv").read_text(encoding="utf-8").splitlines()) == 1 + epochs


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """Folders of three trainings with JAX, of 30 steps each.

    One uses one device, and one uses two by two that share weights. The last starts on four devices
    and resumes on two, then on one.
    """
    pytest.importorskip("jax", reason="JAX is not installed")
    folder = tmp_path_factory.mktemp("sharded")

    def run(name, *options):
        return ["sharded", *SIZE, "--output", folder / name, "--epochs", *options]

    several(
        run("one", 3, "--devices", 1),
        run("split", 3, "--model-parallel", 2),
        run("fewer", 1),
        run("fewer", 2, "--devices", 2),
        run("fewer", 3, "--devices", 1),
    )
    return folder


@pytest.mark.slow
def test_data_parallel_training_on_any_devices_equals_one_device(trained):
    assert_equal(trained / "fewer", trained / "one")
    losses, weights = result(trained / "one")
    assert losses[2] < losses[1] < losses[0]
    assert len(weights) > 30  # with the moments of the optimizer
    assert_resumed(trained / "fewer", epochs=3)


@pytest.mark.slow
def test_model_parallel_training_equals_one_device(trained):
    assert_equal(trained / "split", trained / "one")


@pytest.mark.slow
def test_mirrored_training_equals_one_device(tmp_path):
    def run(name, epochs, count):
        options = ["--epochs", epochs, "--devices", count]
        return ["mirrored", *SIZE, "--output", tmp_path / name, *options]

    several(run("one", 2, 1), run("two", 1, 2), run("two", 2, 2), backend="tensorflow")
    assert_equal(tmp_path / "two", tmp_path / "one")
    assert_resumed(tmp_path / "two", epochs=2)


@pytest.mark.exhaustive
def test_two_processes_stop_after_a_death_and_resume_to_equal_one_device(tmp_path):
    command = ["-m", "examples.distribution.processes", "--local", "2", *SIZE]
    command += ["--output", str(tmp_path / "two"), "--epochs"]
    process = start(*command, "1000")
    second = [process.stdout.readline() for _ in range(2)][1]
    assert second.startswith("process 1: pid ")
    wait_for((tmp_path / "two" / "last.weights.h5").exists)
    os.kill(int(second.split()[-1]), signal.SIGKILL)
    printed = finish(process, seconds=120, code=1)
    assert "process 1 was killed by SIGKILL" in printed
    assert "process 0: this error has ended the run. If another process died" in printed
    assert "the same command resumes it." in printed
    epochs = str(1 + len(result(tmp_path / "two")[0]))
    assert "Resuming after epoch" in finish(start(*command, epochs))
    one = ["--output", tmp_path / "one", "--epochs", epochs, "--devices", 1]
    several(["sharded", *SIZE, *one])
    assert_equal(tmp_path / "two", tmp_path / "one")


REFUSED = """
import sys
from examples.distribution import sharded
for line in sys.argv[1:]:
    try:
        sharded.main(line.split())
    except SystemExit:
        pass
"""


@pytest.mark.slow
def test_sizes_that_do_not_fit_are_refused():
    lines = {
        "--devices 9": "--devices must be at most 4, the number of devices. Set JAX_PLATFORMS=cpu",
        "--units 7 --model-parallel 2": "must divide --units and the number of devices, 4",
        "--batch 4096 --steps 50": "must be at most 73,049: every pair is a day of its own",
        "--batch 6": "--batch 6 must be a multiple of 4",
    }
    printed = finish(start("-c", REFUSED, *lines, JAX_NUM_CPU_DEVICES="4"))
    for message in lines.values():
        assert message in printed
