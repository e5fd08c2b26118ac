"""Argument checks: declared once, run on entry, reported by one function.

A `Spec` declares the tensors of a call as its docstring does:

    CALL = Spec("query: float[B Tq Dq] | float[B Dq]", "value: float[B Tk Dv]", "mask: bool[B Tk]?")
    CALL.check(layer.name, {"query": query, "value": value, "mask": mask})

Sizes of one name agree. A size that is not known, None or symbolic, agrees with all. Names that
begin with D stand for features, whose number must be known. A question mark allows None, and "any"
allows every dtype. An error says which argument, what was given, what was expected and how to fix
it. A correct call builds no part of the message.
"""

import contextlib
import copy
import functools
import math
import numbers
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple, NoReturn, TypeGuard

import keras
import numpy as np

from keras_attention._typing import Nested, Size, Tensor, TensorShape

# Larger values are mistakes. They would stall, or fail far from the argument.
MAX_FEATURES = 2**20  # a kernel of 1024 rows then takes four gibibytes
MAX_STEPS = 2**24  # steps and words: float32, which holds positions, cannot count further
MAX_HOPS = 100  # Python traces each hop in a tenth of a second
MAX_UNROLLED_STEPS = 1000  # tracing this many takes a minute or two
MAX_SEED = 2**32 - 1  # the largest seed of JAX
MAX_TOKEN = 2**31 - 1
INF = math.inf

AXES = {
    **{"B": "batch", "T": "steps", "Tq": "steps", "J": "steps", "Tk": "memory steps"},
    **{"S": "sentences", "N": "sentences", "W": "words", "W'": "words", "K": "beams"},
    **{"Y": "rows", "X": "columns"},
}
# The axes whose sizes differ between several memories. All memories have the same batch.
MEMORY_AXES = {"Tk", "Dk", "Dv"}
KINDS = {"float": "floating-point", "int": "integer ids", "bool": "boolean", "any": "a tensor"}
# Remedies for errors that shapes and call do not explain.
REMEDIES = {
    "ids": "Embed ids first: keras.layers.Embedding(vocabulary_size, features)(ids). Cast other "
    'values: keras.ops.cast({name}, "float32"). ',
    "mask": "{masks} ",
    "int": 'Cast them: keras.ops.cast({name}, "int32"). ',
    "bool": "It is True where a step is valid: compute it, such as ids != 0, or cast it: "
    'keras.ops.cast({name}, "bool"). ',
    "ragged": "Pad it: {name}.to_tensor(), and pass its mask. ",
    "sparse": "Convert it: tf.sparse.to_dense({name}). ",
    "features": "Give the features to keras.Input. ",
    "prepared": "A prepared memory goes to attend() or step(). ",
    "several": "Several memories need a MultiSource. ",
    "weights": "It reads one memory: pass its weights, such as weights[0]. ",
    "beams": "In a search, use the memory that it passes to `step`: it is repeated for the beams. ",
    "attention_mask": "To mask only the memory, pass `value_mask`. ",
}


def raise_value_error(where: str, expected: str, received: object, remedy: str = "") -> NoReturn:
    """Raise the error of an argument. `received` is the value itself, or its `Description`."""
    received = received if isinstance(received, Description) else describe(received)
    received = received and f"; received {received}"
    # An exception that was caught before adds nothing.
    raise ValueError(f"{where}: {expected}{received}. {remedy}".rstrip()) from None


class Description(str):
    """Ready description of a value, which `raise_value_error` prints as it is."""

    __slots__ = ()


