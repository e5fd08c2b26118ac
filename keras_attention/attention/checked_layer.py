"""The base of all layers: checks of a call, and a config made from the constructor's arguments."""

from __future__ import annotations

import contextlib
import copy
import functools
import inspect
import types
import weakref
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, NoReturn, Self

import keras

from keras_attention._spec import Spec, check_bool, check_training, masks_by_name
from keras_attention._typing import Config, LayerOptions, Nested, Tensor
from keras_attention.attention.mask_warning import warn_of_dropped_masks
from keras_attention.backend import REVERSES_UNROLLED_MASK, Function, project
from keras_attention.ops.matmul import cast

__all__ = ["CheckedLayer", "arguments_of", "as_in_a_call", "check_directions", "check_not_fixed"]
__all__ += ["deserialized", "float_weights", "raise_not_initialized", "record_holder", "serialized"]
__all__ += ["take_dtype", "traced", "updates_weights", "with_weights"]

# For a type checker, no class is hashable.
cached: Any = functools.cache

FLAGS = ("use_causal_mask", "return_attention_scores")
# The layers that hold a layer, so that a config says which layers are shared.
_holders: weakref.WeakKeyDictionary = weakref.WeakKeyDictionary()
# Attributes, and arguments of the same names, in which layers of Keras hold others.
_INSIDE = "cell", "cells", "layer"


def as_in_a_call(
    layer: keras.layers.Layer, function: Function, training: bool | None = None
) -> Nested:
    """Run a function with the variables cast, and with `training` set, as in a call of the layer.

    A gradient runs hooks again outside of the call, where Keras does neither.
    """
    if training is None and layer.compute_dtype == layer.variable_dtype:
        return function()
    return _Caller(function, dtype=layer.dtype_policy, name="caller")(training=training)


def updates_weights(layer: keras.layers.Layer) -> bool:
    """Return whether a call may assign weights in training, as `BatchNormalization` does."""
    return layer.trainable and any("float" in x.dtype for x in layer.non_trainable_weights)


def take_dtype(options: LayerOptions, layer: object) -> None:
    """Let the constructor arguments `options` have the dtype of a layer that they hold."""
    if options.get("dtype") is None and isinstance(layer, keras.layers.Layer):
        options["dtype"] = layer.dtype_policy


def float_weights(layer: keras.layers.Layer) -> list[keras.Variable]:
    """Return the floating-point weights of a layer, frozen ones too."""
    return [x for x in layer.weights if "float" in x.dtype]


def with_weights(layer: keras.layers.Layer, values: Iterable[Tensor]) -> keras.StatelessScope:
    """Return a scope in which the `float_weights` of a layer have these values."""
    # A scope hides the one around it, in which other weights have values: in `fit` on JAX.
    others = [(x, x.value) for x in layer.weights if "float" not in x.dtype]
    return keras.StatelessScope([*zip(float_weights(layer), values, strict=True), *others])


def record_holder(holder: keras.layers.Layer, value: object) -> None:
    """Record the holder of a layer, or of several, and of the layers inside."""
    for part in value if isinstance(value, (list, tuple)) else [value]:
        if isinstance(part, keras.layers.Layer) and holder not in _holders.get(part, ()):
            _holders.setdefault(part, weakref.WeakSet()).add(holder)
            for name in (*_INSIDE, "layers"):
                record_holder(part, getattr(part, name, None))


def check_not_fixed(layer: keras.layers.Layer, name: str) -> None:
    """Raise an error if `name` is a constructor argument of a layer that is built.

    A compiled function keeps the value that the argument had when the function was traced.
    """
    if layer.built and name in arguments_of(type(layer)):
        raise AttributeError(
            f"{layer.name}: `{name}` is fixed once the layer is built, because compiled functions "
            f"keep its value. Make a new layer, {type(layer).__name__}.from_config("
            f'layer.get_config() | {{"{name}": ...}}), build it, and call its '
            "set_weights(layer.get_weights()). To change a number in training, let a hook read a "
            "keras.Variable."
        )


def serialized(value: object) -> object:
    """Serialize a layer, or a list of layers, and mark the shared ones.

    Loading makes one layer of configs with the same mark. Keras marks the second config of a layer,
    but not the first if that is inside another config.
    """
    config = keras.saving.serialize_keras_object(value)
    _mark(value, config)
    return config


def _mark(value, config):
    if isinstance(value, (list, tuple)):
        for pair in zip(value, config, strict=True):
            _mark(*pair)
    elif isinstance(value, keras.layers.Layer):
        if len(_holders.get(value, ())) > 1 or _is_called(value):
            config["shared_object_id"] = id(value)
        for name in _INSIDE:
            if name in config["config"]:
                _mark(getattr(value, name, None), config["config"][name])


