"""Losses that teach an attention its alignment, and the durations of the best one.

To add one to the loss of a model, return it from the hook `sequence_loss` of an attention:

    class GuidedAttention(BahdanauAttention):
        def sequence_loss(self, weights, query_mask, memory_mask):
            return 10 * guided_attention_loss(weights, query_mask, memory_mask)

Masks may have gaps. Masked steps have no effect, and positions count valid steps only.
"""

from typing import TypeAlias

from keras_attention._spec import Spec, check_number
from keras_attention._typing import Tensor
from keras_attention.backend import ops, scan, swap_steps, where_valid
from keras_attention.ops.masks import mean_or_zero, take_last
from keras_attention.ops.matmul import upcast

__all__ = ["doubly_stochastic_loss", "durations", "forward_sum_loss", "guided_attention_loss"]
__all__ += ["supervised_attention_loss"]

# The log probability of an impossible path. Unlike -inf it has finite gradients.
NEVER = -1e30
TINY = 1e-30  # a weight is at least this large where its logarithm is taken
SMALLEST_SUM = 1e-15  # the gradient of x / s divides by s * s, which float32 must hold

Mask: TypeAlias = Tensor | None
MASKS = "query_mask: bool[B Tq]?", "memory_mask: bool[B Tk]?"
OF_WEIGHTS = Spec("weights: float[B Tq Tk]", *MASKS, call="it on weights (batch, steps, memory)")
OF_SCORES = Spec("scores: float[B Tq Tk]", *MASKS, call="it on scores (batch, steps, memory)")
SUPERVISED = Spec(
    *("alignment: any[B Tq Tk]", "weights: float[B Tq Tk]", *MASKS),
    call="it on an alignment and weights (batch, steps, memory)",
)


def guided_attention_loss(
    weights: Tensor, query_mask: Mask = None, memory_mask: Mask = None, width: float = 0.2
) -> Tensor:
    """Measure how far weights are from the diagonal (Tachibana, Uenoyama and Aihara, 2018).

        n[b,i,:] = a[b,i,:] / sum_j a[b,i,j]
        loss     = mean_b mean_ij n[b,i,j] (1 - exp(-(i / Tq[b] - j / Tk[b])^2 / (2 width^2)))

    i and j count the valid steps of a sample from 0, and Tq[b] and Tk[b] are their numbers. The
    inner mean runs over the valid pairs of a sample. If there is none, it is 0.

    The loss is at most 1 / Tk. Multiply it by 10, for example. In the paper, weights always sum to
    one. A row of a monotonic or a GMM attention may sum to less. Without n, such an attention would
    lower the loss by moving past the memory. A sum below 1e-15 counts as 1e-15, and what then is
    missing in n costs as much as a weight far away.

    Args:
        weights: a, `(B, Tq, Tk)`.
        query_mask, memory_mask: `(B, Tq)` and `(B, Tk)` boolean, True for a valid step; None if all
            are valid.
        width: the distance from the diagonal, as a share of the length, at which a weight costs
            0.39 of what it costs far away.

    Returns:
        A scalar.

    Raises:
        ValueError: a shape or a dtype does not fit; `width` is not a positive number.

    Example:
        >>> import numpy
        >>> from keras_attention.alignment import guided_attention_loss
        >>> diagonal = numpy.eye(4)[None]
        >>> print(f"{float(guided_attention_loss(diagonal)):.3f}")
        0.000
        >>> print(f"{float(guided_attention_loss(diagonal[:, ::-1])):.3f}")
        0.193

    Reference: https://arxiv.org/abs/1710.08969, section 4.1.
    """
    weights, query_mask, memory_mask = _checked(
        "guided_attention_loss", OF_WEIGHTS, weights, query_mask, memory_mask
    )
    check_number("guided_attention_loss", "width", width, above=0)
    query_mask, memory_mask = _full_masks(weights, query_mask, memory_mask)
    query_position = ops.expand_dims(_relative_position(query_mask, weights.dtype), 2)
    memory_position = ops.expand_dims(_relative_position(memory_mask, weights.dtype), 1)
    far = 1 - ops.exp(-ops.square(query_position - memory_position) / (2 * width**2))
    valid = _valid_pairs(query_mask, memory_mask)
    weights = ops.where(valid, weights, ops.zeros_like(weights))
    weights = weights / ops.maximum(ops.sum(weights, axis=2, keepdims=True), SMALLEST_SUM)
    missing = ops.where(ops.any(valid, axis=2), 1 - ops.sum(weights, axis=2), 0.0)
    losses = ops.sum(far * weights, axis=(1, 2)) + ops.sum(missing, axis=1)
    count = ops.sum(ops.cast(valid, weights.dtype), axis=(1, 2))
    return mean_or_zero(losses / ops.maximum(count, 1))


