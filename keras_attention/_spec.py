"""What an argument must be: declared once, and checked at the door.

A `Spec` declares the tensors of a call as its docstring does:

    CALL = Spec("query: float[B Tq Dq] | float[B Dq]", "value: float[B Tk Dv]", "mask: bool[B Tk]?")
    CALL.check(layer.name, {"query": query, "value": value, "mask": mask})

Sizes of one name agree. A size that is not known, None or symbolic, agrees with all. Names that
begin with D stand for features, whose number must be known. A question mark allows None, and "any"
allows every kind of number. An error says which argument, what was given, what was expected and how
to fix it. A correct call makes no part of it.
"""

import contextlib
import functools
import math
import numbers
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple, NoReturn

import keras
import numpy as np

from keras_attention._typing import Shape

# Larger numbers are mistakes. They would stall, or fail far from the argument.
WIDEST = 2**20  # features: a kernel of 1024 rows then takes four gibibytes
LONGEST = 2**24  # steps and words: float32, which holds positions, cannot count further
DEEPEST = 100  # hops: Python traces each in a tenth of a second
UNROLLED = 1000  # steps of an unrolled loop: tracing this many takes a minute or two
LAST_SEED = 2**32 - 1  # the largest seed of JAX
LAST_TOKEN = 2**31 - 1
NOT_NORMALISED = "Leave it out: the weights of this attention are not normalised."

AXES = {
    **{"B": "batch", "T": "steps", "Tq": "steps", "J": "steps", "Tk": "memory steps"},
    **{"S": "sentences", "N": "sentences", "W": "words", "W'": "words", "K": "beams"},
}
# What each of several memories has of its own. All have the same batch.
OWN_AXES = {"Tk", "Dk", "Dv"}
KINDS = {
    "float": "hold vectors of floating-point numbers",
    "int": "hold word ids, integers",
    "bool": "be boolean, True where {}",
}
# How to fix a problem, by argument and problem, or by kind and problem, or by problem alone.
REMEDIES = {
    ("query", "missing"): "{call}.",
    ("value", "missing"): "{call}, value of shape (batch, memory steps, features); for "
    "self-attention pass the same tensor twice.",
    ("memory", "prepared"): "Call decoder.step(inputs, state, memory), or pass the tensor that was "
    "prepared.",
    "prepared": "Call layer.attend(query, memory).",
    ("bool", "ragged"): "Pad it with {name}.to_tensor().",
    ("int", "ragged"): "Pad it with {name}.to_tensor().",
    "ragged": "Pad it with {name}.to_tensor(), and pass the mask "
    "tf.sequence_mask({name}.row_lengths()).",
    "sparse": "Convert it: tf.sparse.to_dense({name}).",
    ("bool", "list"): "Convert it: numpy.array({name}, bool).",
    "list": "Convert it: numpy.array({name}).",
    ("bool", "other"): "Leave it out where every step is valid.",
    ("bool", "kind"): "Check the order of the arguments. Convert it: keras.ops.cast({name}, "
    '"bool"). Make it of lengths: keras.ops.less(keras.ops.arange(steps), keras.ops.reshape('
    "lengths, (-1, 1))). Or of a mask that is added to scores: {name} == 0.",
    ("float", "mask"): "{masks}",
    ("float", "kind"): "Embed token ids first: keras.layers.Embedding(vocabulary_size, features)"
    '(ids). Cast other numbers: keras.ops.cast({name}, "float32").',
    ("int", "kind"): 'Cast them, keras.ops.cast({name}, "int32"), or declare them, '
    'keras.Input(shape, dtype="int32").',
    "features": "Give it to keras.Input.",
    "built": "Check the order of the arguments, or use another layer for another size.",
    ("inputs", "agree"): "In a search, read the memory that it passes to `step`: it is repeated "
    "for the beams.",
    ("value", "several"): "{call}. For several memories, use a MultiSource.",
    ("memory", "several"): "{call}. For several memories, use a MultiSource as the attention.",
    ("weights", "several"): "It reads one memory. Pass the weights for that memory, such as "
    "weights[0]; in a model, let the decoder read one memory, or take another head.",
    ("source", "shape"): "Pass a batch: one source is source[None].",
    ("source", "several"): "Call fit(source, target) or generate(source, max_length). For several "
    "sources, write an encoder that reads all of them.",
    ("attention_mask", "size"): "To mask only the memory, pass `value_mask`.",
    "several": "{call}.",
    "shape": "{call}.",
    "rank": "Make its inner axes one: {name} = keras.layers.Reshape((-1, {features}))({name}).",
    "missing": "{call}.",
    "other": "{call}.",
}


