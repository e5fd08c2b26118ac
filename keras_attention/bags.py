"""Losses of bags: for the instances that count most and least, and for survival.

They take the target first, and return a loss for each bag, like the losses of Keras. Pass them to
`compile`.
"""

import numpy as np

from keras_attention._spec import Description, Spec, check_int, raise_value_error
from keras_attention._typing import Tensor
from keras_attention.backend import ops
from keras_attention.ops.matmul import upcast

__all__ = ["concordance", "cox_loss", "hazard_loss", "instance_loss"]

OUTPUTS = "outputs: float[B two R T]"
INSTANCES = Spec(
    *("labels: any[B] | any[B one]", OUTPUTS),
    call="it on labels (bags,) and outputs (bags, 2, classes, instances)",
)
SURVIVAL = "survival: any[B two]"
HAZARDS = Spec(
    *(SURVIVAL, "logits: float[B K]"), call="it on survival (bags, 2) and logits (bags, intervals)"
)
COX = Spec(SURVIVAL, "risk: float[B one]", call="it on survival (bags, 2) and risks (bags, 1)")
SIZES = {"one": 1, "two": 2}  # of axes
NEVER = -1e30  # the logarithm of nothing, with finite gradients


def instance_loss(
    labels: Tensor, outputs: Tensor, count: int = 8, exclusive: bool = True
) -> Tensor:
    """Teach a classifier of instances by the weights of an attention (CLAM, Lu et al., 2021).

        k[b]    = min(count, half of the valid instances of b)
        loss[b] = mean over the classes r of the mean over the chosen t of
                  binary cross-entropy of sigmoid(l[b,r,t])

    For the class r of the bag, the k instances with the largest weights have the target 1, and the
    k with the smallest have the target 0. For the other classes, the k with the largest weights
    have the target 0 if classes are `exclusive`; otherwise other classes have no part in the loss.
    The weights choose, and have no gradient. A bag of one instance has a loss of 0.

    In the paper the loss of the bag has a weight of 0.7 and this one of 0.3, and the loss of
    instances is a smoothed hinge loss.

    Sizes: B bags, T instances, R classes.

    Args:
        labels: the class of each bag, `(B,)` or `(B, 1)`.
        outputs: the weights a and the logits l of the instances, `(B, 2, R, T)`, in this order;
            where a weight is negative, the instance is padding. Make them with
            `ops.stack([ops.where(mask[:, None], weights, -1.0), logits], axis=1)`.
        count: the most instances of each kind.
        exclusive: whether a bag has one class.

    Returns:
        `(B,)`.

    Raises:
        ValueError: a shape or a dtype does not fit; `count` is not a positive integer.

    Example:
        >>> import numpy
        >>> from keras_attention.bags import instance_loss
        >>> weights, logits = numpy.array([[[0.9, 0.1]]]), numpy.array([[[4.0, -4.0]]])
        >>> print(f"{float(instance_loss([0], numpy.stack([weights, logits], 1))[0]):.3f}")
        0.018

    Reference: https://arxiv.org/abs/2004.09666, "Instance-level clustering".
    """
    check_int("instance_loss", "count", count)
    labels, outputs = _checked("instance_loss", INSTANCES, labels, outputs)
    weights, logits = ops.stop_gradient(outputs[:, 0]), outputs[:, 1]
    padding = [[0, 0], [0, 0], [0, count]]
    weights = ops.pad(weights, padding, constant_values=-1.0)
    logits = ops.pad(logits, padding)
    valid = weights >= 0
    number = ops.sum(ops.cast(valid, "int32"), axis=2, keepdims=True) // 2
    chosen = ops.cast(ops.arange(count) < number, logits.dtype)

    def mean_of(order, sign):
        chosen_logits = ops.take_along_axis(logits, ops.top_k(order, count)[1], axis=2)
        total = ops.sum(chosen * ops.softplus(sign * chosen_logits), axis=2)
        return total / ops.maximum(ops.sum(chosen, axis=2), 1)

    smallest = ops.where(valid, -weights, ops.full_like(weights, NEVER))
    right = (mean_of(weights, -1) + mean_of(smallest, 1)) / 2
    classes = outputs.shape[2]
    is_class = ops.one_hot(ops.cast(ops.reshape(labels, (-1,)), "int32"), classes)
    is_class = ops.cast(is_class, logits.dtype)
    loss = ops.sum(is_class * right, axis=1)
    if not exclusive:
        return loss
    return (loss + ops.sum((1 - is_class) * mean_of(weights, 1), axis=1)) / classes


