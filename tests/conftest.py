"""Settings of all tests, and which cases of a test run by default."""

import gc
import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import pytest


def pytest_configure(config):
    # The process that only starts the workers does not need Keras, which takes seconds to import.
    if not config.getoption("numprocesses", None):
        import keras  # noqa: F401


@pytest.fixture(autouse=True)
def _reproducible():
    import keras

    keras.utils.set_random_seed(11)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    """Marks the cases of an `each_value` test slow that bring no new value of any parameter."""
    tests = {}
    for item in items:
        if item.get_closest_marker("each_value") and not item.get_closest_marker("slow"):
            tests.setdefault((item.module, item.cls, item.originalname), []).append(item)
    for cases in tests.values():
        for case in repeating(cases):
            case.add_marker(pytest.mark.slow)


def pytest_collection_finish():
    # Modules stay for the whole run. The tests take a tenth less time if the collector skips them.
    gc.collect()
    gc.freeze()
    gc.set_threshold(50_000, 20, 20)


def repeating(cases):
    """The cases that are left when those with the most new values are taken, one after another."""
    rest, seen = list(cases), set()
    while rest:
        counts = [len(values_of(case) - seen) for case in rest]
        if not max(counts):
            break
        seen |= values_of(rest.pop(counts.index(max(counts))))
    return rest


def values_of(case):
    parameters = case.callspec.params if hasattr(case, "callspec") else {}
    # Values such as arrays cannot be compared, but all cases share the same objects.
    return {(name, id(value)) for name, value in parameters.items()} or {None}
