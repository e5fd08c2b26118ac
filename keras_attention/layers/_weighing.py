"""From scores to weights: the arguments that all layers with a softmax have in common."""

from typing import Any

import keras

from keras_attention._spec import check_choice, check_rate, check_seed
from keras_attention.ops.normalize import (
    masked_entmax15,
    masked_hardmax,
    masked_softmax,
    masked_sparsemax,
)

NORMALIZERS = {
    "softmax": masked_softmax,
    "sparsemax": masked_sparsemax,
    "entmax15": masked_entmax15,
    "hardmax": masked_hardmax,
}


def set_weighing(layer: Any, normalizer: str, dropout: float, seed: int | None) -> None:
    """Sets the arguments that turn scores into weights, and drop them; see `ScoringMixin`."""
    layer.normalizer = check_choice(layer.name, "normalizer", normalizer, tuple(NORMALIZERS))
    layer.dropout = check_rate(layer.name, "dropout", dropout)
    layer.seed = check_seed(layer.name, seed)
    if layer.dropout > 0:
        layer.seed_generator = keras.random.SeedGenerator(layer.seed)
    layer.supports_masking = True