def hazard_loss(survival: Tensor, logits: Tensor) -> Tensor:
    """Compute the negative log-likelihood of an event in one of K intervals of time.

        h[b,k]  = sigmoid(f[b,k])                   the hazard of an event in k, if none was before
        S[b,k]  = prod_{j <= k} (1 - h[b,j])        the probability of none until the end of k
        loss[b] = -log S[b,k-1] - log h[b,k]        an event in interval k
        loss[b] = -log S[b,k]                       none until the end of k, and then unknown

    Args:
        survival: `(B, 2)`: the interval k from 0, and 1 for an event or 0 for none (censored).
        logits: f, `(B, K)`.

    Returns:
        `(B,)`.

    Raises:
        ValueError: a shape or a dtype does not fit.

    Example:
        >>> import numpy
        >>> from keras_attention.bags import hazard_loss
        >>> losses = hazard_loss(numpy.array([[1, 1], [1, 0]]), numpy.zeros((2, 3)))
        >>> [round(float(x), 3) for x in losses]
        [1.386, 1.386]

    Reference: Zadeh and Schmid, 2020, https://doi.org/10.1109/TPAMI.2020.2979450.
    """
    survival, logits = _checked("hazard_loss", HAZARDS, survival, logits)
    interval = ops.cast(survival[:, :1], "int32")
    step = ops.arange(logits.shape[1], dtype="int32")
    event = ops.logical_and(step == interval, survival[:, 1:] > 0)
    losses = ops.softplus(ops.where(event, -logits, logits))
    return ops.sum(ops.where(step <= interval, losses, ops.zeros_like(losses)), axis=1)


def cox_loss(survival: Tensor, risk: Tensor) -> Tensor:
    """Compute Cox's negative log partial likelihood, with ties by Breslow.

        loss[b] = log sum_{j: time[j] >= time[b]} exp f[j] - f[b]       an event
        loss[b] = 0                                                     none (censored)

    The sum runs over the bags of the batch, so a batch of one has a loss of 0. Use batches as large
    as the memory allows, with events and other bags in each.

    Args:
        survival: `(B, 2)`: the time, and 1 for an event or 0 for none until then (censored).
        risk: f, `(B, 1)`; a larger one means an earlier event.

    Returns:
        `(B,)`.

    Raises:
        ValueError: a shape or a dtype does not fit.

    Example:
        >>> import numpy
        >>> from keras_attention.bags import cox_loss
        >>> losses = cox_loss(numpy.array([[1, 1], [2, 0]]), numpy.zeros((2, 1)))
        >>> [round(float(x), 3) for x in losses]
        [0.693, 0.0]

    Reference: Cox, 1972, https://doi.org/10.1111/j.2517-6161.1972.tb00899.x.
    """
    survival, risk = _checked("cox_loss", COX, survival, risk)
    time, event, risk = survival[:, 0], survival[:, 1] > 0, risk[:, 0]
    at_risk = ops.expand_dims(time, 0) >= ops.expand_dims(time, 1)
    risks = ops.where(at_risk, ops.expand_dims(risk, 0), ops.full_like(risk, NEVER))
    losses = ops.logsumexp(risks, axis=1) - risk
    return ops.where(event, losses, ops.zeros_like(losses))


def concordance(survival: Tensor, risk: Tensor) -> float:
    """Compute the share of comparable pairs that the risks put in the right order (Harrell, 1982).

    Two bags can be compared if one has an event before the time of the other, or at the time at
    which the other is censored. The order is right if its risk is larger; equal risks count half.

    Args:
        survival: `(B, 2)`, see `cox_loss`.
        risk: `(B,)` or `(B, 1)`.

    Returns:
        A number from 0 to 1; 0.5 is the expectation for random risks.

    Raises:
        ValueError: the sizes do not agree, or no pair can be compared.

    Example:
        >>> from keras_attention.bags import concordance
        >>> concordance([[1, 1], [2, 1], [3, 0]], [0.9, 0.2, 0.5])
        0.6666666666666666

    Reference: https://doi.org/10.1001/jama.1982.03320430047030.
    """
    survival, risk = (
        np.asarray(ops.convert_to_numpy(survival)),
        np.ravel(ops.convert_to_numpy(risk)),
    )
    if survival.shape != (len(risk), 2):
        expected = f"`survival` must have the shape ({len(risk)}, 2), a row for each risk"
        raise_value_error("concordance", expected, survival.shape)
    time, event = survival[:, 0], survival[:, 1] > 0
    later = (time[:, None] < time) | ((time[:, None] == time) & ~event)
    pairs = later & event[:, None]
    if not pairs.any():
        expected = "at least one bag must have an event before the time of another bag"
        raise_value_error("concordance", expected, survival)
    right = (risk[:, None] > risk) + 0.5 * (risk[:, None] == risk)
    return float(right[pairs].mean())


def _checked(caller, spec, *tensors):
    """Convert and check the tensors of a spec, and compute in float32 at least."""
    target, outputs = map(ops.convert_to_tensor, tensors)
    sizes = spec.check(caller, dict(zip(spec.names, (target, outputs), strict=True)))
    if any(sizes.get(axis, size) not in (size, None) for axis, size in SIZES.items()):
        received = Description(f"shapes {tuple(target.shape)} and {tuple(outputs.shape)}")
        raise_value_error(caller, f"Call {spec.call}", received)
    outputs = upcast(outputs)
    return ops.cast(target, outputs.dtype), outputs