def supervised_attention_loss(
    alignment: Tensor, weights: Tensor, query_mask: Mask = None, memory_mask: Mask = None
) -> Tensor:
    """Compute the cross-entropy between weights and an alignment (Mi et al., 2016).

        loss[b] = mean_i -sum_j t[b,i,j] log a[b,i,j]

    The mean runs over the valid query steps where a t[b,i,j] is not zero. If there is none, it is
    0.

    Like a loss of Keras it takes the target first, and returns a loss for each sample. A model
    whose outputs are predictions and weights can be compiled with
    `loss=[..., supervised_attention_loss]`. Its targets are then the alignments, with rows of zeros
    where the query is padding. In a hook `sequence_loss`, return the mean, `ops.mean(loss)`.

    Args:
        alignment: t, `(B, Tq, Tk)`, of any dtype. A row sums to one, or to zero where the
            alignment is unknown.
        weights: a, `(B, Tq, Tk)`. A weight below 1e-30 counts as 1e-30, and has no gradient.
        query_mask, memory_mask: see `guided_attention_loss`.

    Returns:
        `(B,)`.

    Raises:
        ValueError: a shape or a dtype does not fit.

    Example:
        The alignment of the second step is unknown.

        >>> import numpy
        >>> from keras_attention.alignment import supervised_attention_loss
        >>> weights = numpy.array([[[0.5, 0.5], [0.25, 0.75]]])
        >>> alignment = numpy.array([[[1, 0], [0, 0]]])
        >>> print(f"{float(supervised_attention_loss(alignment, weights)[0]):.3f}")
        0.693

    Reference: https://arxiv.org/abs/1608.00112, section 3.
    """
    alignment, weights, query_mask, memory_mask = _checked(
        "supervised_attention_loss", SUPERVISED, alignment, weights, query_mask, memory_mask
    )
    alignment = ops.cast(alignment, weights.dtype)
    valid = _valid_pairs(*_full_masks(weights, query_mask, memory_mask))
    aligned = ops.logical_and(valid, ops.not_equal(alignment, 0))
    logs = ops.log(ops.maximum(ops.where(aligned, weights, ops.ones_like(weights)), TINY))
    losses = ops.where(aligned, -alignment * logs, ops.zeros_like(logs))
    rows = ops.sum(ops.cast(ops.any(aligned, axis=2), weights.dtype), axis=1)
    return ops.sum(losses, axis=(1, 2)) / ops.maximum(rows, 1)


def doubly_stochastic_loss(
    weights: Tensor, query_mask: Mask = None, memory_mask: Mask = None
) -> Tensor:
    """Measure how far each memory step is from being read once in all (Xu et al., 2015).

        loss = mean_b sum_j (1 - sum_i a[b,i,j])^2

    The sums run over the valid steps. If there are more memory than query steps, as with the cells
    of an image, no weights have a loss of zero: it then asks that all cells be read alike.

    Args:
        weights: a, `(B, Tq, Tk)`.
        query_mask, memory_mask: see `guided_attention_loss`.

    Returns:
        A scalar.

    Raises:
        ValueError: a shape or a dtype does not fit.

    Example:
        >>> import numpy
        >>> from keras_attention.alignment import doubly_stochastic_loss
        >>> float(doubly_stochastic_loss(numpy.eye(3)[None]))
        0.0
        >>> float(doubly_stochastic_loss(numpy.array([[[1.0, 0, 0], [1, 0, 0], [0, 1, 0]]])))
        2.0

    Reference: https://arxiv.org/abs/1502.03044, section 4.2.1, equation 14, without its factor.
    """
    weights, query_mask, memory_mask = _checked(
        "doubly_stochastic_loss", OF_WEIGHTS, weights, query_mask, memory_mask
    )
    query_mask, memory_mask = _full_masks(weights, query_mask, memory_mask)
    valid = _valid_pairs(query_mask, memory_mask)
    read = ops.sum(ops.where(valid, weights, ops.zeros_like(weights)), axis=1)
    losses = ops.where(memory_mask, ops.square(1 - read), ops.zeros_like(read))
    return mean_or_zero(ops.sum(losses, axis=1))


