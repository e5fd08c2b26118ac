"""Checks of the tensors and masks that a layer is called with."""

from keras_attention._checks import dtype_of
from keras_attention._shapes import fits
from keras_attention.layers.types import Memory

__all__ = [
    "FLAGS",
    "IDS",
    "VECTORS",
    "check_dense",
    "check_mask",
    "check_tensor",
    "check_vectors",
    "masks_by_name",
]

# The arguments of a call that hold vectors, word ids and booleans.
VECTORS = ("query", "value", "key", "context", "inputs", "sequences", "memory")
IDS = ("story", "question", "source")
FLAGS = ("use_causal_mask", "return_attention_scores")


def masks_by_name(parameters):
    """How to pass the masks of a call."""
    masks = [f"`{name}`" for name in parameters if name == "mask" or name.endswith("_mask")]
    masks = [name for name in masks if name != "`use_causal_mask`"]
    *most, last = masks or [""]
    names = f"{', '.join(most)} or {last}" if most else last
    return f" Pass a mask by its name: {names}." if masks else ""


def check_tensor(layer, name, x, call=""):
    """Accepts one dense tensor, or None."""
    if x is None:
        return
    prefix = f"{layer}: `{name}` must be"
    if isinstance(x, Memory):
        remedy = "layer.attend(query, memory)"
        if name == "memory":  # of a decoder
            remedy = "decoder.step(inputs, state, memory), or pass the tensor that was prepared"
        raise ValueError(f"{prefix} one tensor; received a prepared Memory. Call {remedy}.")
    several = isinstance(x, (list, tuple)) and any(hasattr(one, "shape") for one in x)
    if several or isinstance(x, dict):
        found = f"a list of {len(x)}" if several else "a dictionary"
        raise ValueError(f"{prefix} one tensor; received {found}.{call}")
    padding = "" if name in IDS else f", and pass the mask tf.sequence_mask({name}.row_lengths())"
    check_dense(layer, name, x, padding)
    if not _is_tensor(x):
        listed = isinstance(x, (list, tuple))
        remedy = f" Convert it: numpy.array({name})." if listed else call
        raise ValueError(f"{prefix} a tensor or an array; received a {type(x).__name__}.{remedy}")


def _is_tensor(x):
    return hasattr(x, "shape") and hasattr(x, "dtype")


def check_dense(layer, name, x, padding=""):
    if type(x).__name__ == "RaggedTensor" or getattr(x, "ragged", False) is True:
        raise ValueError(
            f"{layer}: `{name}` must be a dense tensor; received a ragged one. Pad it with "
            f"{name}.to_tensor(){padding}."
        )
    if type(x).__name__ == "SparseTensor" or getattr(x, "sparse", False) is True:
        raise ValueError(
            f"{layer}: `{name}` must be a dense tensor; received a sparse one. Convert it: "
            f"tf.sparse.to_dense({name})."
        )


def check_vectors(layer, name, x, masks=""):
    """Accepts floating-point numbers, or None."""
    if x is None or "float" in dtype_of(x):
        return
    remedy = (
        " Embed token ids first: keras.layers.Embedding(vocabulary_size, features)(ids). "
        f'Cast other numbers: keras.ops.cast({name}, "float32").'
    )
    raise ValueError(
        f"{layer}: `{name}` must hold vectors of floating-point numbers; received dtype "
        f"{dtype_of(x)}.{masks if dtype_of(x) == 'bool' else remedy}"
    )


def check_mask(layer, name, mask, shapes):
    """Accepts None, or a boolean tensor of one of the `shapes`."""
    if mask is None:
        return
    check_dense(layer, name, mask)
    if not _is_tensor(mask):
        remedy = " Leave it out where every step is valid."
        if isinstance(mask, (list, tuple)):
            remedy = f" Convert it: numpy.array({name}, bool)."
        raise ValueError(
            f"{layer}: `{name}` must be a boolean tensor or array; received a "
            f"{type(mask).__name__}.{remedy}"
        )
    given, dtype = tuple(mask.shape), dtype_of(mask)
    pairs = name == "attention_mask"
    if dtype != "bool":
        remedy = f'Convert it: keras.ops.cast({name}, "bool")'
        steps = shapes[0][-1]
        column = given if len(given) == 2 and given[1] == 1 != steps else None
        if len(given) > max(map(len, shapes)):
            remedy = f"One of shape {given} is no mask: check the order of the arguments"
        elif column or len(given) == 1 < min(map(len, shapes)):
            lengths = name if column else f"keras.ops.expand_dims({name}, 1)"
            # In a functional model the number of steps may be unknown, which `arange` refuses.
            numbers = "keras.ops.cumsum(keras.ops.ones_like(ids), axis=1) - 1"
            numbers = f"keras.ops.arange({steps})" if isinstance(steps, int) else numbers
            remedy = f"Make it of lengths: keras.ops.less({numbers}, {lengths})"
        elif "float" in dtype:
            remedy += (
                f", or, where it is added to scores, 0 where attention is allowed: {name} == 0"
            )
        valid = "attention is allowed" if pairs else "a step is valid"
        raise ValueError(
            f"{layer}: `{name}` must be boolean, True where {valid}; received dtype {dtype}. "
            f"{remedy}."
        )
    if not any(fits(given, shape) for shape in shapes):
        wanted = " or ".join(str(tuple(shape)) for shape in shapes)
        of = f"step of `{'inputs' if name == 'mask' else name.removesuffix('_mask')}`"
        raise ValueError(
            f"{layer}: `{name}` must have shape {wanted}, one truth value for each "
            f"{'pair of a query and a memory step' if pairs else of}; received {given}."
            + (" To mask only the memory, pass `value_mask`." if pairs else "")
        )
