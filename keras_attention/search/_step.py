"""What a search and the decoder that it drives expect of each other.

The search carries the state through its loop as a flat list of tensors, and checks every output
when it is traced.
"""

import keras
from keras import ops, tree

from keras_attention._shapes import fits
from keras_attention.layers._tensors import check_dense


def named_leaves(name, structure):
    """The names and tensors of a structure, without the None leaves, which no loop can carry."""
    found = [(path, x) for path, x in tree.flatten_with_path(structure) if x is not None]
    names = [name + "".join(f"[{key!r}]" for key in path) for path, _ in found]
    for label, (_, x) in zip(names, found, strict=True):
        check_dense("search", label, x)
    return names, [ops.convert_to_tensor(x) for _, x in found]


def pack(structure, tensors):
    """The inverse: a structure like that one, with these tensors in their order."""
    tensors = iter(tensors)
    return tree.map_structure(lambda x: None if x is None else next(tensors), structure)


def batch_size(names, tensors):
    """The samples in state and memory together, a tensor where the number is not known."""
    shapes = [tuple(x.shape) for x in tensors]
    if not shapes:
        raise ValueError(
            "state and memory hold no tensor that could tell the batch size. Pass at least one of "
            "shape (batch, ...), for example the encoder's outputs as memory."
        )
    if () in shapes or len({shape[0] for shape in shapes} - {None}) > 1:
        raise ValueError(
            "state and memory must hold tensors of shape (batch, ...) with one batch size, but hold"
            f" {dict(zip(names, shapes, strict=True))}. A beam search repeats them for the beams "
            "itself; what has no batch axis, `step` can use without being passed it."
        )
    return ops.shape(tensors[0])[0]


def checked(outputs, tokens, names, leaves, end_token):
    """The outputs of a step, the state as a list, if they are what they should be."""
    if not isinstance(outputs, tuple) or len(outputs) != 3:
        raise ValueError(
            f"step must return the tuple (logits, state, weights), but returned {outputs!r:.200}. "
            "Put None where there is no state or there are no weights."
        )
    logits, state, weights = outputs
    for name, x in (("logits", logits), ("weights", logits if weights is None else weights)):
        shape = tuple(getattr(x, "shape", ()))
        if not fits(shape, (tokens.shape[0], None)):
            raise ValueError(
                f"step must return {name} of rank 2, with a row for each of its {tokens.shape[0]} "
                f"tokens, but returned the shape {shape}. Squeeze the time axis, if it is there."
            )
    if logits.shape[-1] is None or logits.shape[-1] <= end_token:
        raise ValueError(
            f"step returned logits for {logits.shape[-1]} tokens: their number must be known when "
            f"the search is traced, and end_token={end_token} be one of them."
        )
    new_names, new_leaves = named_leaves("state", state)
    if names != new_names:
        raise ValueError(
            f"step must return the state with the structure it was given, {names}, but returned "
            f"{new_names}. The initial state must hold every tensor that a step returns."
        )
    for name, old, new in zip(names, leaves, new_leaves, strict=True):
        forms = [(tuple(x.shape), keras.backend.standardize_dtype(x.dtype)) for x in (old, new)]
        if not fits(forms[0][0], forms[1][0]) or forms[0][1] != forms[1][1]:
            raise ValueError(
                f"step was given {name} of shape and dtype {forms[0]}, but returned {forms[1]}. "
                "Neither may change: cast to one dtype; write what grows into a fixed-size buffer."
            )
    return logits, new_leaves, weights
