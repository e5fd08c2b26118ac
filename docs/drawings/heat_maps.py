"""Weights of layers that have not been trained."""

import keras
import numpy as np
from canvas import LINE, WIDTH, Drawing

from keras_attention import ForwardAttention, GMMAttention, LuongAttention, MonotonicAttention

__all__ = ["forward_weights", "gmm_weights", "luong_windows", "monotonic_weights"]


def heat_map(maps, cell=None):
    """Weights of layers. The shade is their square root, so that small ones can be seen."""
    each = (WIDTH - 40) / len(maps)
    rows, columns = np.shape(maps[0][1])
    cell = cell or min((each - 24) / columns, 16)
    drawing = Drawing(int(rows * cell) + 66)
    for n, (title, weights) in enumerate(maps):
        x = 20 + each * n + (each - columns * cell) / 2 + 4
        drawing.text(x + columns * cell / 2, 22, title, 12)
        drawing.grid(x, 38, np.sqrt(weights / max(weights.max(), 1e-9)), cell)
        drawing.text(x - 10, 38 + rows * cell / 2, "query", 10.5, LINE, rotation=90)
        drawing.text(x + columns * cell / 2, 48 + rows * cell, "memory", 10.5, LINE)
    return drawing


def weights_of(layer, queries=12, memory=16, features=8, scale=1.0, seed=3):
    keras.utils.set_random_seed(seed)
    rng = np.random.default_rng(seed)
    query = rng.normal(0, scale, (1, queries, features)).astype("float32")
    value = rng.normal(0, scale, (1, memory, features)).astype("float32")
    _, weights = layer(query, value, return_attention_scores=True)
    return keras.ops.convert_to_numpy(weights)[0]


def luong_windows():
    layers = {
        "global": LuongAttention("dot"),
        "local-m, D = 2": LuongAttention("dot", "local-m", 2),
        "local-p, D = 2": LuongAttention("dot", "local-p", 2),
    }
    return heat_map([(title, weights_of(x, 12, 12, scale=0.6)) for title, x in layers.items()])


def monotonic_weights():
    return heat_map(
        [
            (f"initial_offset={offset}", weights_of(MonotonicAttention(8, initial_offset=offset)))
            for offset in (1, -1)
        ]
    )


def forward_weights():
    return heat_map([("a new layer", weights_of(ForwardAttention(8), scale=0.3))])


def gmm_weights():
    def layer(step):
        return GMMAttention(8, initial_step=step, initial_width=1.0)

    return heat_map([(f"initial_step={step}", weights_of(layer(step))) for step in (0.5, 1.5)])
