"""The script for several devices: the same result on any number of them, and after a death."""

import os
import re
import subprocess
import sys

import h5py
import numpy as np
import pytest

from tests import ROOT
from tests.examples import arrays_in
from tests.helpers import wait_for

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("jax")]
SCRIPT = ROOT / "examples" / "train_on_devices.py"


@pytest.fixture(scope="module")
def jax():
    return pytest.importorskip("jax", reason="JAX is not installed")


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
    folder = tmp_path_factory.mktemp("one")
    train(folder, 2, devices=1)
    return folder


def test_a_run_that_resumes_on_fewer_devices_equals_one_device(one, tmp_path):
    train(tmp_path, 1)
    printed = train(tmp_path, 2, devices=2)
    assert "Epoch 2/2" in printed
    assert "Epoch 1/2" not in printed
    assert_equal(tmp_path, one)


def test_devices_that_share_weights_equal_one_device(one, tmp_path):
    printed = train(tmp_path, 2, "--model-parallel", 2)
    shares = re.search(r"each device holds (\S+) of (\S+) weights", printed).groups()
    held, total = (int(x.replace(",", "")) for x in shares)
    assert held < 0.6 * total
    assert_equal(tmp_path, one)


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
