"""Training of a model on pairs of a source and a target."""

from typing import Any

import keras
import numpy as np
from keras import ops

from keras_attention.models._batches import padded
from keras_attention.models._checks import check_loss, check_targets

COUNTS = "sum_over_batch_size"  # the reduction that divides by all places, padding too


class PairTrainer(keras.Model):
    """A model of `(source, target)` that learns to predict the target.

    Its `pad_token` counts neither in the loss nor in the metrics.
    """

    start_token: int
    end_token: int
    pad_token: int

    def compile(
        self,
        optimizer: Any = "adam",
        loss: Any = None,
        *,
        metrics: list | None = None,
        weighted_metrics: list | None = None,
        **kwargs: Any,
    ) -> None:
        """Configures training. Padding counts neither in the loss nor in the metrics.

        Args:
            optimizer, kwargs: see `keras.Model.compile`.
            loss: a loss on `(targets, logits)`. Defaults to the mean cross-entropy of the tokens.
                The mean of any loss is that of the valid tokens.
            metrics, weighted_metrics: metrics on `(targets, logits)`.
        """
        check_loss(loss)
        if loss is None:
            loss = keras.losses.SparseCategoricalCrossentropy(
                from_logits=True, reduction="mean_with_sample_weight"
            )
        self._counts_padding = getattr(loss, "reduction", COUNTS) == COUNTS
        metrics = [*(metrics or []), *(weighted_metrics or [])]
        super().compile(optimizer, loss, weighted_metrics=metrics or None, **kwargs)

    def compile_from_config(self, config: dict[str, Any]) -> None:
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

    def fit(self, x: Any = None, y: Any = None, **kwargs: Any) -> keras.callbacks.History:
        """Trains on pairs of ids: `fit(source, target, epochs=10)`. Lists of ids are padded.

        A data set or a generator yields `((source, target), target)`. Validation data is a pair of
        the same kind. `keras.Model.fit` explains all other arguments.
        """
        valid = kwargs.get("validation_data")
        if isinstance(valid, (tuple, list)):
            (source, target), *rest = self._pair(*valid[:2]), *valid[2:]
            kwargs["validation_data"] = (source, target, *rest)
        return super().fit(*self._pair(x, y), **kwargs)

    def evaluate(self, x: Any = None, y: Any = None, **kwargs: Any) -> Any:
        """Returns the loss and the metrics: `evaluate(source, target)`. See `fit` for data sets."""
        return super().evaluate(*self._pair(x, y), **kwargs)

    def train_on_batch(self, x: Any, y: Any = None, *args: Any, **kwargs: Any) -> Any:
        return super().train_on_batch(*self._pair(x, y), *args, **kwargs)

    def test_on_batch(self, x: Any, y: Any = None, *args: Any, **kwargs: Any) -> Any:
        return super().test_on_batch(*self._pair(x, y), *args, **kwargs)

    def _pair(self, source, target=None):
        """Makes ((source, target), target) of arrays; leaves everything else as it is."""
        if target is None:
            return source, target
        source, target = (padded(x, self.pad_token) for x in (source, target))
        check_targets(self.name, target, self.start_token, self.end_token, self.pad_token)
        already = isinstance(source, (tuple, list)) and len(source) == 2
        already = already and (source[1] is target or np.array_equal(source[1], target))
        return (source if already else (source, target)), target
