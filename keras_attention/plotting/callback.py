"""Attention maps in TensorBoard."""

import os
import pathlib
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

import keras
import numpy as np

from keras_attention._spec import check_choice, check_int, raise_value_error
from keras_attention._typing import Nested, Tensor
from keras_attention.plotting._figures import pixels
from keras_attention.plotting._inputs import string_list
from keras_attention.plotting._text import Text
from keras_attention.plotting.attention_page import attention_page
from keras_attention.plotting.attention_weights import attention_weights
from keras_attention.plotting.heat_map import plot_attention
from keras_attention.plotting.images import image_pixels, plot_attention_image

__all__ = ["AttentionMapCallback"]


class AttentionMapCallback(keras.callbacks.Callback):
    """Draw attention maps of some samples after every epoch, as images for TensorBoard.

    The file `attention-N.html` in the folder is the `attention_page` of sample N after the last
    epoch. It is left out if there is no target, or if the folder is remote. If weights have become
    NaN, the callback warns and draws no maps.

    Sizes: N samples, each with its own number of tokens.

    Args:
        log_dir: folder of a TensorBoard run.
        inputs: inputs of the model, a batch of N samples, such as the texts of a `Seq2Seq`,
            `(sources, targets)`.
        sources: N lists of strings, the source tokens. Weights of the padding after them are not
            drawn. By default, the tokens of the texts, of the targets too.
        targets: N lists of strings, the target tokens; None for layers whose query has no time
            axis.
        layer: name of an attention layer. Required if the model has more than one.
        every: number of epochs between two drawings.
        grid: the rows and columns of cells, `(H, W)`, if the sources are images, `(N, Y, X)` or
            `(N, Y, X, C)`; see `plot_attention_image`. They need targets.

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

    def __init__(
        self,
        log_dir: str | os.PathLike[str],
        inputs: Nested,
        sources: Iterable[Sequence[Text]] | Tensor | None = None,
        targets: Iterable[Sequence[Text]] | None = None,
        layer: str | None = None,
        every: int = 1,
        grid: tuple[int, int] | None = None,
    ) -> None:
        super().__init__()
        where = "AttentionMapCallback"
        if not isinstance(log_dir, (str, os.PathLike)):
            raise_value_error(where, "`log_dir` must be a folder", log_dir)
        self.log_dir: str | os.PathLike[str] = log_dir
        self.inputs: Nested = inputs
        if grid is not None:
            if sources is None or targets is None:
                raise_value_error(where, "`grid` needs images as `sources`, and `targets`", grid)
            sources = [image_pixels(where, x) for x in sources]
        elif sources is not None:
            sources = _token_lists("sources", sources)
        self.sources: list[Any] | None = sources
        self.grid: tuple[int, int] | None = grid
        self._plot: Any = plot_attention if grid is None else plot_attention_image
        targets = None if targets is None else _token_lists("targets", targets)
        self.targets: list[list[Text]] | None = targets
        self.layer: str | None = layer
        self.every: int = check_int(where, "every", every)
        count = len(sources or ())
        if targets is not None and len(targets) != count:
            expected = f"`targets` must be {count} lists of tokens, one for each source"
            raise_value_error(where, expected, targets)

    def on_train_begin(self, logs: Mapping[str, float] | None = None) -> None:
        # Draws once before training: otherwise a mistake would show only after the first epoch.
        for one in self._maps():
            self._plot(*one)
        try:
            import tensorboard  # noqa: F401
            from tensorflow import summary
        except ImportError:
            raise ImportError(
                "AttentionMapCallback needs TensorFlow and TensorBoard: "
                'pip install "keras-attention-layers[plot]"'
            ) from None
        self._summary = summary
        self._writer = summary.create_file_writer(str(self.log_dir))

    def on_epoch_end(self, epoch: int, logs: Mapping[str, float] | None = None) -> None:
        if (epoch + 1) % self.every:
            return
        try:
            with self._writer.as_default(step=epoch):
                for number, one in enumerate(self._maps()):
                    self._summary.image(f"attention/{number}", pixels(self._plot(*one))[None])
                    self._write_page(number, epoch + 1, *one)
        except ValueError as error:
            # The weights may be NaN, and Keras continues to train.
            message = f"AttentionMapCallback: no map after epoch {epoch + 1}: {error}"
            warnings.warn(message, RuntimeWarning, stacklevel=2)
        self._writer.flush()

    def on_train_end(self, logs: Mapping[str, float] | None = None) -> None:
        self._writer.close()

    def _write_page(self, number, epoch, weights, source, target):
        if target is None or "://" in str(self.log_dir):
            return
        page = attention_page(weights, source, target, f"Sample {number} after epoch {epoch}")
        path = pathlib.Path(self.log_dir) / f"attention-{number}.html"
        written = path.with_suffix(".tmp")
        written.write_text(page, encoding="utf-8")
        written.replace(path)

    def _maps(self) -> Iterator[tuple[np.ndarray, Sequence[Text], Sequence[Text] | None]]:
        """Yield weights, source and target of every sample, without the padding."""
        where, model = "AttentionMapCallback", self.model
        assert model is not None  # `fit` has set it
        sources, targets = self.sources, self.targets
        if sources is None:
            sources, targets = _tokens_of(model, self.inputs)
        maps = attention_weights(model, self.inputs)
        name = next(iter(maps)) if self.layer is None and len(maps) == 1 else self.layer
        weights = maps[check_choice(where, "layer", name, maps)]
        axes = "(samples, source)" if targets is None else "(samples, target, source)"
        if isinstance(weights, (list, tuple)) or weights.ndim != axes.count(",") + 1:
            raise_value_error(where, f"the weights of `{name}` must be of shape {axes}", weights)
        if len(weights) != len(sources):
            expected = f"`sources` must be {len(weights)} lists of tokens, one for each sample"
            raise_value_error(where, expected, sources)
        rows_of = [None] * len(weights) if targets is None else targets
        for one, source, target in zip(weights, sources, rows_of, strict=True):
            rows = one if target is None else one[: len(target)]
            if self.grid is None:
                yield rows[..., : len(source)], source, target
            else:
                yield rows.reshape(-1, *self.grid), source, target


def _tokens_of(model: keras.Model, inputs: Nested) -> Iterator[list[list[str]]]:
    """Return the tokens of the sources and of the targets of a model with tokenizers."""
    expected = "`sources` is needed for a model without `source_text` and `target_text`"
    tokenizers: Any = [getattr(model, name, None) for name in ("source_text", "target_text")]
    if None in tokenizers:
        raise_value_error("AttentionMapCallback", expected, None)
    for tokenizer, ids in zip(tokenizers, model.tokenize(*inputs), strict=True):
        yield [tokenizer.labels(n for n in row if n != model.pad_token) for row in ids.tolist()]


def _token_lists(name, lists):
    where, lists = "AttentionMapCallback", string_list("AttentionMapCallback", name, lists, "lists")
    return [string_list(where, f"{name}[{n}]", tokens) for n, tokens in enumerate(lists)]