def forward_sum_loss(scores: Tensor, query_mask: Mask = None, memory_mask: Mask = None) -> Tensor:
    """Compute -log of the probability of all monotonic alignments (Badlani et al., 2021).

        a[b,i,:] = softmax of e[b,i,:] over the valid j
        loss     = mean_b -log sum_s prod_i a[b,i,s(i)]

    The sum runs over the paths s that begin at the first valid memory step, end at the last one,
    and stay or move on by one at each valid query step. It is CTC without blanks. A sample without
    such a path, such as one with more memory than query steps, has a loss and a gradient of 0.

    For speech, let letters be the memory and frames the query. Transpose the scores of an attention
    that listens.

    Args:
        scores: e, `(B, Tq, Tk)`, before the softmax. Or its logarithm: of weights pass
            `ops.log(ops.maximum(weights, 1e-30))`.
        query_mask, memory_mask: see `guided_attention_loss`.

    Returns:
        A scalar.

    Raises:
        ValueError: a shape or a dtype does not fit.

    Example:
        In three steps, two paths lead from the first to the last of two memory steps.

        >>> import numpy
        >>> from keras_attention.alignment import forward_sum_loss
        >>> weights = numpy.array([[[0.5, 0.5], [0.5, 0.5], [0.5, 0.5]]])
        >>> print(f"{numpy.exp(-float(forward_sum_loss(numpy.log(weights)))):.3f}")
        0.250

    Reference: https://arxiv.org/abs/2108.10447, section 2.1. There, a blank takes part.
    """
    scores, query_mask, memory_mask = _checked(
        "forward_sum_loss", OF_SCORES, scores, query_mask, memory_mask
    )
    if 0 in scores.shape[1:]:
        return ops.zeros((), scores.dtype)
    scores = ops.log_softmax(_finite_scores(scores, query_mask, memory_mask), axis=-1)
    first, steps, count = _time_major(scores, query_mask, memory_mask)

    def step(total, inputs):
        scores, valid = inputs
        moved = _one_step_on(total)
        # The gradient of `peak` cancels, so none flows through it.
        peak = ops.stop_gradient(ops.where(total > moved, total, moved))
        both = peak + ops.log(ops.exp(total - peak) + ops.exp(moved - peak))
        return where_valid(valid, scores + both, total), None

    total = take_last(scan(step, first, steps)[0], count)
    possible = ops.logical_not(total <= NEVER / 2)
    return mean_or_zero(ops.where(possible, -total, ops.zeros_like(total)))


def durations(weights: Tensor, query_mask: Mask = None, memory_mask: Mask = None) -> Tensor:
    """Count the query steps of each memory step in the best monotonic alignment, by Viterbi.

        s      = argmax_s prod_i a[b,i,s(i)]    over the paths of `forward_sum_loss`
        d[b,j] = the number of valid i with s(i) = j

    Of equally probable paths, it takes the one that moves on first.

    Args:
        weights: a, `(B, Tq, Tk)`. A weight below 1e-30 counts as 1e-30.
        query_mask, memory_mask: see `guided_attention_loss`.

    Returns:
        d, `(B, Tk)`, int32. Each valid memory step has at least one, and the sum is the number of
        valid query steps. All are 0 in a sample without a path.

    Raises:
        ValueError: a shape or a dtype does not fit.

    Example:
        >>> import numpy
        >>> from keras import ops
        >>> from keras_attention.alignment import durations
        >>> weights = numpy.array([[[0.9, 0.1], [0.8, 0.2], [0.1, 0.9]]])
        >>> ops.convert_to_numpy(durations(weights)).tolist()
        [[2, 1]]

    Reference: https://arxiv.org/abs/2108.10447, section 2.1.
    """
    weights, query_mask, memory_mask = _checked(
        "durations", OF_WEIGHTS, weights, query_mask, memory_mask
    )
    if 0 in weights.shape[1:]:
        return ops.zeros((ops.shape(weights)[0], ops.shape(weights)[2]), "int32")
    scores = _finite_scores(ops.log(ops.maximum(weights, TINY)), query_mask, memory_mask)
    first, (scores, valid), count = _time_major(scores, query_mask, memory_mask)
    position = ops.arange(ops.shape(first)[1], dtype="int32")

    def forward(best, inputs):
        scores, valid = inputs
        moved = _one_step_on(best)
        return where_valid(valid, scores + ops.where(moved > best, moved, best), best), moved > best

    def backward(reached, inputs):
        moves, valid = inputs
        here = position == ops.expand_dims(reached, 1)
        moved = ops.any(ops.logical_and(here, moves), axis=1)
        read = ops.cast(where_valid(valid, here, ops.zeros_like(here)), "int32")
        return where_valid(valid, reached - ops.cast(moved, "int32"), reached), read

    best, moves = scan(forward, first, (scores, valid), differentiated=False)
    _, read = scan(backward, count, (moves, valid), reverse=True, differentiated=False)
    possible = ops.cast(ops.logical_not(take_last(best, count) <= NEVER / 2), "int32")
    # JAX sums in int64 where it is allowed.
    spent = ops.cast(ops.sum(read, axis=0)[:, 1:], "int32") * ops.expand_dims(possible, 1)
    if memory_mask is None:
        return spent
    rank = ops.maximum(ops.cumsum(ops.cast(memory_mask, "int32"), axis=1) - 1, 0)
    return ops.where(memory_mask, ops.take_along_axis(spent, rank, axis=1), 0)