class Argument(NamedTuple):
    """A tensor of a call: its name, kind of dtype and, by rank, the names of its axes."""

    name: str
    kind: str
    shapes: dict[int, tuple[str, ...]]
    optional: bool

    @classmethod
    def parse(cls, declaration: str) -> "Argument":
        """Parse a declaration such as "value_mask: bool[B Tk]?"."""
        name, shapes = declaration.removesuffix("?").split(": ")
        kinds, axes = zip(*(x.rstrip("]").split("[") for x in shapes.split(" | ")), strict=True)
        by_rank = {len(names): names for names in (tuple(x.split()) for x in axes)}
        return cls(name, kinds[0], by_rank, declaration.endswith("?"))

    def item(self, n: int) -> "Argument":
        """Return the declaration of item n of a list. Of masks alone, some may be None."""
        shapes = {
            rank: tuple(f"{x}{n}" if x in MEMORY_AXES else x for x in axes)
            for rank, axes in self.shapes.items()
        }
        return Argument(f"{self.name}[{n}]", self.kind, shapes, self.kind == "bool")


class Spec:
    """The tensors of a call, see the module docstring. `call` shows how to write the call."""

    def __init__(self, *declarations: str, call: str | None = None) -> None:
        self.arguments: list[Argument] = [Argument.parse(x) for x in declarations]
        self.names: dict[str, None] = dict.fromkeys(x.name for x in self.arguments)
        self.required: list[str] = [x.name for x in self.arguments if not x.optional]
        self.call: str = call or f"layer({', '.join(self.required)})"
        self.lists: dict[str, int] = {}

    def _copy(self, arguments, lists):
        spec = copy.copy(self)
        spec.arguments, spec.lists = arguments, lists
        return spec

    def replace(self, *declarations: str) -> "Spec":
        """Return a copy with other declarations of some arguments."""
        new = {x.name: x for x in map(Argument.parse, declarations)}
        return self._copy([new.get(x.name, x) for x in self.arguments], self.lists)

    def for_memories(self, count: int | None) -> "Spec":
        """Return the spec for lists of `count` memories: every argument with the axis Tk is a list.

        None means one memory, not in a list.
        """
        if count is None:
            return self
        arguments, lists = [], {}
        for argument in self.arguments:
            if any("Tk" in axes for axes in argument.shapes.values()):
                lists[argument.name] = count
                arguments += map(argument.item, range(count))
            else:
                arguments.append(argument)
        return self._copy(arguments, lists)

    def check(
        self,
        layer: str,
        tensors: Mapping[str, Tensor],
        built: Mapping[str, int] = {},
        call: str = "",
    ) -> dict[str, int]:
        """Raise an error for tensors that are not as declared; return the sizes by axis.

        Args:
            layer: the name of the layer, for the error.
            tensors: the tensors by name. Arguments that are not in it are not checked.
            built: sizes that the layer was built for, by axis.
            call: how to write this call, if it is not that of the layer.
        """
        tensors = self._items(layer, tensors) if self.lists else tensors
        sizes = {**built}
        for argument in self.arguments:
            name = argument.name
            if name not in tensors or (argument.optional and tensors[name] is None):
                continue
            x, axes = tensors[name], ()
            try:
                axes = argument.shapes[len(x.shape)]
                valid = kind_of(x.dtype) == argument.kind or argument.kind == "any"
                valid = valid and (_is_dense_type(type(x)) or is_dense(x))
            except (AttributeError, KeyError, TypeError):
                valid = False
            for axis, size in zip(axes, x.shape if valid else (), strict=False):
                if isinstance(size, int):
                    valid = valid and sizes.setdefault(axis, size) == size
                elif size is None and axis[0] == "D":  # not a size that PyTorch traces
                    valid = False
            if not valid:
                self._raise_error(layer, argument, tensors, built, sizes, call or self.call)
        return sizes

    def check_shapes(
        self, layer: str, shapes: Mapping[str, object], built: Mapping[str, int] = {}
    ) -> dict[str, int]:
        """Check the shapes that a layer is built for, and return the features by axis."""
        sizes = self.check(layer, self.symbols(shapes, "float32"), built)
        return {axis: size for axis, size in sizes.items() if axis[0] == "D"}

    def symbols(self, shapes: Mapping[str, object], dtype: str) -> dict[str, Nested]:
        """Return symbolic tensors, or lists of them, of these shapes. Ids are int32."""
        ids = {x.name for x in self.arguments if x.kind == "int"}
        symbols = {}
        for name, shape in shapes.items():
            kind = "int32" if name in ids else dtype
            symbol = functools.partial(keras.KerasTensor, dtype=kind)
            symbols[name] = None if shape is None else map_shapes(symbol, shape)
        return symbols

    def _items(self, layer, tensors):
        """Return the tensors by name, the items of lists as value[0], value[1] and so on."""
        items = {name: x for name, x in tensors.items() if name not in self.lists}
        for name, count in self.lists.items():
            x = tensors.get(name)
            if x is None and (name not in tensors or name not in self.required):
                continue
            if not isinstance(x, (list, tuple)) or hasattr(x, "_fields") or len(x) != count:
                expected = f"`{name}` must be a list of {count}, one for each attention"
                remedy = f"Pass {name}=[first, second], in the order of the attentions."
                raise_value_error(layer, expected, Description(describe_length(x)), remedy)
            items |= {f"{name}[{n}]": one for n, one in enumerate(x)}
        return items

    def _raise_error(self, layer, argument, tensors, built, sizes, call):
        """Raise the error of a tensor: one message, and a remedy for known problems."""
        name, kind, shapes, _ = argument
        x = tensors[name]
        shape = tuple(getattr(x, "shape", ()))
        wanted = [[str(sizes.get(a, _axis_name(a))) for a in axes] for axes in shapes.values()]
        wanted = [f"({', '.join(axes)}{',' * (len(axes) == 1)})" for axes in wanted]
        expected = f"`{name}` must be {KINDS[kind]}, of shape {' or '.join(wanted)}"
        problem = self._problem(argument, x)
        for axis, size in zip(shapes.get(len(shape), ()), shape, strict=False):
            if isinstance(size, int) and sizes.get(axis, size) != size:
                other = "" if axis in built else self._first_with(axis, tensors)
                count = f"{sizes[axis]} {_axis_name(axis)}"
                count = f"batch size {sizes[axis]}" if axis == "B" else count
                owner = f"`{other}` has" if other else f"the layer was built for `{name}` of"
                expected += f", because {owner} {count}"
                problem = "beams" if (name, other) == ("inputs", "memory") else problem
                break
        remedy = REMEDIES.get(problem, "")
        remedy = remedy.format(name=name, masks=masks_by_name(self.names))
        raise_value_error(layer, expected, x, f"{remedy}Call {call}.")

    def _problem(self, argument, x):
        """Return the key of the remedy for a tensor that is not as declared."""
        name, kind, shapes, _ = argument
        if hasattr(x, "_fields"):
            return "prepared"
        if isinstance(x, (list, tuple)):
            tensors = any(hasattr(one, "shape") for one in x)
            keys = {"value": "several", "memory": "several", "weights": "weights"}
            return keys.get(name, "") if tensors else ""
        if not (hasattr(x, "shape") and hasattr(x, "dtype")):
            return ""
        if not is_dense(x):
            return _sparsity(x)
        received, axes = kind_of(x.dtype), shapes.get(len(x.shape))
        if kind == "float" != received:
            return "mask" if received == "bool" else "ids"
        if received != kind != "any":
            return kind
        if axes and axes[-1][0] == "D" and x.shape[-1] is None:
            return "features"
        return "attention_mask" if name.startswith("attention_mask") else ""

    def _first_with(self, axis, tensors):
        """Return the name of the first tensor that has a size of an axis."""
        for argument in self.arguments:
            shape = getattr(tensors.get(argument.name), "shape", ())
            axes = argument.shapes.get(len(shape), ())
            if isinstance(dict(zip(axes, shape, strict=False)).get(axis), int):
                return argument.name


