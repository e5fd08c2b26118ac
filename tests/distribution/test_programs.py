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
    settings["XLA_FLAGS"] = "--xla_backend_optimization_level=0"  # to compile, not to run
    command = [sys.executable, "-m", "tests.distribution.programs"]
    environment = {**os.environ, **settings}
    found = subprocess.run(command, env=environment, cwd=ROOT, stdout=subprocess.PIPE, check=True)
    return json.loads(found.stdout)


def test_devices_exchange_no_samples_and_need_little_more_than_their_share_of_memory():
    assert {name for name, case in CASES.items() if case.first} < programs().keys()
    found = {name: x["samples"] for name, x in programs().items() if x.get("samples")}
    assert found.pop("reversed batch")  # the program that must
    # 92 samples, 3 beams, 61 words; and 3 words of each beam, from which a search chooses.
    assert found.keys() == {"search"}
    assert {tuple(x) for x in found["search"]} == {(92 * 3, 61), (92, 3 * 3)}
    shares = {name: x["share"] for name, x in programs().items() if "share" in x}
    assert shares
    assert {name: share for name, share in shares.items() if share > 0.35} == {}
