"""What the first call of a model shows, from which a file builds it."""

import dataclasses
from typing import Any

import keras
from keras import tree

from keras_attention._spec import describe
from keras_attention._typing import Nested

IDS = {"shape": [None, None], "dtype": "int32"}


@dataclasses.dataclass(frozen=True)
class FirstCall:
    """What holds for all calls of a `Seq2Seq`. Keras tracks no object of this kind.

    Attributes:
        form: see `form_of`, of the source and of the target.
        masked: whether the encoder returns a mask, so that padding may be cut off a source.
        vocabulary: the number of logits.
    """

    form: Nested
    masked: bool
    vocabulary: int | None

    @property
    def several(self) -> bool:
        """Whether the source is more than one tensor."""
        return not _is_leaf(self.form[0])


def form_of(inputs: Nested) -> Nested:
    """The nesting of the inputs, with the shape and dtype of each. Batch and steps are unknown."""

    def describe(x):
        shape = [None, None, *x.shape[2:]][: len(x.shape)]
        return {"shape": shape, "dtype": keras.backend.standardize_dtype(x.dtype)}

    return tree.map_structure(lambda x: None if x is None else describe(x), inputs)


def symbolic(form: Any) -> Nested:
    """Symbolic inputs of a form, also of one from a file: a call with them builds a model."""
    if form is None:
        return None
    if isinstance(form, (list, tuple)):
        return tuple(map(symbolic, form))
    if isinstance(form, dict) and not _is_leaf(form):
        return {name: symbolic(x) for name, x in form.items()}
    shape = form.get("shape") if isinstance(form, dict) else None
    # A file never holds the batch size and the number of steps.
    right = isinstance(shape, (list, tuple)) and all(x is None for x in shape[:2])
    if not right or not all(x is None or (isinstance(x, int) and x > 0) for x in shape[2:]):
        raise ValueError(
            "The form of the inputs in a saved model must be nested lists or dictionaries of "
            '{"shape": [null, null, features, ...], "dtype": "..."}; this file holds '
            f"{describe(form)}. Save the model again, with the package that made it."
        )
    return keras.KerasTensor(tuple(shape), dtype=form["dtype"])


def with_fixed_sizes(source: Nested, encoder: keras.layers.Layer) -> Nested:
    """Returns symbolic sources, with the sizes that the inputs of a functional encoder fix."""
    inputs = getattr(encoder, "inputs", None) or []
    paths, tensors = zip(*tree.flatten_with_path(source), strict=True)
    if any(isinstance(key, str) for path in paths for key in path):
        known = {x.name: x for x in inputs}
        inputs = [known.get("_".join(map(str, path))) for path in paths]
    if len(inputs) != len(tensors):
        return source
    return tree.pack_sequence_as(source, [*map(_with_sizes, tensors, inputs)])


def _with_sizes(x, known):
    if x is None or known is None or len(known.shape) != len(x.shape):
        return x
    sizes = [n or size for n, size in zip(x.shape[1:], known.shape[1:], strict=True)]
    return keras.KerasTensor((None, *sizes), dtype=x.dtype)


def _is_leaf(form):
    return isinstance(form, dict) and isinstance(form.get("dtype"), str)
