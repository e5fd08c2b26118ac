"""The additive score of projected queries and keys.

`reference` is the equation, `dispatch` decides which implementation runs where.
"""

from keras_attention.ops.additive.dispatch import additive_score

__all__ = ["additive_score"]
