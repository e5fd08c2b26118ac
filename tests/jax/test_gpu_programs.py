"""The programs that XLA compiles for a GPU stay within the limits of `gpu_programs.py`."""

import importlib.util
import subprocess
import sys

import pytest

from tests import ROOT


@pytest.mark.slow
@pytest.mark.skipif(
    importlib.util.find_spec("jax_cuda12_plugin") is None,
    reason="the CUDA plugin of JAX is not installed: benchmarks/gpu_programs.py says how",
)
def test_limits():
    command = [sys.executable, "benchmarks/gpu_programs.py", "--check"]
    if importlib.util.find_spec("tensorflow") is not None:
        command += ["--tensorflow", sys.executable]
    subprocess.run(command, cwd=ROOT, check=True)