def raise_value_error(where: str, expected: str, received: Any, remedy: str = "") -> NoReturn:
    """Raises the error of an argument. `received` is the value itself, or `Description` for it."""
    received = received if isinstance(received, Description) else described(received)
    received = received and f"; received {received}"
    # Nothing that was caught before says more.
    raise ValueError(f"{where}: {expected}{received}. {remedy}".rstrip()) from None


class Description(str):
    """A description, which `raise_value_error` does not describe again."""

    __slots__ = ()


class Argument(NamedTuple):
    """A tensor of a call: its name, kind of numbers and, by rank, the names of its axes."""

    name: str
    kind: str
    forms: dict[int, tuple[str, ...]]
    optional: bool

    def of_one(self, n: int) -> "Argument":
        """The item n of a list of such tensors. Of masks alone, some may be None."""
        forms = {
            rank: tuple(f"{x}{n}" if x in OWN_AXES else x for x in axes)
            for rank, axes in self.forms.items()
        }
        return Argument(f"{self.name}[{n}]", self.kind, forms, self.kind == "bool")


def parsed(declaration: str) -> Argument:
    """Reads "value_mask: bool[B Tk]?"."""
    name, forms = declaration.removesuffix("?").split(": ")
    kinds, axes = zip(*(form.rstrip("]").split("[") for form in forms.split(" | ")), strict=True)
    by_rank = {len(names): names for names in (tuple(x.split()) for x in axes)}
    return Argument(name, kinds[0], by_rank, declaration.endswith("?"))


