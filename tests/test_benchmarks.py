"""The table of the benchmarks is whole, its peers compute the same, and the harness is fair."""

import cases
import harness
import numpy as np
import pytest
import steps

from tests import ROOT, python


def test_the_table_is_whole():
    for name, case in cases.CASES.items():
        assert set(case.peers) <= {*steps.MODULES, *cases.CASES}, name
        assert set(case.columns) <= set(harness.COLUMNS), name
        for peer in (None, *case.peers):
            module = steps.MODULES[None if peer in cases.CASES else peer]
            # As text, because this environment may not be able to import it.
            text = (ROOT / "benchmarks" / f"{module}.py").read_text("utf-8")
            assert f"\ndef {case.build}(" in text, (name, peer)
    assert {*cases.MEMORY, *cases.COUNTED} <= set(cases.CASES)


TINY = {"batch": 2, "steps": 7, "units": 5}
AGREE = {
    "BiDAFAttentionFlow, B8 T400 J30 d100": {"batch": 2, "context": 7, "query": 3, "units": 5},
    "bag of 1,000": {**TINY, "features": 3},
    "additive score, B16 T128 U256": {**TINY, "compiling": None},
    "LuongAttention, dot, B16 T128 U256": {**TINY, "score": "dot"},
}


def results(name, peer):
    """The outputs of a step; the same random weights for both sides."""
    built = steps.build(name, peer)
    for n, weight in enumerate(built.weights):
        weight.assign(np.random.default_rng(n).normal(scale=0.1, size=weight.shape))
    return steps.make_step("tensorflow", built, "graph", "with gradients").run()


@pytest.mark.parametrize("name", AGREE)
def test_ours_and_plain_keras_agree(name, monkeypatch):
    case = cases.CASES[name]._replace(sizes=AGREE[name])
    monkeypatch.setitem(cases.CASES, name, case)
    ours, plain = (results(name, peer) for peer in (None, "plain Keras"))
    assert len(ours) == len(plain) > 1
    for x, y in zip(ours, plain, strict=True):
        y = np.reshape(y, x.shape)  # a kernel of one column for a vector
        np.testing.assert_allclose(x, y, rtol=0, atol=1e-5 * max(1.0, np.abs(y).max()))


def test_requests_take_turns_and_one_that_fails_is_left_out(monkeypatch):
    asked, answers = [], {"a": iter([9.0, 1.0, 3.0, 2.0]), "b": iter([5.0, None])}

    def request(name):
        asked.append(name)
        return next(answers[name])

    found = harness.measure({name: lambda name=name: request(name) for name in "ab"}, 3)
    assert asked == list("ababaa")
    assert found == {"a": 2.0}  # the first turn compiles
    monkeypatch.setattr(harness, "SLOW", 0.0)  # slow turns are fewer
    asked.clear()
    harness.measure({"a": lambda: asked.append(0) or 1.0}, 6)
    assert len(asked) == 3


def run(command, *options):
    printed = python(ROOT / "benchmarks" / f"{command}.py", *options)
    return [line.split("  ") for line in printed.splitlines()]


@pytest.mark.slow
def test_speed_stands_beside_a_peer_or_another_checkout():
    options = ["--only", "bag of 1,000", "--columns", "TF graph", "--repeats", "1"]
    header, row = run("speed", *options)
    assert header[0].strip() == "case"
    assert "plain Keras" in row
    assert row[-1].endswith(")")
    _, row = run("speed", *options, "--beside", str(ROOT))
    assert "other checkout" in row
    assert 0.3 < float(row[-1].split("(")[1][:-1]) < 3