def _axis_name(axis: str) -> str:
    """Return the name of an axis in words. Axes of several memories have a number."""
    return AXES.get(axis.rstrip("0123456789"), "features")


def map_shapes(function: Callable[[TensorShape], Any], shape: Any) -> Any:
    """Apply a function to a shape, or to each shape of a list."""
    if any(isinstance(size, (list, tuple)) for size in shape):
        return [function(tuple(one)) for one in shape]
    return function(tuple(shape))


def masks_by_name(names: Iterable[str]) -> str:
    """Return how to pass the masks among the arguments of a call."""
    masks = [f"`{x}`" for x in names if x.endswith("mask") and x != "use_causal_mask"]
    return f"Pass a mask by its name: {' or '.join(masks)}." if masks else ""


def is_dense(x: object) -> bool:
    """Return True if a tensor is neither ragged nor sparse."""
    symbolic = isinstance(x, keras.KerasTensor)
    return not (x.ragged or x.sparse) if symbolic else _is_dense_type(type(x))


@functools.cache
def _is_dense_type(kind: type) -> bool:
    """Return True if all tensors of a type are dense. Symbolic ones may be anything."""
    sparse = kind.__name__ in ("RaggedTensor", "SparseTensor")
    return not sparse and not issubclass(kind, keras.KerasTensor)