class Spec:
    """The tensors of a call, see the top of the module. `call` tells how to write the call."""

    def __init__(self, *declarations: str, call: str | None = None) -> None:
        self.arguments = [parsed(x) for x in declarations]
        self.names = dict.fromkeys(x.name for x in self.arguments)
        self.tensors = [x.name for x in self.arguments if not x.optional]
        self.call = call or f"layer({', '.join(self.tensors)})"
        self.lists: dict[str, int] = {}

    def but(self, *declarations: str) -> "Spec":
        """A copy with other declarations of some arguments."""
        spec = Spec(*declarations, call=self.call)
        new = {x.name: x for x in spec.arguments}
        spec.arguments = [new.get(x.name, x) for x in self.arguments]
        spec.names, spec.tensors = self.names, self.tensors
        return spec

    def of_each(self, count: int | None) -> "Spec":
        """The same for several memories: all that has the axis Tk comes in lists of `count` items.

        None changes nothing.
        """
        if count is None:
            return self
        spec = Spec(call=self.call)
        spec.names, spec.tensors = self.names, self.tensors
        for argument in self.arguments:
            if any("Tk" in axes for axes in argument.forms.values()):
                spec.lists[argument.name] = count
                spec.arguments += map(argument.of_one, range(count))
            else:
                spec.arguments.append(argument)
        return spec

    def check(
        self,
        layer: str,
        tensors: Mapping[str, Any],
        built: Mapping[str, int] = {},
        call: str | None = None,
    ) -> dict[str, Any]:
        """Refuses tensors that are not as declared, and returns the sizes of the others by axis.

        Args:
            layer: the name of the layer, for the error.
            tensors: the tensors by name. Arguments that are not in it are not checked.
            built: sizes that the layer was built for, by axis.
            call: how to write this call, if it is not that of the layer.
        """
        tensors = self._items(layer, tensors) if self.lists else tensors
        sizes = {**built}
        for argument in self.arguments:
            name, kind, forms, optional = argument
            if name not in tensors or (optional and tensors[name] is None):
                continue
            x = tensors[name]
            try:
                shape = tuple(x.shape)
                axes, right = forms[len(shape)], kind in (kind_of(x.dtype), "any")
                right = right and (_is_dense_type(type(x)) or is_dense(x))
            except (AttributeError, KeyError, TypeError):
                right = False
            if right:
                for axis, size in zip(axes, shape, strict=True):
                    if isinstance(size, int):
                        right = right and sizes.setdefault(axis, size) == size
                    elif axis[0] == "D":
                        right = False
            if not right:
                self._raise_error(layer, argument, tensors, built, sizes, call or self.call)
        return sizes

    def check_shapes(
        self, layer: str, shapes: Mapping[str, Any], built: Mapping[str, int] = {}
    ) -> dict[str, int]:
        """`check` for a layer that is built of shapes. Returns the numbers of features by axis."""
        sizes = self.check(layer, self.symbols(shapes, "float32"), built)
        return {axis: size for axis, size in sizes.items() if axis[0] == "D"}

    def symbols(self, shapes: Mapping[str, Any], dtype: str) -> dict[str, Any]:
        """Symbolic tensors of these shapes, or of lists of them. `dtype` is that of numbers."""
        kinds = {x.name.partition("[")[0]: x.kind for x in self.arguments}
        symbols = {}
        for name, shape in shapes.items():
            of_kind = "int32" if kinds.get(name) == "int" else dtype
            symbol = functools.partial(keras.KerasTensor, dtype=of_kind)
            symbols[name] = None if shape is None else map_shapes(symbol, shape)
        return symbols

    def _items(self, layer, tensors):
        """The tensors by name. Each item of a list gets a name with its index, such as value[0]."""
        items = {name: x for name, x in tensors.items() if name not in self.lists}
        for name, count in self.lists.items():
            x = tensors.get(name)
            if x is None and (name not in tensors or name not in self.tensors):
                continue
            is_list = isinstance(x, (list, tuple)) and not hasattr(x, "_fields")
            if not is_list or len(x) != count:
                expected = f"`{name}` must be a list of {count}, one for each attention"
                received = Description(counted(x)) if is_list else x
                remedy = f"Pass {name}=[first, second], in the order of the attentions."
                raise_value_error(layer, expected, received, remedy)
            items |= {f"{name}[{n}]": one for n, one in enumerate(x)}
        return items

    def _raise_error(self, layer, argument, tensors, built, sizes, call):
        """Write the error: find the problem, and its remedy in the table."""
        name, kind, *_ = argument
        problem, expected, received = self._problem(argument, tensors, built, sizes)
        keys = (name.partition("[")[0], problem), (kind, problem), problem
        remedy = next((REMEDIES[key] for key in keys if key in REMEDIES), "")
        masks = masks_by_name(self.names)
        words = {"name": name, "call": f"Call {call}", "masks": masks}
        if problem == "rank":
            words["features"] = tensors[name].shape[-1]
        raise_value_error(layer, expected, received, remedy.format(**words))

    def _problem(self, argument, tensors, built, sizes):
        """The problem, what was expected, and what was received, in words."""
        name, kind, forms, _ = argument
        x, must = tensors.get(name), f"`{name}` must"
        several = isinstance(x, (list, tuple)) and any(hasattr(one, "shape") for one in x)
        if x is None:
            return "missing", f"`{name}` is missing, of shape {_in_words(forms)}", Description()
        if hasattr(x, "_fields"):
            return (
                "prepared",
                f"{must} be one tensor",
                Description(f"a prepared {type(x).__name__}"),
            )
        if several or isinstance(x, dict):
            received = f"a list of {len(x)}" if several else "a dictionary"
            return "several", f"{must} be one tensor", Description(received)
        if not hasattr(x, "shape") or not hasattr(x, "dtype"):
            problem = "list" if isinstance(x, (list, tuple)) else "other"
            expected = "a boolean tensor or array" if kind == "bool" else "a tensor or an array"
            return problem, f"{must} be {expected}", Description(f"a {type(x).__name__}")
        if not is_dense(x):
            problem = _sparsity(x)
            return problem, f"{must} be a dense tensor", Description(f"a {problem} one")
        pairs, shape = name.startswith("attention_mask"), tuple(x.shape)
        if kind not in (kind_of(x.dtype), "any"):
            valid = "attention is allowed" if pairs else "a step is valid"
            problem = "mask" if kind == "float" and kind_of(x.dtype) == "bool" else "kind"
            return (
                problem,
                f"{must} {KINDS[kind].format(valid)}",
                Description(f"dtype {dtype_of(x)}"),
            )
        received = Description(shape)
        if kind == "bool":
            named = [[_size(axis, sizes) for axis in axes] for axes in forms.values()]
            shapes = [f"({', '.join(axes)}{',' * (len(axes) == 1)})" for axes in named]
            wanted = " or ".join(shapes)
            of = "inputs" if name == "mask" else name.replace("_mask", "")
            of = "pair of a query and a memory step" if pairs else f"step of `{of}`"
            return "size", f"{must} have shape {wanted}, one truth value for each {of}", received
        if len(shape) not in forms:
            higher = len(shape) > max(forms) == 3 and forms[3][2][0] == "D" and shape[-1]
            problem = "rank" if higher else "shape"
            return problem, f"{must} have shape {_in_words(forms)}", received
        axes = forms[len(shape)]
        if axes[-1][0] == "D" and not isinstance(shape[-1], int):
            expected = f"the last dimension of `{name}`, its features, must be known"
            return "features", expected, received
        pairs = zip(axes, shape, strict=True)
        axis, size = next((a, n) for a, n in pairs if isinstance(n, int) and sizes.get(a, n) != n)
        if axis in built:
            what = _word_of(axis)
            expected = f"the layer was built for `{name}` of {built[axis]} {what}"
            return "built", expected, received
        what = "batch size" if axis == "B" else f"number of {_word_of(axis)}"
        other = self._other(axis, name, tensors)
        expected = f"the {what} must be the same in `{other}` and `{name}`"
        return "agree", expected, Description(f"`{other}` {sizes[axis]}, `{name}` {size}")

    def _other(self, axis, name, tensors):
        """The last tensor before `name` that has a size of the axis."""
        names = [x.name for x in self.arguments]
        for other in reversed(self.arguments[: names.index(name)]):
            axes = other.forms.get(len(getattr(tensors.get(other.name), "shape", ())), ())
            if axis in axes and isinstance(tensors[other.name].shape[axes.index(axis)], int):
                return other.name
        return name


