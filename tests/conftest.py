"""Settings of all tests, and which cases of a test run by default."""

import gc
import itertools
import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")
if os.environ.get("KERAS_BACKEND") == "jax":
    os.environ.setdefault("JAX_PLATFORMS", "cpu")
    os.environ["JAX_ENABLE_X64"] = "1"  # the oracles calculate in float64

import pytest

from tests.browser import browser  # noqa: F401

# Modules that run on TensorFlow only, and why. `tests/jax` runs on JAX only.
TENSORFLOW_ONLY = {
    "conformance/test_formats.py": "SavedModel, ONNX and LiteRT are exported from TensorFlow",
    "conformance/test_programs.py": "counts operations in graphs of TensorFlow",
    "decoder/test_loop.py": "compares with the gradient of a tape of TensorFlow",
    "attention/test_reading.py": "reads windows in graphs of TensorFlow whose sizes are not known",
    "ops/test_additive.py": "implementations of the score in graphs of TensorFlow",
    "backend/test_context.py": "asks what TensorFlow builds",
    "ops/test_gradient_memory.py": "tensors that graphs of TensorFlow store",
}
# Examples in docstrings that take seconds.
SLOW_DOCTESTS = {"keras_attention.seq2seq.bidirectional_ensemble.BidirectionalEnsemble"}
SEED = 11
BACKEND = os.environ.get("KERAS_BACKEND", "tensorflow")
collect_ignore = [] if BACKEND == "tensorflow" else list(TENSORFLOW_ONLY)
if BACKEND != "jax":
    collect_ignore.append("jax")


def pytest_configure(config):
    # The process that only starts the workers does not need Keras, which takes seconds to import.
    if not config.getoption("numprocesses", None):
        import keras  # noqa: F401


@pytest.fixture(autouse=True)
def _reproducible():
    import keras

    with pytest.MonkeyPatch.context() as patch:
        if BACKEND == "tensorflow":
            import tensorflow as tf

            # With every new seed TensorFlow drops the kernels of all operations, and small tests
            # would take a third longer. Only stateful operations in eager code need that.
            if tf.compat.v1.random.get_seed(0)[0] == SEED:
                patch.setattr(tf.random, "set_seed", lambda seed: None)
        keras.utils.set_random_seed(SEED)


@pytest.fixture(autouse=True, scope="module")
def _few_programs():
    """JAX keeps every program, and Linux ends a process that has too many (vm.max_map_count)."""
    yield
    if BACKEND == "jax":
        import jax

        jax.clear_caches()
        gc.collect()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    """Divides the cases of every `each_value` test, as pyproject.toml says.

    Values that are marked slow are not in the default run. The slow case is that with most new
    values.
    """
    tests = {}
    for item in items:
        if item.name in SLOW_DOCTESTS:
            item.add_marker("slow")
        if item.get_closest_marker("exhaustive"):
            item.own_markers[:] = [x for x in item.own_markers if x.name != "slow"]
        elif item.get_closest_marker("each_value"):
            tests.setdefault((item.module, item.cls, item.originalname), []).append(item)
    for cases in tests.values():
        usual = [case for case in cases if not case.get_closest_marker("slow")]
        usual = list(with_new_values(usual))
        rest = [case for case in cases if case not in usual]
        few = cases[0].get_closest_marker("each_value").kwargs.get("slow", 1)
        slow = list(itertools.islice(with_new_values(rest, usual), few))
        for case in rest:
            case.own_markers[:] = [x for x in case.own_markers if x.name != "slow"]
            case.add_marker("slow" if case in slow else "exhaustive")


def pytest_collection_finish():
    # Modules stay for the whole run. The tests take a tenth less time if the collector skips them.
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 20)


def with_new_values(cases, seen=()):
    """The case with the most values that are new, then the next one, until none has any."""
    rest = [(case, values_of(case)) for case in cases]
    seen = set().union(*map(values_of, seen))
    while rest:
        counts = [len(values - seen) for _, values in rest]
        if not max(counts):
            break
        case, values = rest.pop(counts.index(max(counts)))
        seen |= values
        yield case


def values_of(case):
    parameters = case.callspec.params if hasattr(case, "callspec") else {}
    # Values such as arrays cannot be compared, but all cases share the same objects.
    return {(name, id(value)) for name, value in parameters.items()} or {None}