def _sparsity(x):
    return "ragged" if hasattr(x, "to_tensor") or getattr(x, "ragged", False) else "sparse"


def check_dense(where: str, name: str, x: object) -> None:
    if not is_dense(x):
        remedy = REMEDIES[_sparsity(x)].format(name=name)
        raise_value_error(where, f"`{name}` must be a dense tensor", x, remedy)


@functools.cache
def kind_of(dtype: object) -> str:
    """Return "float", "int" or "bool" for a dtype of any precision, and its name for others."""
    name = _dtype_name(dtype)
    return next((kind for kind in KINDS if kind in name), name)


def dtype_of(x: Tensor) -> str:
    """Return the name of the dtype of a tensor, also of one that Keras does not know."""
    return _dtype_name(x.dtype)


def _dtype_name(dtype):
    with contextlib.suppress(ValueError):
        return keras.backend.standardize_dtype(dtype)
    return str(dtype)


def is_floating(x: Tensor) -> bool:
    """Return True if a tensor has a floating-point dtype, of any precision."""
    return kind_of(x.dtype) == "float"


def fits(shape: Sequence[object], expected: Sequence[object]) -> bool:
    """Return True if shapes may be equal. Only integers are compared: other sizes are unknown."""
    for x, y in zip(shape, expected, strict=False):
        if isinstance(x, int) and isinstance(y, int) and x != y:
            return False
    return len(shape) == len(expected)


def is_tensor(x: Tensor, kind: str, *shape: Size) -> bool:
    """Return True for a tensor of a kind and shape; None fits any size."""
    has_kind = hasattr(x, "shape") and hasattr(x, "dtype") and kind_of(x.dtype) == kind
    return has_kind and fits(tuple(x.shape), shape)


def check_result(layer: str, hook: str, result: object, *sizes: Size, remedy: str = "") -> None:
    """Check that a hook returned a tensor of these sizes. A projection has any features."""
    projection = hook.startswith("project")
    sizes = (*sizes, None) if projection else sizes
    fitting = projection and fits(tuple(getattr(result, "shape", ())), sizes)
    if not fitting and not is_tensor(result, "float", *sizes):
        shape = ", ".join("features" if x is None else str(x) for x in sizes)
        expected = f"`{hook}` must return floating-point values of shape ({shape})"
        raise_value_error(layer, expected, result, remedy)


def check_choice(
    layer: str, name: str, value: object, choices: Iterable[str], hint: str = ""
) -> str:
    if not isinstance(value, str) or value not in choices:
        expected = f"`{name}` must be one of {', '.join(map(repr, choices))}"
        raise_value_error(layer, expected, value, hint)
    return value


def check_bool(layer: str, name: str, value: object) -> bool:
    if not isinstance(value, (bool, np.bool_)):
        raise_value_error(layer, f"`{name}` must be True or False, a boolean", value)
    return bool(value)


