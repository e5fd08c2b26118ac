"""A head that reads one position of the memory."""

# Keras passes shapes to `build` by the names of the call arguments.
# pyright: reportIncompatibleMethodOverride=false

from typing import Unpack

import keras

from keras_attention._spec import (
    check_bool,
    check_choice,
    check_int,
    check_number,
    check_seed,
    raise_value_error,
)
from keras_attention._typing import LayerOptions, Nested, Tensor
from keras_attention.backend import gather_rows, ops, scan, swap_steps
from keras_attention.ops.masks import argmax, take_last, zero_masked
from keras_attention.seq2seq._head import Head, check_vocabulary

__all__ = ["HardAttention"]

# The logarithm of the probability of an impossible position. Unlike -inf it is finite, so that
# gradients are not NaN where nothing is valid.
FLOOR = -1e30
SMALLEST = 1e-30  # the weight that stands for zero at a valid position
DECAY = 0.9  # of the moving average


@keras.saving.register_keras_serializable(package="keras_attention")
class HardAttention(Head):
    """Read one position of the memory at each step (Xu et al., 2015).

        p[b,i,j,:] = softmax(W_o tanh(W_s s[b,i] + W_h h[b,j] + b) + b_o)    if it reads j
        p[b,i,:]   = sum_j a[b,i,j] p[b,i,j,:]

    s is the output of the decoder, h the memory and a the weights. The sum is exact, so that no
    position is sampled (Wu, Shapiro and Cotterell, 2018). With `monotonic=True` the position
    never moves back (Wu and Cotterell, 2019):

        a[i](j | j') = a[i](j) / (sum over l >= j' of a[i](l))               j >= j'; otherwise 0
        P[i](j)      = sum_j' p(j' | y[<i]) a[i](j | j')                     the position predicted
        p[i]         = sum_j P[i](j) p[i,j]
        p(j | y[<=i]) = P[i](j) p[i,j](y[i]) / p[i](y[i])

    Before the first step the position is the first valid one. p[i] is p(. | y[<i]), so the
    cross-entropy of the result is the exact log likelihood of the target, summed over all paths.

    This holds if the decoder does not depend on the position read: use an `AttentionRNN` with
    `query="current"`, `output_mode="cell"` and no input feeding.

    `estimator="reinforce"` reads one sampled position j[b,i] at each step of training. The result
    is log p[b,i,j,:], and with the loss added here,

        - mean over valid b, i of (log p[b,i,j](y[b,i]) - m) log a[b,i,j] + w entropy(a[b,i,:])

    the gradient of the mean cross-entropy is an unbiased estimate of that of

        - mean over valid b, i of sum_j a[b,i,j] log p[b,i,j](y[b,i]) + w entropy(a[b,i,:])

    which is no less than the exact loss if w is 0. m is a moving average of log p(y) over earlier
    batches. At inference the head reads the position with the largest weight.

    Sizes: B samples, T steps, Tk memory steps, H and Dv features, U units, V tokens. The exact sums
    store tensors of sizes B T Tk U and B T Tk V, and monotonic ones B T Tk Tk, which suits
    characters. "reinforce" stores none of them.

    Args:
        vocabulary_size: V. units: U.
        monotonic: whether the position never moves back. estimator: "exact" or "reinforce".
        entropy_weight: w, for "reinforce". pad_token: the target at steps that are not valid.
        seed: the seed of the samples.

    Weights:
        from_output: a `Dense` with W_s and b. from_memory: a `Dense` with W_h.
        logits: a `Dense` with W_o and b_o. baseline: m, with "reinforce"; it is not trained.

    Call arguments:
        output: s, `(B, T, H)`, or `(B, H)` for one step, which drops the axis T everywhere.
        weights: a, `(B, T, Tk)`. memory: h, `(B, Tk, Dv)`. memory_mask: `(B, Tk)` boolean.
        tokens: y[i-1], `(B, T)`, if monotonic. The first, a start token, is not used.
        targets: y[i], `(B, T)`, to train with "reinforce".
        state: the state before the step, for one step; see `initial_state`.
        training: whether "reinforce" samples.

    Returns:
        log p, `(B, T, V)`, in at least float32; `(log p, state)` for one step with a state. A
        sample without a valid memory step reads zeros.

    Raises:
        ValueError: an argument is out of range; a tensor is missing or of another rank.

    Example:
        >>> import numpy
        >>> from keras_attention.seq2seq import HardAttention
        >>> output, memory = numpy.ones((2, 3, 5)), numpy.ones((2, 7, 11))
        >>> weights = numpy.full((2, 3, 7), 1 / 7)
        >>> HardAttention(9, units=13)(output, weights=weights, memory=memory).shape
        TensorShape([2, 3, 9])

    References: https://arxiv.org/abs/1808.10024; https://arxiv.org/abs/1905.06319;
    https://arxiv.org/abs/1502.03044, section 4.1, which sometimes reads the mean of the memory.
    """

    def __init__(
        self,
        vocabulary_size: int,
        units: int,
        monotonic: bool = False,
        estimator: str = "exact",
        entropy_weight: float = 0.002,
        pad_token: int = 0,
        seed: int | None = None,
        **kwargs: Unpack[LayerOptions],
    ) -> None:
        super().__init__(**kwargs)
        self.vocabulary_size = check_vocabulary(self.name, vocabulary_size)
        self.units = check_int(self.name, "units", units)
        self.monotonic = check_bool(self.name, "monotonic", monotonic)
        # Positions that are sampled one by one can move back.
        estimators = ("exact",) if monotonic else ("exact", "reinforce")
        self.estimator = check_choice(self.name, "estimator", estimator, estimators)
        self.samples = estimator == "reinforce"
        self.entropy_weight = check_number(self.name, "entropy_weight", entropy_weight, 0)
        self.pad_token = pad_token
        self.seed = check_seed(self.name, seed)
        more = ("tokens",) * self.monotonic + ("targets",) * self.samples
        self.reads = ("weights", "memory", "memory_mask", *more)
        if self.samples:
            self.seed_generator = keras.random.SeedGenerator(self.seed)

    def build(self, output_shape: tuple[int, ...], memory_shape: tuple[int, ...] = ()) -> None:
        units, self._width = self.units, output_shape[-1]
        self.from_output = self.dense("from_output", units, self._width)
        self.from_memory = self.dense("from_memory", units, memory_shape[-1], use_bias=False)
        self.logits = self.dense("logits", self.vocabulary_size, units)
        if self.samples:
            self.baseline = self.add_weight(
                (), "zeros", self.log_dtype, trainable=False, autocast=False, name="baseline"
            )

    def initial_state(self, memory: Tensor, memory_mask: Tensor | None = None) -> Nested:
        """Return the state before the first step, for a head that was built.

        Args:
            memory: h, `(B, Tk, Dv)`. memory_mask: `(B, Tk)` boolean.

        Returns:
            If monotonic, log P of the step before, `(B, Tk)`, and its output s, `(B, H)`, from
            which the next step computes p(y[i-1]). Otherwise an empty tuple.
        """
        if not self.monotonic:
            return ()
        start = _log_start(memory, memory_mask, self.log_dtype)
        return start, ops.zeros((ops.shape(memory)[0], self._width), self.compute_dtype)

    def call(
        self,
        output: Tensor,
        weights: Tensor = None,
        memory: Tensor = None,
        memory_mask: Tensor = None,
        tokens: Tensor = None,
        targets: Tensor = None,
        state: Nested = None,
        training: bool | None = None,
    ) -> Tensor | tuple[Tensor, Nested]:
        one_step = len(output.shape) == 2
        if one_step:
            output, weights, tokens, targets = (
                None if x is None else ops.expand_dims(x, 1)
                for x in (output, weights, tokens, targets)
            )
        logs = _log_weights(ops.cast(weights, self.log_dtype), memory_mask)
        projected = self.from_memory(zero_masked(memory, memory_mask))
        if self.samples:
            result = self._log_probs_of_one(output, projected, logs, targets, training)
        elif self.monotonic and one_step:
            result, state = self._step(output, projected, logs, tokens, state)
        else:
            emitted = self._log_probs_of_all(self.from_output(output), projected)
            if self.monotonic:
                last_log_prob = _probability_of(tokens[:, 1:], emitted[:, :-1])
                last_log_prob = ops.pad(last_log_prob, [[0, 0], [1, 0], [0, 0]])
                start = _log_start(memory, memory_mask, self.log_dtype)
                logs = _log_forward(start, last_log_prob, logs)
            result = ops.logsumexp(ops.expand_dims(logs, 3) + emitted, axis=2)
        if not one_step:
            return result
        result = ops.squeeze(result, 1)
        return result if state is None else (result, state)

    def _step(self, output, memory, logs, tokens, state):
        """Compute one step of the monotonic head. The tensors have an axis of steps."""
        if state is None:
            expected = "`state` is missing: one step of a monotonic head needs it"
            remedy = "Pass state=head.initial_state(memory, memory_mask) to the first step."
            raise_value_error(self.name, expected, state, remedy)
        predicted, last = state
        last = ops.expand_dims(ops.cast(last, self.compute_dtype), 1)
        both = ops.concatenate([last, ops.cast(output, self.compute_dtype)], axis=1)
        emitted = self._log_probs_of_all(self.from_output(both), memory)
        # The start token, which makes no difference here, may lie outside of the vocabulary.
        tokens = ops.minimum(tokens, self.vocabulary_size - 1)
        last_log_prob = _probability_of(tokens, emitted[:, :1])
        logs = _advance(ops.cast(predicted, self.log_dtype), last_log_prob[:, 0], logs[:, 0])
        state = logs, ops.cast(output[:, 0], self.compute_dtype)
        return ops.logsumexp(logs[:, None, :, None] + emitted[:, 1:], axis=2), state

    def _log_probs_of_all(self, output, memory):
        """Return log p for every position, `(B, T, Tk, V)`."""
        return self._log_probs(ops.expand_dims(output, 2) + ops.expand_dims(memory, 1))

    def _log_probs(self, both):
        logits = ops.cast(self.logits(ops.tanh(both)), self.log_dtype)
        return ops.log_softmax(logits, axis=-1)

    def _log_probs_of_one(self, output, memory, logs, targets, training):
        """Return log p `(B, T, V)` at a sampled or, after training, the most probable position."""
        position = _sampled(logs, self.seed_generator) if training else argmax(logs)
        log_probs = self._log_probs(self.from_output(output) + gather_rows(memory, position))
        if training:
            reward, valid = take_last(log_probs, targets), targets != self.pad_token
            weight, before = self.entropy_weight, self.baseline
            loss, baseline = _reinforce(reward, before, logs, position, valid, weight)
            self.add_loss(loss)
            self.baseline.assign(baseline)
        return log_probs