def _checked(caller, spec, *tensors):
    """Check and convert the tensors of a spec, of which the last two are masks."""
    spec.check(caller, dict(zip(spec.names, tensors, strict=True)))
    *values, query_mask, memory_mask = (
        None if x is None else ops.convert_to_tensor(x) for x in tensors
    )
    return *map(upcast, values), query_mask, memory_mask


def _full_masks(weights, query_mask, memory_mask):
    """Return the masks, all True in place of None."""
    batch, steps, length = ops.shape(weights)
    return (
        ops.ones((batch, steps), "bool") if query_mask is None else query_mask,
        ops.ones((batch, length), "bool") if memory_mask is None else memory_mask,
    )


def _valid_pairs(query_mask, memory_mask):
    return ops.logical_and(ops.expand_dims(query_mask, 2), ops.expand_dims(memory_mask, 1))


def _relative_position(mask, dtype):
    """Return the share of the valid steps of a sample that come before each step."""
    valid = ops.cast(mask, "int32")
    before = ops.cast(ops.cumsum(valid, axis=1) - valid, dtype)
    return before / ops.cast(ops.maximum(ops.sum(valid, 1, keepdims=True), 1), dtype)


def _finite_scores(scores, query_mask, memory_mask):
    """Make scores finite, and mask them."""
    scores = ops.where(scores < NEVER, ops.full_like(scores, NEVER), scores)
    if memory_mask is not None:
        scores = ops.where(ops.expand_dims(memory_mask, 1), scores, ops.full_like(scores, NEVER))
    if query_mask is not None:
        scores = ops.where(ops.expand_dims(query_mask, 2), scores, ops.zeros_like(scores))
    return scores


def _time_major(scores, query_mask, memory_mask):
    """Return the inputs of a loop over the query steps, with valid memory steps side by side.

    Column 0 stands before the first memory step, and every path begins there.

    Returns:
        The log probabilities before the first step, `(B, Tk + 1)`; the scores `(Tq, B, Tk + 1)` and
        the mask `(Tq, B)` or None, in a tuple; the column where paths end, `(B,)`.
    """
    batch, _, length = ops.shape(scores)
    count = ops.full((batch,), length, dtype="int32")
    if memory_mask is not None:
        position = ops.arange(length, dtype="int32")
        order = ops.argsort(ops.where(memory_mask, position, position + length), axis=1)
        order = ops.broadcast_to(ops.expand_dims(order, 1), ops.shape(scores))
        scores = ops.take_along_axis(scores, order, axis=2)
        count = ops.sum(ops.cast(memory_mask, "int32"), axis=1)
    steps = ops.pad(swap_steps(scores), [[0, 0], [0, 0], [1, 0]], constant_values=NEVER)
    column = ops.arange(length + 1, dtype="int32")
    first = ops.full(ops.shape(steps)[1:], NEVER, scores.dtype)
    first = ops.where(column == 0, ops.zeros_like(first), first)
    return first, (steps, None if query_mask is None else swap_steps(query_mask)), count


def _one_step_on(total):
    return ops.pad(total[:, :-1], [[0, 0], [1, 0]], constant_values=NEVER)
