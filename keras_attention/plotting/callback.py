"""Attention maps in TensorBoard."""

import os
import pathlib
import warnings
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import keras
import numpy as np

from keras_attention._spec import check_int, refuse
from keras_attention._typing import Nested
from keras_attention.plotting._figures import matplotlib_classes
from keras_attention.plotting._inputs import string_list
from keras_attention.plotting._text import Text
from keras_attention.plotting.attention_page import attention_page
from keras_attention.plotting.heat_map import plot_attention
from keras_attention.plotting.weights import attention_weights

__all__ = ["AttentionMapCallback"]


class AttentionMapCallback(keras.callbacks.Callback):
    """Draws attention maps of some samples after every epoch, as images for TensorBoard.

    The file `attention-N.html` in the folder is the `attention_page` of sample N after the last
    epoch. It is left out if there is no target, or if the folder is remote. If weights have become
    NaN, the callback warns and draws no maps.

    Sizes: N samples, each with its own number of tokens.

    Args:
        log_dir: folder of a TensorBoard run.
        inputs: inputs of the model, a batch of N samples.
        sources: N lists of strings, the source tokens. Weights of the padding after them are not
            drawn.
        targets: N lists of strings, the target tokens; None for layers whose query has no time
            axis.
        layer: name of an attention layer. Required if the model has more than one.
        every: number of epochs between two drawings.

    Raises:
        ValueError: the numbers of samples differ, or `every` is not a positive integer. When
            training begins: the model has no such layer, or its weights are not one map per
            sample with a step for every token.
        ImportError: when training begins, if matplotlib or TensorBoard is missing.

    Example:
        >>> import keras, numpy, pathlib, tempfile
        >>> from keras_attention import BahdanauAttention
        >>> from keras_attention.plotting import AttentionMapCallback
        >>> query, value = keras.Input((2, 3)), keras.Input((2, 3))
        >>> model = keras.Model([query, value], BahdanauAttention(4)(query, value))
        >>> model.compile("sgd", "mse")
        >>> x, logs = numpy.ones((1, 2, 3)), tempfile.mkdtemp()
        >>> maps = AttentionMapCallback(logs, [x, x], [["das", "Haus"]], [["the", "house"]])
        >>> history = model.fit([x, x], x, callbacks=[maps], verbose=0)
        >>> [page.name for page in pathlib.Path(logs).glob("*.html")]
        ['attention-0.html']
    """

    log_dir: str | os.PathLike[str]
    inputs: Nested
    sources: list[list[Text]]
    targets: list[list[Text]] | None
    layer: str | None
    every: int

    def __init__(
        self,
        log_dir: str | os.PathLike[str],
        inputs: Nested,
        sources: Iterable[Sequence[Text]],
        targets: Iterable[Sequence[Text]] | None = None,
        layer: str | None = None,
        every: int = 1,
    ) -> None:
        super().__init__()
        if not isinstance(log_dir, (str, os.PathLike)):
            raise ValueError(f"log_dir: a folder; received {log_dir!r}.")
        if layer is not None and not isinstance(layer, str):
            raise ValueError(f"layer: the name of a layer, or None; received {layer!r}.")
        sources = _token_lists("sources", sources)
        targets = None if targets is None else _token_lists("targets", targets)
        if targets is not None and len(targets) != len(sources):
            expected = f"a list of tokens for each of the {len(sources)} sources"
            refuse("targets", expected, len(targets))
        check_int("AttentionMapCallback", "every", every)
        self.log_dir, self.inputs, self.layer, self.every = log_dir, inputs, layer, every
        self.sources, self.targets = sources, targets
        self._writer: Any = None

    def on_train_begin(self, logs: dict[str, Any] | None = None) -> None:
        # Draws once before training: otherwise a mistake would show only after the first epoch.
        matplotlib_classes()
        for one in self._maps():
            plot_attention(*one)
        self._writer = _summaries().create_file_writer(str(self.log_dir))

    def on_epoch_end(self, epoch: int, logs: dict[str, Any] | None = None) -> None:
        if (epoch + 1) % self.every:
            return
        summary = _summaries()
        try:
            with self._writer.as_default(step=epoch):
                for number, one in enumerate(self._maps()):
                    summary.image(f"attention/{number}", _pixels(plot_attention(*one))[None])
                    self._write_page(number, epoch + 1, *one)
        except ValueError as error:
            # The weights may be NaN, and Keras continues to train.
            warnings.warn(
                f"AttentionMapCallback: no map after epoch {epoch + 1}: {error}",
                RuntimeWarning,
                stacklevel=2,
            )
        self._writer.flush()

    def on_train_end(self, logs: dict[str, Any] | None = None) -> None:
        self._writer.close()

    def _write_page(self, number, epoch, weights, source, target):
        if target is None or "://" in str(self.log_dir):
            return
        page = attention_page(weights, source, target, f"Sample {number} after epoch {epoch}")
        path = pathlib.Path(self.log_dir) / f"attention-{number}.html"
        written = path.with_suffix(".tmp")
        written.write_text(page, encoding="utf-8")
        written.replace(path)

    def _maps(self) -> Iterator[Any]:
        """Weights, source and target of every sample, without the padding."""
        found = attention_weights(self.model, self.inputs)
        name = self.layer or next(iter(found))
        if name not in found or (self.layer is None and len(found) > 1):
            raise ValueError(
                f"layer: the name of one of {', '.join(found)}; received {self.layer!r}."
            )
        weights = found[name]
        if isinstance(weights, (list, tuple)) or weights.ndim != 2 + (self.targets is not None):
            axes = "(samples, target, source)" if self.targets else "(samples, source)"
            raise ValueError(f"{name}: expected weights {axes}; received {_shapes(weights)}.")
        if len(weights) != len(self.sources):
            expected = f"one list of tokens for each of the {len(weights)} samples of the inputs"
            refuse("sources", expected, len(self.sources))
        for number, source in enumerate(self.sources):
            one = weights[number]
            if self.targets is None:
                yield one[: len(source)], source, None
            else:
                target = self.targets[number]
                yield one[: len(target), : len(source)], source, target


def _token_lists(name, lists):
    if isinstance(lists, (str, bytes)):
        raise ValueError(f"{name} must be a list of lists of tokens; received {lists!r:.80}.")
    return [string_list(f"{name}[{n}]", tokens) for n, tokens in enumerate(lists)]


def _shapes(weights):
    if isinstance(weights, (list, tuple)):
        return [_shapes(x) for x in weights]
    return weights.shape


def _summaries():
    try:
        import tensorboard  # noqa: F401
        import tensorflow as tf
    except ImportError as error:
        raise ImportError(
            "AttentionMapCallback needs TensorFlow and TensorBoard: "
            'pip install "keras-attention-layers[plot]"'
        ) from error
    return tf.summary


def _pixels(figure):
    """The picture as bytes, `(height, width, 4)`."""
    figure.canvas.draw()
    return np.asarray(figure.canvas.buffer_rgba())