def _log_weights(weights, mask):
    """Return log a, `(B, T, Tk)`, `FLOOR` where the mask `(B, Tk)` is False.

    A row sums to one. Where nothing is valid, all positions are equally probable.
    """
    logs = ops.log(ops.maximum(weights, SMALLEST))
    if mask is not None:
        logs = ops.where(ops.expand_dims(mask, 1), logs, FLOOR)
    return ops.log_softmax(logs, axis=-1)


def _log_start(memory, mask, dtype):
    """Return the log distribution `(B, Tk)` at the first valid position, or else the first."""
    valid = ops.ones_like(memory[..., 0], "float32") if mask is None else ops.cast(mask, "float32")
    position = ops.arange(ops.shape(memory)[1], dtype="int32")
    at_start = position == ops.expand_dims(argmax(valid), 1)
    return ops.cast(ops.where(at_start, 0.0, FLOOR), dtype)


def _advance(predicted, last_log_prob, logs):
    """Compute one step of the recursion over positions that never move back.

        r(j')  = p(j' | y[<i])        = P[i-1](j') p(y[i-1] | j') / (their sum over j')
        P[i](j) = p(j | y[<i])        = sum over j' <= j of r(j') a[i](j) / (sum_{l >= j'} a[i](l))

    Args:
        predicted: log P[i-1], `(B, Tk)`. last_log_prob: log p(y[i-1] | j), `(B, Tk)`.
        logs: log a[i], `(B, Tk)`.

    Returns:
        log P[i], `(B, Tk)`.
    """
    position = ops.arange(ops.shape(logs)[1], dtype="int32")
    ahead = ops.expand_dims(position, 1) <= position
    moves = ops.log_softmax(ops.where(ahead, ops.expand_dims(logs, 1), FLOOR), axis=-1)
    read = ops.log_softmax(predicted + last_log_prob, axis=-1)
    return ops.logsumexp(ops.expand_dims(read, 2) + moves, axis=1)