def _word_of(axis):
    """What the size of an axis counts. The axis of one of several memories has a number."""
    return AXES.get(axis.rstrip("0123456789"), "features")


def _size(axis, sizes):
    """The size of an axis, in words where it is unknown."""
    return str(sizes[axis]) if isinstance(sizes.get(axis), int) else _word_of(axis)


def _in_words(forms):
    """The shapes that an argument may have."""
    named = [", ".join(_word_of(x) for x in axes) for axes in forms.values()]
    return ", or ".join(f"({axes})" for axes in named) + " for one step" * (len(forms) > 1)


def map_shapes(function: Callable[[Shape], Any], shape: Any) -> Any:
    """The result of a function for a shape, or a list of results for a list of shapes."""
    if any(isinstance(size, (list, tuple)) for size in shape):
        return [function(tuple(one)) for one in shape]
    return function(tuple(shape))


def masks_by_name(names: Iterable[str]) -> str:
    """How to pass the masks among the arguments of a call."""
    masks = [f"`{x}`" for x in names if x.endswith("mask") and x != "use_causal_mask"]
    return f"Pass a mask by its name: {' or '.join(masks)}." if masks else ""


def is_dense(x: Any) -> bool:
    """Whether a tensor is neither ragged nor sparse."""
    symbolic = isinstance(x, keras.KerasTensor)
    return not (x.ragged or x.sparse) if symbolic else _is_dense_type(type(x))


