"""Measures both searches beside the samplers of keras-hub, which drive the same step.

    pip install keras-hub
    KERAS_BACKEND=tensorflow python benchmarks/hub_search.py
    KERAS_BACKEND=jax python benchmarks/hub_search.py

The sizes are `SEARCH` in `sweep.py`. No hypothesis ends early. The benchmark first checks that
99% of the tokens are equal. It prints median times of alternating runs and their ratio.
"""

import importlib.util

import keras
import numpy as np
from forms import make_step
from measure import interleaved_times, print_table
from sweep import SEARCH, SEARCHES

MODES = {"tensorflow": ("graph", "XLA"), "jax": ("XLA",)}


def main():
    if importlib.util.find_spec("keras_hub") is None:
        raise SystemExit("This compares with keras-hub, which is missing: pip install keras-hub")
    backend, rows = keras.backend.backend(), []
    for case in SEARCHES:
        for mode in MODES[backend]:
            names = {"ours": case, "keras-hub": f"keras-hub, {case}"}
            steps = {
                name: make_step("sweep", variant, mode, False, **SEARCH)
                for name, variant in names.items()
            }
            ours, theirs = (first_result(step()) for step in steps.values())
            # Ours returns all hypotheses, the best one first. Rounding may swap two of equal rank.
            equal = np.mean((ours[:, 0] if ours.ndim == 3 else ours) == theirs)
            assert equal > 0.99, f"only {equal:.1%} of the tokens are equal"
            times = interleaved_times(steps, repeats=7)
            ratio = times["ours"] / times["keras-hub"]
            rows.append([case, backend, mode, *(1e3 * t for t in times.values()), ratio])
    print_table(["case", "backend", "mode", "ours, ms", "keras-hub, ms", "ratio"], rows)


def first_result(results):
    return np.asarray(results[0] if isinstance(results, list) else results)


if __name__ == "__main__":
    main()