def deserialized(
    config: Config, names: Iterable[str], made: dict[int, object] | None = None
) -> Config:
    """Deserialize some items of a config; layers with one mark are one layer."""
    made = {} if made is None else made

    def make(item):
        if isinstance(item, (list, tuple)) and isinstance(_first(item), dict):
            return [*map(make, item)]
        if not isinstance(item, dict) or "class_name" not in item:
            return item
        mark = item.get("shared_object_id")
        if mark in made:
            return made[mark]
        own = keras.saving.get_registered_object(item.get("registered_name"))
        if getattr(getattr(own, "from_config", 0), "__module__", "").startswith("keras_attention."):
            config = item["config"]
            layers = deserialized(config, config.keys() - {"dtype"}, made)
            item = {**item, "config": {**config, **layers}}
        else:
            item = copy.deepcopy(item)  # some layers of Keras change their config
        layer = keras.saving.deserialize_keras_object(item)
        return layer if mark is None else made.setdefault(mark, layer)

    return {name: make(config[name]) for name in names}


def _is_called(layer):
    """Return whether a functional model calls a layer, which then has an output."""
    with contextlib.suppress(AttributeError):
        # Not `layer.output`, because a functional model always has that.
        output: Any = keras.Operation.output
        return output.fget(layer) is not None
    return False


def traced(function: Function, *tensors: keras.KerasTensor) -> Nested:
    """Build the layers that a function calls, and return its symbolic results.

    A symbolic call would leave a node in each layer. A functional model that calls such a layer too
    would not be loaded: it finds its nodes by their numbers.
    """
    return keras.Operation.compute_output_spec(_Caller(function, name="caller"), *tensors)


def check_directions(where: str, encoder: Any) -> None:
    """Raise an error for `go_backwards=True`; correct every unrolled `Bidirectional` in place.

    On TensorFlow, Keras 3.15 does not reverse the mask for an unrolled backward layer, so it writes
    zeros over valid steps. With `zero_output_for_mask=False` a masked step repeats the last state
    instead, which the layers after it mask.
    """
    if getattr(getattr(encoder, "forward_layer", encoder), "go_backwards", False):
        raise ValueError(
            f"{where}: {encoder.name!r} has go_backwards=True. It returns the steps in reverse, "
            "but their mask is not reversed. Leave it out, or use keras.layers.Bidirectional."
        )
    backward: Any = getattr(encoder, "backward_layer", None)
    if not REVERSES_UNROLLED_MASK and getattr(backward, "unroll", False):
        backward.zero_output_for_mask = False
    # A model may reverse the steps again.
    for layer in getattr(encoder, "layers", ()):
        if not getattr(layer, "go_backwards", False):
            check_directions(where, layer)


class _Caller(keras.layers.Layer):
    def __init__(self, function, **kwargs):
        super().__init__(**kwargs)
        self.function = function

    def call(self, *tensors, training=None):
        return self.function(*tensors)


