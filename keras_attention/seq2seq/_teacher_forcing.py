"""Train a model on pairs of a source and a target."""

import inspect
from collections.abc import Callable
from typing import NamedTuple

import keras
import numpy as np

from keras_attention._spec import Description, describe
from keras_attention._typing import Nested, Tensor
from keras_attention.backend import ops
from keras_attention.seq2seq._batches import STEPS, pad_lists
from keras_attention.seq2seq._checks import check, check_targets
from keras_attention.seq2seq._compiled_functions import CompiledFunctions
from keras_attention.seq2seq._text import texts_of, to_ids
from keras_attention.seq2seq._text_data import encoded_data

# Reductions that divide by all positions, padding too.
DIVIDE_BY_ALL = "sum_over_batch_size", "mean"


class Pair(NamedTuple):
    """A source and its target, marked as a pair: a source may itself be a pair.

    `fit` passes its validation data to `evaluate` in this form.
    """

    source: Nested
    target: Tensor


class PairTrainer(keras.Model):
    """A model of `(source, target)` that learns to predict the target.

    Its `pad_token` counts neither in the loss nor in the metrics.
    """

    start_token: int
    end_token: int
    pad_token: int
    _check_ids: Callable[..., None]
    _compiled_functions: CompiledFunctions
    _longest_target: int | None

    def compile(
        self,
        optimizer: str | keras.optimizers.Optimizer = "adam",
        loss: keras.losses.Loss | Callable | None = None,
        *,
        metrics: list | None = None,
        weighted_metrics: list | None = None,
        **kwargs: object,
    ) -> None:
        """Configure training. Padding counts neither in the loss nor in the metrics.

        Args:
            optimizer, kwargs: see `keras.Model.compile`.
            loss: a loss on `(targets, logits)`. Defaults to the mean cross-entropy of the tokens.
                The mean of any loss is that of the valid tokens.
            metrics, weighted_metrics: metrics on `(targets, logits)`.
        """
        if isinstance(loss, (list, tuple)) and len(loss) == 1:  # as Keras takes it for one output
            (loss,) = loss
        expected = "`loss` must be one loss and must take logits"
        remedy = "Pass keras.losses.SparseCategoricalCrossentropy(from_logits=True)."
        check("Seq2Seq", _takes_logits(loss), expected, loss, remedy)
        if loss is None:
            loss = keras.losses.SparseCategoricalCrossentropy(
                from_logits=True, reduction="mean_with_sample_weight"
            )
        self._counts_padding = getattr(loss, "reduction", "mean") in DIVIDE_BY_ALL
        metrics = [*(metrics or []), *(weighted_metrics or [])]
        super().compile(optimizer, loss, weighted_metrics=metrics or None, **kwargs)

    def compile_from_config(self, config: dict) -> None:
        self.compile(**keras.saving.deserialize_keras_object(config))
        if self.built:
            self.optimizer.build(self.trainable_variables)

    def compute_loss(self, x=None, y=None, y_pred=None, sample_weight=None, training=True):
        y, sample_weight = self._weighted(x, y, sample_weight)
        if self._counts_padding:
            valid = ops.cast(ops.not_equal(y, self.pad_token), "float32")
            sample_weight = sample_weight / ops.maximum(ops.mean(valid), 1e-9)
        return super().compute_loss(x, y, y_pred, sample_weight, training)

    def compute_metrics(self, x, y, y_pred, sample_weight=None):
        y, sample_weight = self._weighted(x, y, sample_weight)
        return super().compute_metrics(x, y, y_pred, sample_weight)

    def _weighted(self, pair, target, weight):
        target = pair[1] if target is None else target
        valid = ops.cast(ops.not_equal(target, self.pad_token), "float32")
        if weight is None:
            return target, valid
        weight = ops.reshape(ops.cast(weight, "float32"), (ops.shape(target)[0], -1))
        return target, valid * weight

    def fit(
        self, x: Nested = None, y: Nested = None, *, class_weight: None = None, **kwargs: object
    ) -> keras.callbacks.History:
        """Train on pairs of ids or texts: `fit(source, target, epochs=10)`. Lists are padded.

        With a target, all of `x` is the source, also if it is a pair of two sources. A data set or
        a generator yields `((source, target), target)`, or `(source, target)` if both are texts.
        Validation data is a pair `(source, target)`, or a data set of the same kind. Texts are
        encoded outside of the training step: lists and arrays before the first step, a data set in
        its pipeline. Every token that is not padding counts, also after an end token.
        `class_weight` is refused. `keras.Model.fit` explains all other arguments.
        """
        self._check_no_class_weight(class_weight)
        valid = kwargs.get("validation_data")
        if isinstance(valid, (tuple, list)):
            kwargs["validation_data"] = (*self._pair(*valid[:2]), *valid[2:])
        return super().fit(*self._pair(x, y), **kwargs)

    def evaluate(self, x: Nested = None, y: Nested = None, **kwargs: object) -> Nested:
        """Return the loss and the metrics: `evaluate(source, target)`. See `fit` for data sets."""
        return super().evaluate(*self._pair(x, y), **kwargs)

    def train_on_batch(
        self,
        x: Nested,
        y: Nested = None,
        sample_weight: Tensor | None = None,
        class_weight: None = None,
        return_dict: bool = False,
    ) -> Nested:
        """Take one step of training on a batch. See `fit` for the arguments."""
        self._check_no_class_weight(class_weight)
        return super().train_on_batch(*self._pair(x, y), sample_weight, return_dict=return_dict)

    def test_on_batch(self, x: Nested, y: Nested = None, *args: object, **kwargs: object) -> Nested:
        """Return the loss and the metrics of a batch. See `fit` for the arguments."""
        return super().test_on_batch(*self._pair(x, y), *args, **kwargs)

    def _check_no_class_weight(self, class_weight):
        # Keras would take the position of the largest id of a target for its class.
        remedy = "Weigh samples or tokens with sample_weight, (batch,) or (batch, steps)."
        expected = "`class_weight` must be None"
        check(self.name, class_weight is None, expected, class_weight, remedy)

    def _pair(self, source, target=None):
        """Return (pair, target) of a source and a target, and everything else as it is."""
        if target is None or isinstance(source, Pair):
            alone = isinstance(source, dict) or texts_of(self.name, "source", source) is not None
            alone = alone or hasattr(pad_lists(source, self.pad_token), "shape")
            expected = "training and evaluation need a source and its target"
            remedy = "Call fit(source, target), or pass a data set of ((source, target), target)."
            check(self.name, not alone, expected, Description(f"only {describe(source)}"), remedy)
            return encoded_data(source, self._encode_batch), target
        source, target, _ = to_ids(self, source, target)
        check_targets(self, target)
        self._check_ids(source, target)
        self._note_length(target)
        return Pair(source, target), target

    def _encode_batch(self, source, target):
        """Return the ids of one batch of texts from a data set."""
        multiple = STEPS if self._compiled_functions.fixed(self) else 1
        source, target, _ = to_ids(self, source, target, multiple=multiple)
        self._note_length(target)
        return source, target

    def _note_length(self, target):
        """Note the length of the longest target."""
        if isinstance(target, np.ndarray) and target.size:
            longest = int(np.sum(target != self.pad_token, axis=1).max())
            self._longest_target = max(self._longest_target or 0, longest)


def _takes_logits(loss):
    if inspect.isfunction(loss):
        option = inspect.signature(loss).parameters.get("from_logits")
        return option is None or option.default is True
    return not isinstance(loss, (str, list, tuple, dict)) and getattr(loss, "from_logits", True)
