"""Tensors that the backward pass of a recurrence reads instead of computing them again."""

import contextlib
import contextvars
from collections.abc import Iterator

from keras_attention._typing import Tensor
from keras_attention.ops._differentiable import differentiable

_use = contextvars.ContextVar("keras_attention_stored", default=None)


def stored(x: Tensor) -> Tensor:
    """Marks x, so that the forward pass of a recurrence stores it for the backward pass.

    Args:
        x: `(B, Tq, ...)`. Marked tensors come in the same order for one query and for many.
    """
    use = _use.get()
    return x if use is None else use(x)


@contextlib.contextmanager
def storing() -> Iterator[list[Tensor]]:
    """Collects the marked tensors."""
    found = []

    def keep(x):
        found.append(x)
        return x

    with _using(keep):
        yield found


@contextlib.contextmanager
def reusing(tensors: list[Tensor]) -> Iterator[None]:
    """Replaces the marked tensors by these. Gradients flow to what the marked ones came from."""
    rest = iter(tensors)

    def replace(x):
        known = next(rest)
        # Nothing else uses x, so XLA removes its computation.
        return differentiable(lambda x: known, lambda x, upstream: (upstream,), x)

    with _using(replace):
        yield


def without_storing() -> contextlib.AbstractContextManager[None]:
    """Ignores marks, in code that takes another path for one query than for many."""
    return _using(None)


@contextlib.contextmanager
def _using(function):
    token = _use.set(function)
    try:
        yield
    finally:
        _use.reset(token)
