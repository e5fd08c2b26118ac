"""Average the step functions of several models into one."""

import functools
import math
from collections.abc import Sequence

from keras_attention._spec import Description, fits, raise_value_error
from keras_attention._typing import Nested, Tensor
from keras_attention.backend import leaves, ops, tree_map
from keras_attention.search._step_checks import Step, check_step

__all__ = ["average", "average_steps"]


def average_steps(steps: Sequence[Step]) -> Step:
    """Make one step function that averages the probabilities of several.

        p(v | y[<t], x) = 1/n sum_i p_i(v | y[<t], x)

    Sizes: n models, N hypotheses, V tokens in the vocabulary, which the models share.

    Args:
        steps: the step functions of the models; see `keras_attention.search`.

    Returns:
        `step(tokens, state, memory) -> (logits, state, weights)` for any search. `state` and
        `memory` are tuples with one entry per model. An entry may be None. The logits are log p,
        float32. The weights are the mean over the models. If a model returns none, or if their
        sizes differ, they are the weights of the first model. If one model allows no token, the
        sequence is impossible.

    Raises:
        ValueError: `steps` is empty or holds something else than functions. The step raises it if
            `state` or `memory` has another number of entries, or if the vocabularies differ.

    Example:
        >>> import numpy as np
        >>> from keras import ops
        >>> from keras_attention import greedy_search
        >>> from keras_attention.search import average_steps
        >>> def step(tokens, state, memory):
        ...     return ops.log(memory), state, None
        >>> memory = np.array([[0.6, 0.3, 0.1]]), np.array([[0.1, 0.7, 0.2]])
        >>> tokens = dict(start_token=0, end_token=1, max_length=1)
        >>> result = greedy_search(average_steps([step, step]), (None, None), memory, **tokens)
        >>> round(float(np.exp(ops.convert_to_numpy(result.scores)[0])), 3)
        0.5

    Reference: https://arxiv.org/abs/1409.3215, section 3.6.
    """
    steps = tuple(steps)
    if not steps:
        raise_value_error("average_steps", "`steps` must hold at least one step function", steps)
    for one in steps:
        check_step(one)

    def step(tokens, state, memory):
        for name, x in (("state", state), ("memory", memory)):
            if not isinstance(x, (list, tuple)) or len(x) != len(steps):
                expected = f"`{name}` must be a tuple with one entry for each of the {len(steps)} "
                raise_value_error("average_steps", f"{expected}models, which may be None", x)
        outputs = [one(tokens, *own) for one, *own in zip(steps, state, memory, strict=True)]
        logits, states, weights = zip(*outputs, strict=True)
        log_probs, weights = average(logits, weights)
        return log_probs, states, weights

    return step


def average(logits: Sequence[Tensor], weights: Sequence[Nested] = (None,)) -> tuple[Tensor, Nested]:
    """Return the log of the mean probabilities and the mean weights; see `average_steps`.

    Args:
        logits: `(..., V)` of each model. weights: `(..., Tk)` of each, a list of them, or None.
    """
    sizes = [x.shape[-1] for x in logits]
    if len(set(sizes)) > 1:
        expected = "the models must share one vocabulary"
        raise_value_error("average_steps", expected, Description(f"logits for {sizes} tokens"))
    log_probs = [ops.log_softmax(ops.cast(x, "float32"), axis=-1) for x in logits]
    mixed = functools.reduce(ops.logaddexp, log_probs) - math.log(len(log_probs))
    shapes = [[tuple(x.shape) for x in leaves(one)] for one in weights]
    alike = all(len(x) == len(shapes[0]) and all(map(fits, x, shapes[0])) for x in shapes)
    if not shapes[0] or not alike:
        return mixed, weights[0]
    return mixed, tree_map(lambda *x: sum(x[1:], x[0]) / len(x), *weights)
