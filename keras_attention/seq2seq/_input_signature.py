"""The input signature of a model, recorded at its first call; loading builds the model from it."""

import dataclasses
from typing import TypeAlias

import keras
from keras import tree

from keras_attention._typing import Nested
from keras_attention.backend import tree_map

# Nested lists and dictionaries of {"shape": [None, None, features, ...], "dtype": "..."} and None.
Signature: TypeAlias = list | dict | None
IDS = {"shape": [None, None], "dtype": "int32"}


@dataclasses.dataclass(frozen=True)
class FirstCall:
    """Records what holds for all calls of a `Seq2Seq`. Keras tracks no object of this kind.

    Attributes:
        signature: the signature of the source and of the target.
        masked: whether the encoder returns a mask, so that padding may be cut off a source.
        vocabulary: the number of logits.
    """

    signature: list
    masked: bool
    vocabulary: int


def signature_of(inputs: Nested) -> list:
    """Return the shape and dtype of each input. The sizes of batch and steps are unknown."""

    def describe(x):
        shape = [None, None, *x.shape[2:]][: len(x.shape)]
        return {"shape": shape, "dtype": keras.backend.standardize_dtype(x.dtype)}

    return tree_map(describe, inputs)


def symbolic(signature: Signature, batch: int | None = 1) -> Nested:
    """Make symbolic inputs of a signature, also of one from a file.

    Where Keras computes with arrays to find shapes, as on PyTorch, one sample is the fastest batch.
    """
    if isinstance(signature, (list, tuple)):
        return tuple(symbolic(x, batch) for x in signature)
    if signature is None or not _is_leaf(signature):
        return signature and {name: symbolic(x, batch) for name, x in signature.items()}
    return keras.KerasTensor((batch, *signature["shape"][1:]), dtype=signature["dtype"])


def one_step(target: keras.KerasTensor) -> keras.KerasTensor:
    """Cut a symbolic target to one step, which makes the same weights."""
    return keras.KerasTensor((target.shape[0], 1), dtype=target.dtype)


def with_fixed_sizes(source: Nested, encoder: keras.layers.Layer) -> Nested:
    """Give symbolic sources the sizes and names of the inputs that an encoder may have."""
    inputs = getattr(encoder, "inputs", None) or []
    paths, tensors = zip(*tree.flatten_with_path(source), strict=True)
    if any(isinstance(key, str) for path in paths for key in path):
        by_name = {x.name: x for x in inputs}
        inputs = [by_name.get("_".join(map(str, path))) for path in paths]
    if len(inputs) != len(tensors):
        return source
    return tree.pack_sequence_as(source, [*map(_with_sizes, tensors, inputs)])


def _with_sizes(x, fixed):
    if x is None or fixed is None or len(fixed.shape) != len(x.shape):
        return x
    return keras.KerasTensor((x.shape[0], *fixed.shape[1:]), dtype=x.dtype, name=fixed.name)


def _is_leaf(signature):
    return isinstance(signature, dict) and isinstance(signature.get("dtype"), str)