@functools.cache
def _is_dense_type(kind):
    """Whether all tensors of a type are dense. Symbolic ones may be anything."""
    sparse = kind.__name__ in ("RaggedTensor", "SparseTensor")
    return not sparse and not issubclass(kind, keras.KerasTensor)


def _sparsity(x):
    return "ragged" if hasattr(x, "to_tensor") or getattr(x, "ragged", False) else "sparse"


def check_dense(where: str, name: str, x: Any) -> None:
    if not is_dense(x):
        remedy = "Pad it with {0}.to_tensor(), or convert it: tf.sparse.to_dense({0})."
        received = Description(f"a {_sparsity(x)} one")
        raise_value_error(where, f"`{name}` must be a dense tensor", received, remedy.format(name))


@functools.cache
def kind_of(dtype: Any) -> str:
    """ "float", "int" or "bool" for a dtype of any precision; its name for others."""
    name = _name_of(dtype)
    return next((kind for kind in KINDS if kind in name), name)


def dtype_of(x: Any) -> str:
    """The name of a dtype, also of one that Keras does not know."""
    return _name_of(x.dtype)


def _name_of(dtype):
    with contextlib.suppress(ValueError):
        return keras.backend.standardize_dtype(dtype)
    return str(dtype)


def is_floating(x: Any) -> bool:
    """Whether a tensor holds floating-point numbers, of any precision."""
    return kind_of(x.dtype) == "float"


def fits(shape: Shape, wanted: Shape) -> bool:
    """Whether shapes may be equal."""
    right = len(shape) == len(wanted)
    for one, other in zip(shape, wanted, strict=False):
        # A size is known if it is a number, not a tensor or None.
        right = right and (one == other or not isinstance(one, int) or not isinstance(other, int))
    return right


def is_tensor(x: Any, kind: str, *shape: Any) -> bool:
    """Whether this is a tensor of a kind and a shape; None is any size."""
    right = hasattr(x, "shape") and hasattr(x, "dtype") and kind_of(x.dtype) == kind
    return right and fits(tuple(x.shape), shape)


# What the hooks of an attention must return: kind, axes in words, and what to say of them.
RESULTS = {
    "score": "floating-point numbers of shape (batch, query steps, memory steps)",
    "weigh": "floating-point weights of the shape of the scores",
    "project_query": "(batch, query steps, features)",
    "project_key": "(batch, memory steps, features)",
    "advance": "weights of shape (batch, 1, memory steps)",
    "combine": "floating-point numbers of shape (batch, query steps, features of `output_size`)",
}


def check_result(layer: str, hook: str, result: Any, *wanted: Any, remedy: str = "") -> None:
    """What a hook returned, a tensor of these sizes. A projection has any features after them."""
    projected = hook.startswith("project")
    shape = tuple(getattr(result, "shape", ()))
    right = is_tensor(result, "float", *wanted)
    if projected:
        right = len(shape) == len(wanted) + 1 and fits(shape[:-1], wanted)
    if not right:
        sizes = [*wanted, *["features"] * projected]
        expected = f"`{hook}` must return {RESULTS[hook]}, here ({', '.join(map(str, sizes))})"
        raise_value_error(layer, expected, result, remedy)


def check_choice(layer, name, value, choices, hint=""):
    if not isinstance(value, str) or value not in choices:
        raise_value_error(
            layer, f"`{name}` must be one of {', '.join(map(repr, choices))}", value, hint
        )
    return value


def unquoted(value):
    """The advice to leave out the quotes, for a string."""
    return ", without quotes" if isinstance(value, str) else ""


