"""What a layer is called with, checked before Keras converts it or builds the layer."""

import functools
import inspect

import keras

from keras_attention._checks import (
    check_bool,
    check_renamed,
    check_training,
    described,
    dtype_of,
    fits,
    is_integer,
)
from keras_attention.layers._types import Memory

# Arguments of a call that hold vectors, those that hold word ids, and those that are flags.
_VECTORS = ("query", "value", "key", "context", "inputs", "sequences", "memory")
_IDS = ("story", "question")
_FLAGS = ("use_causal_mask", "return_attention_scores")

# Earlier names of arguments, which saved files hold, and their names now. `linear` is an attribute.
_RENAMED = {
    "normalize": "weight_norm",
    "score": "score_mode",
    "window": "half_width",
    "output": "output_mode",
    "linear_start": "linear",
}


class CheckedLayer:
    """A base that checks what a layer is given before Keras converts it or builds the layer."""

    def __init__(self, **kwargs):
        layer = type(self)
        check_renamed(layer.__name__, kwargs, _renamed(layer), _arguments_of(layer))
        try:
            super().__init__(**kwargs)
        except ValueError as error:
            if "Unrecognized keyword" not in str(error):
                raise
            own = ", ".join(_arguments_of(layer))
            raise ValueError(
                f"{error}. The arguments of {layer.__name__} are {own}, and those of every "
                "Keras layer, such as name and dtype."
            ) from None

    def __call__(self, *args, **kwargs):
        parameters = _parameters_of(type(self))
        names = list(parameters)
        given = dict(zip(names, args, strict=False))
        if not given.keys() & kwargs.keys():
            check_call(self, parameters, {**given, **kwargs})
            # Keras passes masks by name, and would pass those that are None twice.
            count = next((n for n, x in enumerate(names) if x.endswith("mask")), len(names))
            kwargs |= dict(zip(names[count:], args[count:], strict=False))
            args = args[:count]
            # Keras would make tensors of booleans of NumPy.
            kwargs |= {name: bool(kwargs[name]) for name in _FLAGS if name in kwargs}
        return super().__call__(*args, **kwargs)

    @classmethod
    def from_config(cls, config):
        """Makes a layer from `get_config`, also from one saved before arguments were renamed."""
        names, arguments = _renamed(cls), _arguments_of(cls)
        config = {names.get(name, name): x for name, x in config.items()}
        moved = {x: config.pop(x) for x in names.values() if x in config and x not in arguments}
        layer = super().from_config(config)
        for name, x in moved.items():
            setattr(layer, name, x)
        return layer


@functools.cache
def _parameters_of(layer):
    """The parameters of the call of a class, by their names."""
    _, *parameters = inspect.signature(layer.call).parameters.values()
    return {x.name: x for x in parameters}


def _renamed(layer):
    """The earlier names that a class knows, without those that a subclass uses in its own way."""
    arguments = _arguments_of(layer)
    return {
        old: new
        for old, new in _RENAMED.items()
        if old not in arguments and (new in arguments or hasattr(layer, new))
    }


def _arguments_of(layer):
    """The names of the arguments of a class that are its own, not those of Keras."""
    own = layer.__mro__[: layer.__mro__.index(keras.layers.Layer)]
    signatures = [inspect.signature(c.__init__) for c in own if "__init__" in vars(c)]
    found = {name: x.kind for s in signatures for name, x in s.parameters.items()}
    return [
        n for n, kind in found.items() if n != "self" and kind is not inspect.Parameter.VAR_KEYWORD
    ]


def check_call(layer, parameters, given):
    """The arguments of a call of a layer, by their names."""
    open_end = any(x.kind is x.VAR_KEYWORD for x in parameters.values())
    for name in () if open_end else given.keys() - parameters.keys() - {"training"}:
        remedy = _by_name(parameters) if name.endswith("mask") else ""
        raise TypeError(
            f"{layer.name}: the call takes no `{name}`; it takes {', '.join(parameters)}.{remedy}"
        )
    first = next(iter(parameters))
    tensors = [name for name in parameters if name in (*_VECTORS, *_IDS) and name != "key"]
    call = f"Call layer({', '.join(tensors)})"
    if given.get(first) is None and first in tensors:
        raise ValueError(f"{layer.name}: `{first}` is missing. {call}.")
    for name, x in given.items():
        if name in (*_VECTORS, *_IDS):
            listed = f", not layer([{', '.join(tensors)}])" if len(tensors) > 1 else ""
            check_tensor(layer.name, name, x, f" {call}{listed}.")
        if name in _VECTORS:
            check_vectors(layer.name, name, x, _by_name(parameters))
        if name in _FLAGS:
            check_bool(layer.name, name, x)
    check_training(layer.name, given.get("training"))


def _by_name(parameters):
    """How the masks of a call are passed."""
    masks = [f"`{name}`" for name in parameters if name == "mask" or name.endswith("_mask")]
    masks = [name for name in masks if name != "`use_causal_mask`"]
    *most, last = masks or [""]
    names = f"{', '.join(most)} or {last}" if most else last
    return f" Pass a mask by its name: {names}." if masks else ""