class CheckedLayer(keras.layers.Layer):
    """Checks arguments against `CALL`, before Keras converts them or builds the layer.

    A subclass stores every argument of its constructor in an attribute of the same name, which is
    where the config comes from.
    """

    # The tensors of a call, and the sizes of their axes that the layer was built for.
    CALL = Spec()
    _sizes: Mapping[str, int] = types.MappingProxyType({})

    if TYPE_CHECKING:

        def build(self, *args: Any, **kwargs: Any) -> None:
            """Take the shapes of the arguments of `call`, which each layer names."""

    def __setattr__(self, name: str, value: object) -> None:
        if vars(self).get("built"):
            check_not_fixed(self, name)
        super().__setattr__(name, value)
        if isinstance(value, (keras.layers.Layer, list, tuple)):
            record_holder(self, value)

    def __call__(self, *args: object, **kwargs: object) -> Nested:
        if not hasattr(self, "built"):
            raise_not_initialized(self)
        names = list(_parameters_of(type(self)))
        arguments = dict(zip(names, args, strict=False))
        if not arguments.keys() & kwargs.keys():
            self._check_call({**arguments, **kwargs})
            # Keras passes masks by name, and would pass a mask that is None twice.
            count = _count_before_masks(type(self))
            kwargs |= dict(zip(names[count:], args[count:], strict=False))
            args = args[:count]
            for name in FLAGS:  # Keras would convert a NumPy boolean to a tensor
                if name in kwargs:
                    kwargs[name] = bool(kwargs[name])
        return super().__call__(*args, **kwargs)

    def _check_call(self, arguments: dict[str, object]) -> None:
        """Check that the arguments of a call, by name, are as declared."""
        parameters, training = _parameters_of(type(self)), arguments.get("training")
        if not arguments.keys() <= parameters.keys():
            _raise_unknown_names(self.name, parameters, arguments)
        for name in FLAGS:
            if type(arguments.get(name, False)) is not bool:
                check_bool(self.name, name, arguments[name])
        if training is not None and type(training) is not bool:
            check_training(self.name, training)
        # A subclass may have a call with other arguments.
        if self.CALL.names.keys() <= parameters.keys():
            self._check_tensors({**self.CALL.names, **arguments})

    def _check_tensors(self, tensors: dict[str, Tensor]) -> None:
        self.CALL.check(self.name, tensors, self._sizes)

    @property
    def score_dtype(self) -> str:
        """Return the dtype of scores: at least float32, whatever the compute dtype."""
        return "float64" if self.compute_dtype == "float64" else "float32"

    def project(self, sequence: Tensor, kernel: Tensor) -> Tensor:
        """Multiply `(B, T, D)` by `(D, U)` in the compute dtype; return `score_dtype`."""
        dtype = self.compute_dtype
        product = project(cast(sequence, dtype), cast(kernel, dtype))
        return cast(product, self.score_dtype)

    def _check_built(self, before: str) -> None:
        """Raise an error if the layer has no weights. `before` names what needs them."""
        if not self.built:
            raise ValueError(
                f"{self.name}: the layer has no weights yet. Call it once, or its build(), before "
                f"{before}."
            )

    def compute_output_spec(self, *args: object, **kwargs: object) -> Nested:
        self._check_built("compute_output_spec()")
        arguments = dict(zip(_parameters_of(type(self)), args, strict=False))
        # Here masks that propagated are among the arguments.
        self._check_call({**arguments, **kwargs})
        warn_of_dropped_masks(self.name, {**arguments, **kwargs})
        # Tracing the call finds out whether it returns weights.
        return keras.Operation.compute_output_spec(self, *args, **kwargs)

    def get_config(self) -> Config:
        config = super().get_config()
        for name in arguments_of(type(self)):
            if hasattr(self, name):
                value = getattr(self, name)
                layers = isinstance(_first(value), keras.layers.Layer)
                config[name] = serialized(value) if layers else value
            elif type(self).get_config is CheckedLayer.get_config:
                raise ValueError(
                    f"{self.name}: the layer has no attribute `{name}`, so the argument `{name}` "
                    f"cannot be saved. Write self.{name} = {name}, or override get_config()."
                )
        return config

    @classmethod
    def from_config(cls, config: Config) -> Self:
        names = [x for x in arguments_of(cls) if x in config]
        return super().from_config({**config, **deserialized(config, names)})


def _first(value):
    """Return the first item of a list, or a value that is no list."""
    return next(iter(value), None) if isinstance(value, (list, tuple)) else value


def raise_not_initialized(layer: keras.layers.Layer) -> NoReturn:
    """Raise the error of a layer without `built`, because the constructor of Keras has not run."""
    raise ValueError(
        f"{type(layer).__name__}: the constructor of the mixin has not run. Begin __init__ "
        "with super().__init__(**kwargs)."
    )


@cached
def _parameters_of(layer: type) -> dict[str, inspect.Parameter]:
    """Return the parameters of the call of a class, by name."""
    _, *parameters = inspect.signature(layer.call).parameters.items()
    return dict(parameters)


@cached
def _count_before_masks(layer: type) -> int:
    """Count the parameters of the call of a class before the first mask."""
    names = list(_parameters_of(layer))
    return next((n for n, name in enumerate(names) if name.endswith("mask")), len(names))


@cached
def arguments_of(layer: type) -> list[str]:
    """List the constructor arguments of a class, without those of every Keras layer."""
    own = layer.__mro__[: layer.__mro__.index(keras.layers.Layer)]
    signatures = [inspect.signature(c.__init__) for c in own if "__init__" in vars(c)]
    kinds = {name: x.kind for s in signatures for name, x in s.parameters.items()}
    variadic = inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD
    return [n for n, kind in kinds.items() if n != "self" and kind not in variadic]


def _raise_unknown_names(
    layer: str, parameters: dict[str, inspect.Parameter], arguments: dict[str, object]
) -> None:
    """Raise an error for unknown call arguments."""
    unknown = arguments.keys() - parameters.keys() - {"training"}
    if unknown and not any(x.kind is x.VAR_KEYWORD for x in parameters.values()):
        name = min(unknown)
        remedy = f" {masks_by_name(parameters)}" if name.endswith("mask") else ""
        raise TypeError(
            f"{layer}: the call takes no `{name}`; it takes {', '.join(parameters)}.{remedy}"
        )