def check_bool(layer, name, value):
    if not isinstance(value, (bool, np.bool_)):
        remedy = f"Write {name}=True or {name}=False{unquoted(value)}."
        raise_value_error(layer, f"`{name}` must be True or False, a boolean", value, remedy)
    return bool(value)


def check_training(layer, value):
    """Accepts what Keras accepts: None, or a boolean, even as a number or a tensor."""
    if not (value is None or isinstance(value, numbers.Number) or hasattr(value, "dtype")):
        remedy = f"Write training=True or training=False{unquoted(value)}."
        raise_value_error(layer, "`training` must be None, True or False", value, remedy)


def check_int(layer, name, value, least=1, most=WIDEST, hint=""):
    """An integer from `least` to `most`."""
    if not is_integer(value) or not least <= value <= most:
        wanted = f"a positive integer, at most {most}"
        wanted = wanted if least == 1 else f"an integer from {least} to {most}"
        with contextlib.suppress(TypeError, ValueError, OverflowError):
            if int(value) == float(value) and least <= int(value) <= most:
                hint = f"Write {name}={int(value)}."  # in place of "64" or 64.0
        received = Description(f"{value!r:.80} of type {type(value).__name__}")
        raise_value_error(layer, f"`{name}` must be {wanted}", received, hint)
    return int(value)


def is_integer(value):
    """Whether the value is an integer, but not a boolean."""
    return isinstance(value, numbers.Integral) and not isinstance(value, bool)


def is_number(value):
    """Whether the value is a finite number, but not a boolean."""
    real = isinstance(value, numbers.Real) and not isinstance(value, bool)
    return real and math.isfinite(value)


def check_rate(layer, name, value):
    if not is_number(value) or not 0 <= value < 1:
        remedy = f"Write {name}=0.2, for example{unquoted(value)}, or 0.5 for 50 %."
        raise_value_error(layer, f"`{name}` must be a number in [0, 1)", value, remedy)
    return float(value)


def check_number(layer, name, value, least=-math.inf, most=math.inf, above=-math.inf):
    """A finite number, at least `least`, at most `most`, and above `above`."""
    if not is_number(value) or not (least <= value <= most and value > above):
        limits = {"of at least": least, "above": above, "at most": most}
        limits = [f"{word} {x:g}" for word, x in limits.items() if math.isfinite(x)]
        raise_value_error(
            layer, f"`{name}` must be a number {' and '.join(limits)}".rstrip(), value
        )
    return float(value)


def check_seed(layer, seed):
    hint = "None draws other numbers every time."
    return None if seed is None else check_int(layer, "seed", seed, 0, LAST_SEED, hint)


def check_token(where, name, token):
    hint = "Look it up in the vocabulary." if isinstance(token, str) else ""
    return check_int(where, name, token, 0, LAST_TOKEN, hint)


def described(value):
    """Describes a value in an error: the dtype and shape of a tensor, otherwise the value."""
    if isinstance(value, type):
        return f"the class {value.__name__}"
    if hasattr(value, "_fields"):  # a NamedTuple such as Memory, whose tensors would fill a page
        return type(value).__name__
    if hasattr(value, "shape") and hasattr(value, "dtype"):
        return f"{dtype_of(value)} of shape {tuple(value.shape)}"
    if isinstance(value, (list, tuple)) and any(hasattr(one, "shape") for one in value):
        inside = ", ".join(map(described, value))
        return f"[{inside}]" if isinstance(value, list) else f"({inside})"
    return f"{value!r:.200}"


def counted(value):
    """Describes a result that should be a tuple of another length."""
    several = isinstance(value, (tuple, list))
    return f"a {type(value).__name__} of {len(value)}" if several else described(value)


def instance_hint(value):
    """How to fix a class given in place of a layer."""
    return f"Make one: {value.__name__}(...)." if isinstance(value, type) else ""


def is_cell(layer):
    """Whether a layer makes one step of a recurrence. An RNN has a `state_size` too."""
    return (
        hasattr(layer, "state_size") and callable(layer) and not isinstance(layer, keras.layers.RNN)
    )