def check_tensor(layer, name, x, call=""):
    """A tensor, or None, is dense, and not a list."""
    if x is None:
        return
    prefix = f"{layer}: `{name}` must be"
    if isinstance(x, Memory):
        raise ValueError(
            f"{prefix} one tensor; received a prepared Memory. Call layer.attend(query, memory)."
        )
    several = isinstance(x, (list, tuple)) and any(hasattr(one, "shape") for one in x)
    if several or isinstance(x, dict):
        found = f"a list of {len(x)}" if several else "a dictionary"
        raise ValueError(f"{prefix} one tensor; received {found}.{call}")
    padding = "" if name in _IDS else f", and pass the mask tf.sequence_mask({name}.row_lengths())"
    check_dense(layer, name, x, padding)
    if not _is_tensor(x):
        remedy = _of_list(name, x) or call
        raise ValueError(f"{prefix} a tensor or an array; received a {type(x).__name__}.{remedy}")


def _is_tensor(x):
    return hasattr(x, "shape") and hasattr(x, "dtype")


def _of_list(name, x):
    return f" Convert it: numpy.array({name})." if isinstance(x, (list, tuple)) else ""


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
    """A tensor, or None, holds floating-point numbers."""
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
    """A mask is boolean and has one of the `shapes`; a dimension None there is not compared."""
    if mask is None:
        return
    check_dense(layer, name, mask)
    if not _is_tensor(mask):
        remedy = _of_list(name, mask) or " Leave it out where every step is valid."
        raise ValueError(
            f"{layer}: `{name}` must be a boolean tensor or array; received a "
            f"{type(mask).__name__}.{remedy}"
        )
    given, dtype = tuple(mask.shape), dtype_of(mask)
    if dtype != "bool":
        remedy = f'Convert it: keras.ops.cast({name}, "bool")'
        if len(given) > max(map(len, shapes)):
            remedy = f"One of shape {given} is no mask: check the order of the arguments"
        elif "float" in dtype:
            remedy += (
                f", or, where it is added to scores, 0 where attention is allowed: {name} == 0"
            )
        elif len(given) == 1 < min(map(len, shapes)):
            steps = shapes[0][-1]
            steps = steps if isinstance(steps, int) else "steps"
            remedy = (
                f"Make it of lengths: keras.ops.arange({steps}) < keras.ops.expand_dims({name}, 1)"
            )
        raise ValueError(
            f"{layer}: `{name}` must be boolean, True where attention is allowed; received dtype "
            f"{dtype}. {remedy}."
        )
    if not any(fits(given, shape) for shape in shapes):
        wanted = " or ".join(str(tuple(shape)) for shape in shapes)
        of = f"step of `{'inputs' if name == 'mask' else name.removesuffix('_mask')}`"
        pairs = name == "attention_mask"
        raise ValueError(
            f"{layer}: `{name}` must have shape {wanted}, one truth value for each "
            f"{'pair of a query and a memory step' if pairs else of}; received {given}."
            + (" For the memory alone pass `value_mask`." if pairs else "")
        )


def check_position(layer, position, uses_position, query_shape):
    """The number of a step is given for one step of a layer that uses it, and only there."""
    one_step = len(query_shape) == 2
    if position is None:
        if uses_position and one_step:
            raise ValueError(
                f"{layer}: `position`, the number of the step, is missing: the attention counts "
                "steps, and one step does not tell its number. Pass position=i, with i = 0, 1, 2 "
                "and so on, to layer(query, value), to attend(), or to the step() of an "
                "AttentionRNN."
            )
        return
    if not uses_position:
        raise ValueError(
            f"{layer}: `position` is for attentions that count steps, such as local-m; received "
            f"{described(position)}. Leave it out."
        )
    if not one_step:
        raise ValueError(
            f"{layer}: `position` is for one step, a query (batch, features); received "
            f"{described(position)} with a query of shape {tuple(query_shape)}, whose steps are "
            "counted from 0. Leave `position` out."
        )
    batch = query_shape[0]
    if is_integer(position):
        right = position >= 0
    else:
        right = "int" in dtype_of(position) if hasattr(position, "dtype") else False
        right = right and any(fits(tuple(position.shape), x) for x in ((), (batch,)))
    if not right:
        raise ValueError(
            f"{layer}: `position` must be an integer from 0, or integers of shape ({batch},); "
            f"received {described(position)}."
        )


def check_prepared(layer, memory):
    if not isinstance(memory, Memory):
        raise ValueError(
            f"{layer}: `memory` must be what prepare(value, value_mask=mask) returns, made once "
            f"before the first query; received {type(memory).__name__}. Or call "
            "layer(query, value)."
        )


def check_no_causal_mask(layer, use_causal_mask, query_shape):
    if use_causal_mask:
        raise ValueError(
            f"{layer}: `use_causal_mask=True` needs a query of rank 3, "
            f"(batch, steps, features); received one step, {tuple(query_shape)}."
        )