def check_training(layer: str, value: object) -> None:
    """Accept what Keras accepts: None, or a boolean, even as a number or a tensor."""
    if not (value is None or isinstance(value, numbers.Number) or hasattr(value, "dtype")):
        raise_value_error(layer, "`training` must be None, True or False", value)


def check_int(
    layer: str, name: str, value: Any, least: int = 1, most: int = MAX_FEATURES, hint: str = ""
) -> int:
    """Return an integer from `least` to `most`."""
    if not is_integer(value) or not least <= value <= most:
        with contextlib.suppress(TypeError, ValueError, OverflowError):
            if int(value) == float(value) and least <= int(value) <= most:
                hint = f"Write {name}={int(value)}."  # in place of "64" or 64.0
        wanted = f"a positive integer, at most {most}"
        wanted = wanted if least == 1 else f"an integer from {least} to {most}"
        received = Description(f"{value!r:.80} of type {type(value).__name__}")
        raise_value_error(layer, f"`{name}` must be {wanted}", received, hint)
    return int(value)


def is_integer(value: object) -> TypeGuard[int]:
    """Return True for an integer that is not a boolean."""
    return isinstance(value, numbers.Integral) and not isinstance(value, bool)


def is_number(value: object) -> TypeGuard[float]:
    """Return True for a finite number that is not a boolean."""
    is_bool = isinstance(value, bool)
    return isinstance(value, numbers.Real) and not is_bool and math.isfinite(value)


def check_rate(layer: str, name: str, value: object) -> float:
    if not is_number(value) or not 0 <= value < 1:
        raise_value_error(layer, f"`{name}` must be a number in [0, 1)", value, "50 % is 0.5.")
    return float(value)


def check_number(
    layer: str,
    name: str,
    value: object,
    least: float = -INF,
    most: float = INF,
    above: float = -INF,
) -> float:
    """Return a finite number, at least `least`, at most `most`, and above `above`."""
    if not is_number(value) or not (least <= value <= most and value > above):
        limits = {"of at least": least, "above": above, "at most": most}
        limits = [f"{word} {x:g}" for word, x in limits.items() if math.isfinite(x)]
        expected = f"`{name}` must be a number {' and '.join(limits)}".rstrip()
        raise_value_error(layer, expected, value)
    return float(value)


def check_seed(layer: str, seed: object) -> int | None:
    return None if seed is None else check_int(layer, "seed", seed, 0, MAX_SEED)


def check_token(where: str, name: str, token: object) -> int:
    hint = "Look it up in the vocabulary." if isinstance(token, str) else ""
    return check_int(where, name, token, 0, MAX_TOKEN, hint)


def describe(value: Any) -> str:
    """Describe a value in an error: the dtype and shape of a tensor, otherwise the value."""
    if isinstance(value, type):
        return f"the class {value.__name__}"
    if hasattr(value, "_fields"):  # a NamedTuple such as Memory, whose tensors would fill a page
        return type(value).__name__
    if hasattr(value, "shape") and hasattr(value, "dtype"):
        sparsity = "" if is_dense(value) else f"{_sparsity(value)} "
        return f"{sparsity}{dtype_of(value)} of shape {tuple(value.shape)}"
    if isinstance(value, (list, tuple)) and any(hasattr(one, "shape") for one in value):
        inside = ", ".join(map(describe, value))
        return f"[{inside}]" if isinstance(value, list) else f"({inside})"
    return f"{value!r:.100}"


def describe_length(value: object) -> str:
    """Describe a value that should be a list or a tuple of another length."""
    if isinstance(value, (tuple, list)) and not hasattr(value, "_fields"):
        return f"a {type(value).__name__} of {len(value)}"
    return describe(value)


def instance_hint(value: object) -> str:
    """Return how to fix a class that is passed in place of a layer."""
    return f"Make one: {value.__name__}(...)." if isinstance(value, type) else ""


def is_cell(layer: object) -> bool:
    """Return True for a layer that computes one step of a recurrence; an RNN runs all."""
    return (
        hasattr(layer, "state_size") and callable(layer) and not isinstance(layer, keras.layers.RNN)
    )
