"""What four devices that share a batch exchange, and the memory that each needs."""

import functools
import json
import os
import subprocess
import sys

import pytest

from tests import ROOT
from tests.conformance.layers import CASES

pytestmark = pytest.mark.slow


@functools.cache
def programs():
    pytest.importorskip("jax", reason="JAX is not installed")
    settings = {"KERAS_BACKEND": "jax", "JAX_PLATFORMS": "cpu", "JAX_NUM_CPU_DEVICES": "4"}
    found = subprocess.run(
        [sys.executable, "-m", "tests.distribution.programs"],
        env={**os.environ, **settings},
        cwd=ROOT,
        stdout=subprocess.PIPE,
        check=True,
    )
    return json.loads(found.stdout)


def test_every_layer_is_compiled():
    assert {name for name, case in CASES.items() if case.first} < programs().keys()


def test_devices_exchange_no_samples():
    found = {name: x["exchanged"] for name, x in programs().items() if x["exchanged"]}
    assert found.keys() == {"reversed batch"}  # the program that must


def test_each_device_needs_little_more_than_its_share_of_memory():
    shares = {name: x["share"] for name, x in programs().items() if "share" in x}
    assert shares
    assert {name: share for name, share in shares.items() if share > 0.35} == {}
