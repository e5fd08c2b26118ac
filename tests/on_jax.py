"""Runs scripts on the JAX backend, all in one process, because starting it takes seconds."""

import atexit
import functools
import json
import os
import subprocess
import sys

import numpy as np
import pytest

from tests import ROOT

LOOP = """
import json, sys, traceback
import jax, keras, numpy as np

answers, sys.stdout = sys.stdout, sys.stderr
assert keras.backend.backend() == "jax"
for line in sys.stdin:
    script, folder = json.loads(line)
    with np.load(folder + "/inputs.npz") as inputs:
        names = {"inputs": dict(inputs), "found": {}}
    try:
        keras.utils.set_random_seed(1)
        exec(script, names)
        np.savez(folder + "/found.npz", **names["found"])
        error = None
    except Exception:
        error = traceback.format_exc()
    print(json.dumps(error), file=answers, flush=True)
"""


@functools.cache
def process():
    settings = {"KERAS_BACKEND": "jax", "JAX_PLATFORMS": "cpu", "PYTHONPATH": str(ROOT)}
    started = subprocess.Popen(
        [sys.executable, "-c", LOOP],
        env={**os.environ, **settings},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )

    def stop():
        started.communicate()

    atexit.register(stop)
    return started


def run_on_jax(script, folder, **inputs):
    """The arrays that a script puts into `found`; it reads its own from `inputs`.

    The next script runs in the same process: a script undoes what it changes in a module.
    """
    pytest.importorskip("jax", reason="JAX is not installed")
    np.savez(folder / "inputs.npz", **inputs)
    jax = process()
    jax.stdin.write(json.dumps([script, str(folder)]) + "\n")
    jax.stdin.flush()
    answer = jax.stdout.readline()
    assert answer, "the process with JAX ended"
    error = json.loads(answer)
    assert error is None, error
    with np.load(folder / "found.npz") as found:
        return dict(found)