def _log_forward(start, last_log_prob, logs):
    """Compute all steps of `_advance`.

    Args:
        start: `(B, Tk)`. last_log_prob: `(B, T, Tk)`, zeros at the first step. logs: `(B, T, Tk)`.

    Returns:
        log P, `(B, T, Tk)`.
    """

    def step(predicted, inputs):
        predicted = _advance(predicted, *inputs)
        return predicted, predicted

    return swap_steps(scan(step, start, (swap_steps(last_log_prob), swap_steps(logs)))[1])


def _probability_of(tokens, log_probs):
    """Return the log probability of the tokens `(B, T)` at every position, `(B, T, Tk)`."""
    tokens = ops.broadcast_to(ops.expand_dims(tokens, 2), ops.shape(log_probs)[:-1])
    return take_last(log_probs, tokens)


def _sampled(logs, generator):
    """Sample positions `(B, T)` with the log probabilities `(B, T, Tk)`."""
    # The argmax of log a plus Gumbel noise is j with probability a(j).
    uniform = keras.random.uniform(ops.shape(logs), dtype=logs.dtype, seed=generator)
    return argmax(logs - ops.log(-ops.log(uniform)))


def _reinforce(reward, baseline, logs, position, valid, weight):
    """Return the loss whose gradient is the estimate of REINFORCE, and the next baseline.

        loss = - mean over valid b, i of (r[b,i] - m) log a[b,i,j] + w entropy(a[b,i,:])

    Args:
        reward: r, `(B, T)`, a constant for gradients.
        baseline: m, `()`, a moving average of the mean reward.
        logs: log a, `(B, T, Tk)`. position: the sampled j, `(B, T)`.
        valid: `(B, T)` boolean. weight: w.
    """
    entropy = -ops.sum(ops.exp(logs) * logs, axis=-1)
    reward = ops.stop_gradient(reward)
    terms = (reward - baseline) * take_last(logs, position) + weight * entropy
    share = ops.cast(valid, logs.dtype)
    share = share / ops.maximum(ops.sum(share), 1.0)
    return -ops.sum(share * terms), DECAY * baseline + (1 - DECAY) * ops.sum(share * reward)
