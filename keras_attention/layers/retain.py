"""RETAIN: a classifier of histories whose logit is a sum over visits and codes."""

from typing import Unpack

import keras

from keras_attention._spec import Spec, check_bool, check_int, raise_value_error
from keras_attention._typing import LayerOptions, Tensor, TensorShape
from keras_attention.attention.checked_layer import CheckedLayer, as_in_a_call
from keras_attention.backend import UNROLLS_WITH_MASK, ops, project
from keras_attention.ops.masks import zero_masked
from keras_attention.ops.matmul import cast
from keras_attention.ops.normalize import masked_softmax

__all__ = ["RETAIN"]


@keras.saving.register_keras_serializable(package="keras_attention")
class RETAIN(CheckedLayer):
    """Classifies a history of visits, and says what each code adds (Choi et al., 2016).

        v[b,i] = W x[b,i]
        g[b,:] = GRU of v[b,:], h[b,:] = GRU of v[b,:]       both from the last visit to the first
        a[b,:] = softmax of w . g[b,i] over the valid i      a weight for each visit
        z[b,i] = tanh(W_z h[b,i] + b_z)                      a gate for each feature
        y[b]   = W_o sum_i a[b,i] z[b,i] * v[b,i] + b_o

    The logits are linear in the visits, for fixed weights and gates. So each of them is a sum of
    what the codes of the visits contribute, plus b_o; see `contributions`.

    Sizes: B samples, T visits, D codes, U units, C classes.

    Args:
        units: U, the features of an embedded visit and the units of both recurrences.
        classes: C, the number of logits. One is for two classes; take the sigmoid of it.
        unroll: whether to unroll both recurrences; needs a static T.

    Weights:
        embedding_kernel: W, `(D, U)`. visit_rnn, gate_rnn: two `keras.layers.GRU`. visit_vector: w,
        `(U,)`. gate_kernel: W_z, `(U, U)`. gate_bias: b_z, `(U,)`. class_kernel: W_o, `(U, C)`.
        class_bias: b_o, `(C,)`.

    Call arguments:
        inputs: x, `(B, T, D)`, the codes of each visit: one where a code occurs, or its count.
        mask: `(B, T)` boolean; visits where it is False are not read.
        return_attention_scores: whether to return the weights too.
        training: whether the layer runs in training; it changes nothing.

    Returns:
        y `(B, C)`; with `return_attention_scores` also the weights a `(B, T)`. Where nothing is
        valid, y is b_o, and gradients are finite.

    Raises:
        ValueError: `units` or `classes` is not a positive integer; `inputs` is not of rank 3, or
            has another width than the layer was built for; the mask is not boolean or has another
            shape.

    Example:
        >>> import numpy
        >>> from keras_attention import RETAIN
        >>> visits = numpy.random.default_rng(0).integers(0, 2, (2, 7, 11)).astype("float32")
        >>> layer = RETAIN(5)
        >>> logit, shares = layer(visits), layer.contributions(visits)
        >>> shares.shape, bool(abs(shares.numpy().sum((1, 2)) - logit).numpy().max() < 1e-5)
        (TensorShape([2, 7, 11, 1]), True)

    Reference: https://arxiv.org/abs/1608.05745, sections 2.2 and 2.3. The bias inside the softmax
    is left out, because the softmax does not depend on it.
    """

    CALL = Spec("inputs: float[B T D]", "mask: bool[B T]?")

    def __init__(
        self, units: int, classes: int = 1, unroll: bool = False, **kwargs: Unpack[LayerOptions]
    ) -> None:
        super().__init__(**kwargs)
        self.units = check_int(self.name, "units", units)
        self.classes = check_int(self.name, "classes", classes)
        self.unroll = check_bool(self.name, "unroll", unroll)
        self.visit_rnn, self.gate_rnn = self._make_rnn("visit_rnn"), self._make_rnn("gate_rnn")
        self.supports_masking = True

    def _make_rnn(self, name):
        return keras.layers.GRU(
            self.units,
            return_sequences=True,
            go_backwards=True,
            recurrent_initializer="glorot_uniform",  # "orthogonal" does not exist in half precision
            # cuDNN takes no padding before the first step.
            use_cudnn=False,  # pyright: ignore[reportArgumentType]  # Keras takes "auto" and booleans
            # PyTorch has no other loop, and with a mask Keras fails to unroll there.
            unroll=self.unroll and UNROLLS_WITH_MASK,
            dtype=self.dtype_policy,
            name=name,
        )

    def build(self, inputs_shape: TensorShape) -> None:
        self._sizes = self.CALL.check_shapes(self.name, {"inputs": inputs_shape})
        batch, steps, _ = inputs_shape
        if self.unroll and not isinstance(steps, int):
            expected = "with `unroll` the number of visits of `inputs` must be known"
            raise_value_error(self.name, expected, tuple(inputs_shape), "Give it to keras.Input.")
        units = self.units
        for rnn in (self.visit_rnn, self.gate_rnn):
            if not rnn.built:
                rnn.build((batch, steps, units))
        self.embedding_kernel = self.add_weight((self._sizes["D"], units), name="embedding_kernel")
        self.visit_vector = self.add_weight((units,), name="visit_vector", autocast=False)
        self.gate_kernel = self.add_weight((units, units), name="gate_kernel")
        self.gate_bias = self.add_weight((units,), "zeros", name="gate_bias", autocast=False)
        self.class_kernel = self.add_weight((units, self.classes), name="class_kernel")
        classes = (self.classes,)
        self.class_bias = self.add_weight(classes, "zeros", name="class_bias", autocast=False)

    def call(
        self,
        inputs: Tensor,
        mask: Tensor = None,
        return_attention_scores: bool = False,
        training: bool | None = None,
    ) -> Tensor | tuple[Tensor, Tensor]:
        visits, weights, gates = self._read(zero_masked(inputs, mask), mask)
        context = ops.sum(ops.expand_dims(weights, 2) * gates * visits, axis=1)
        logits = project(context, cast(self.class_kernel, self.score_dtype))
        logits = ops.cast(ops.add(logits, self.class_bias), self.compute_dtype)
        if not return_attention_scores:
            return logits
        return logits, ops.cast(weights, self.compute_dtype)

    def contributions(self, inputs: Tensor, mask: Tensor = None) -> Tensor:
        """Return what each code of each visit adds to each logit.

            s[b,i,k,c] = x[b,i,k] a[b,i] sum_u W[k,u] z[b,i,u] W_o[u,c]
            y[b,c]     = sum_ik s[b,i,k,c] + b_o[c]

        A code that does not occur contributes zero. The sum holds for any input, up to rounding.

        Args:
            inputs, mask: as in a call, not symbolic. Pass the mask: it does not propagate here.
                For a functional model, call this method in the `call` of a layer.

        Returns:
            s, `(B, T, D, C)`.
        """
        self._check_built("contributions()")
        if keras.backend.is_keras_tensor(inputs):
            expected = "`inputs` of contributions(inputs, mask) must not be symbolic"
            remedy = "Call it in the `call` of a keras.layers.Layer."
            raise_value_error(self.name, expected, inputs, remedy)
        tensors = {"inputs": inputs, "mask": mask}
        self.CALL.check(self.name, tensors, self._sizes, "contributions(inputs, mask)")
        inputs = zero_masked(cast(inputs, self.compute_dtype), mask)
        _, weights, gates = as_in_a_call(self, lambda: self._read(inputs, mask))
        kernels = self.embedding_kernel, self.class_kernel
        kernel, output = (ops.transpose(cast(x, self.score_dtype)) for x in kernels)
        slopes = ops.expand_dims(ops.expand_dims(weights, 2) * gates, 2) * output
        slopes = ops.swapaxes(project(slopes, kernel), 2, 3)  # (B, T, D, C)
        return ops.expand_dims(cast(inputs, self.score_dtype), 3) * slopes

    def _read(self, inputs, mask):
        """Return the embedded visits, their weights and their gates."""
        visits = self.project(inputs, self.embedding_kernel)
        if mask is not None:
            mask = ops.convert_to_tensor(mask)

        sequence, valid, has_visits = visits, mask, bool(visits.shape[1])
        if not has_visits:
            # Keras's recurrences need a step. These run backwards, so one before the first changes
            # no other.
            sequence = ops.pad(visits, [[0, 0], [1, 0], [0, 0]])
            if mask is not None:
                first = ops.ones((ops.shape(mask)[0], 1), "bool")
                valid = ops.concatenate([first, mask], axis=1)  # ONNX pads no booleans

        def read(rnn):
            states = ops.flip(rnn(sequence, mask=valid), axis=1)
            return cast(states if has_visits else states[:, 1:], self.score_dtype)

        scores = ops.sum(ops.multiply(read(self.visit_rnn), self.visit_vector), axis=-1)
        gates = self.project(read(self.gate_rnn), self.gate_kernel)
        gates = ops.tanh(ops.add(gates, self.gate_bias))
        return visits, masked_softmax(scores, mask), gates

    def compute_mask(self, inputs: Tensor, previous_mask: Tensor = None) -> None:
        return None  # the axis of visits is gone

    def compute_output_shape(self, inputs_shape: TensorShape) -> TensorShape:
        self.CALL.check_shapes(self.name, {"inputs": inputs_shape})
        return (inputs_shape[0], self.classes)
