"""An ensemble of models that write in opposite directions."""

from types import MappingProxyType
from typing import Unpack

import keras

from keras_attention._spec import raise_value_error
from keras_attention._typing import LayerOptions, Nested, Tensor
from keras_attention.backend import gather_rows, ops
from keras_attention.search import bidirectional_search, reverse_tokens
from keras_attention.search.reverse_tokens import reversed_positions
from keras_attention.seq2seq._checks import check, check_pair, check_targets
from keras_attention.seq2seq._generation import LogProbability
from keras_attention.seq2seq._text import to_ids
from keras_attention.seq2seq.ensemble import Ensemble, EnsembleBase
from keras_attention.seq2seq.model import Seq2Seq

__all__ = ["BidirectionalEnsemble"]


@keras.saving.register_keras_serializable(package="keras_attention")
class BidirectionalEnsemble(EnsembleBase):
    """Generate with two models that write in opposite directions (Liu et al., 2016).

        score(y) = (log p_l(y | x) + log p_r(y' | x)) / 2 / ((5 + len(y)) / 6) ** length_penalty

    y' is y in reverse order. `generate` searches with both models and ranks all outputs, see
    `bidirectional_search`. This takes several times as long as with one model. `search` must be
    "beam", without a prefix, a coverage penalty or logits processors, which would read the tokens
    of one model in reverse. `log_probability` returns the mean of both models.

    Train the right-to-left model on `reverse_tokens(targets, end_token)`, with the same sources. If
    its attention is monotonic, it must read from the end too: let its encoder reverse the source,
    `reverse_tokens(source, pad_token, pad_token)`.

    Sizes: B samples, T target steps, V tokens in the vocabulary.

    Args:
        left_to_right: a `Seq2Seq` or an `Ensemble`. It writes the first token first.
        right_to_left: a `Seq2Seq` or an `Ensemble` with the same vocabulary. It writes the tokens
            in reverse order, then the end token.

    Call arguments:
        inputs: the pair `(source, target)`, see `Seq2Seq`. The target is in reading order.
        training: has no effect.

    Returns:
        The means of the log probabilities of both models, `(B, T, V)`. Their exponentials do not
        sum to one.

    Raises:
        ValueError: a model is neither a `Seq2Seq` nor an `Ensemble`; the models differ in their
            tokens. `generate` raises it for a search other than "beam", a prefix, a coverage
            penalty or logits processors.

    Example:
        >>> import keras, numpy
        >>> from keras_attention import AttentionRNN, BahdanauAttention
        >>> from keras_attention.seq2seq import BidirectionalEnsemble
        >>> from keras_attention import RecurrentEncoder, Seq2Seq
        >>> from keras_attention.search import reverse_tokens
        >>> def translator():
        ...     gru = keras.layers.GRU(7, return_sequences=True, return_state=True)
        ...     return Seq2Seq(
        ...         RecurrentEncoder(keras.layers.Embedding(11, 5), gru),
        ...         AttentionRNN(keras.layers.GRUCell(7), BahdanauAttention(5)),
        ...         target_embedding=keras.layers.Embedding(13, 5),
        ...         head=keras.layers.Dense(13),
        ...         start_token=1,
        ...         end_token=2,
        ...     )
        >>> source, target = numpy.array([[3, 4, 5, 6]]), numpy.array([[7, 8, 9, 2]])
        >>> models = translator(), translator()
        >>> for model, order in zip(models, (target, reverse_tokens(target, 2))):
        ...     model.compile(keras.optimizers.Adam(0.05))
        ...     history = model.fit(source, order, epochs=30, verbose=0)
        >>> BidirectionalEnsemble(*models).generate(source, max_length=6).tokens.tolist()
        [[7, 8, 9, 2, 2, 2]]

    Reference: https://aclanthology.org/N16-1046.
    """

    _searches = MappingProxyType({"beam": bidirectional_search})

    _arguments = "left_to_right", "right_to_left"

    def __init__(
        self,
        left_to_right: Seq2Seq | Ensemble,
        right_to_left: Seq2Seq | Ensemble,
        **kwargs: Unpack[LayerOptions],
    ) -> None:
        super().__init__(**kwargs)
        models = left_to_right, right_to_left
        for name, model in zip(self._arguments, models, strict=True):
            if not isinstance(model, (Seq2Seq, Ensemble)):
                expected = f"`{name}` must be a Seq2Seq or an Ensemble"
                raise_value_error("BidirectionalEnsemble", expected, model)
        self._take_tokens(models)
        self.left_to_right, self.right_to_left = models

    def call(self, inputs: Nested, training: bool | None = None) -> Tensor:
        def measure(model, pair):
            return ops.log_softmax(ops.cast(model(pair, training=False), "float32")), None

        return self._both(measure, *check_pair(self.name, inputs))[0]

    def start(self, source: Nested) -> tuple[Nested, Nested]:
        """Encode a source with both models. Return their states and their memories."""
        self._check_vocabularies()
        starts = self.left_to_right.start(source), self.right_to_left.start(source)
        states, memories = zip(*starts, strict=True)
        return states, memories

    def log_probability(
        self, source: Nested, target: Nested, *, batch_size: int = 64
    ) -> LogProbability:
        """Measure how probable targets are: the mean of both models.

        Args:
            source, batch_size: see `Seq2Seq`.
            target: as for `Seq2Seq`, in reading order. Each needs its end token.

        Returns:
            `LogProbability` of NumPy arrays. The left-to-right model gives the weights.
        """
        source, target, _ = to_ids(self, source, target)
        check_targets(self, ops.convert_to_numpy(target))
        return super().log_probability(source, target, batch_size=batch_size)

    def _run(self, search, state, memory, options):
        steps = self.left_to_right.step, self.right_to_left.step
        return self._searches[search](steps, state, memory, **options)

    def _members(self) -> list[Seq2Seq]:
        return [*self.left_to_right._members(), *self.right_to_left._members()]

    def _log_distribution(self, source, target):
        return self._both(lambda model, pair: model._log_distribution(*pair), source, target)

    def _both(self, measure, source, target):
        """Return the mean log probabilities of both models, and the weights of the first."""
        target, tokens = ops.cast(target, "int32"), (self.end_token, self.pad_token)
        left, weights = measure(self.left_to_right, (source, target))
        right, _ = measure(self.right_to_left, (source, reverse_tokens(target, *tokens)))
        self._check_vocabularies()
        return (left + gather_rows(right, reversed_positions(target, *tokens))) / 2, weights

    def _check_vocabularies(self):
        calls = [model._first_call for model in self._members()]
        sizes = [call.vocabulary for call in calls if call]
        expected = "both models must have one vocabulary"
        check("BidirectionalEnsemble", len(set(sizes)) < 2, expected, sizes)
