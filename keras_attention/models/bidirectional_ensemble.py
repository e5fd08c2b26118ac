"""Models that write from left to right, with models that write from right to left."""

from types import MappingProxyType
from typing import Any, Self

import keras
from keras import ops

from keras_attention._checks import described
from keras_attention._typing import Nested, Tensor
from keras_attention.models._checks import check_pair
from keras_attention.models._generator import Generator
from keras_attention.models.ensemble import Ensemble
from keras_attention.models.seq2seq import Seq2Seq
from keras_attention.ops._samples import take_rows
from keras_attention.search import bidirectional_search, reverse_tokens
from keras_attention.search.reversal import reversed_places

__all__ = ["BidirectionalEnsemble"]

PARTS = "forward", "backward"


@keras.saving.register_keras_serializable(package="keras_attention")
class BidirectionalEnsemble(Generator):
    """Generates what a forward model and a backward model agree on (Liu et al., 2016).

        score(y) = (log p_f(y | x) + log p_b(y' | x)) / 2 / ((5 + len(y)) / 6) ** length_penalty

    y' is y in reverse order. `generate` searches with both models and ranks what they find, see
    `bidirectional_search`. It takes about four times as long as the search of one model. Often two
    models are better this way than four in one direction, because they make different mistakes.

    Train the backward model on `reverse_tokens(targets, end_token)`, with the same sources. If
    its attention is monotonic, it must read from the end too: let its encoder reverse the source,
    `reverse_tokens(source, pad_token, pad_token)`.

    Args:
        forward: a `Seq2Seq` or an `Ensemble`. It writes from left to right.
        backward: a `Seq2Seq` or an `Ensemble` with the same tokens. It writes from right to left.

    Call arguments:
        inputs: the pair `(source, target)`, see `Seq2Seq`. The target is in reading order.
        training: has no effect.

    Returns:
        The means of the log probabilities of both models, `(B, T, V)`. Their exponentials do not
        sum to one.

    Raises:
        ValueError: a model is something else, or the models differ in their tokens. `generate`
            raises it for another search than "beam", a prefix or a coverage penalty.

    Example:
        >>> import keras, numpy
        >>> from keras_attention import AttentionRNN, BahdanauAttention, BidirectionalEnsemble
        >>> from keras_attention import RecurrentEncoder, Seq2Seq, reverse_tokens
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
        >>> forward, backward = translator(), translator()
        >>> for model, order in ((forward, target), (backward, reverse_tokens(target, 2))):
        ...     model.compile(keras.optimizers.Adam(0.05))
        ...     history = model.fit(source, order, epochs=30, verbose=0)
        >>> BidirectionalEnsemble(forward, backward).generate(source, max_length=6).tokens.tolist()
        [[7, 8, 9, 2, 2, 2]]

    Reference: https://aclanthology.org/N16-1046.
    """

    _searches = MappingProxyType({"beam": bidirectional_search})

    def __init__(self, forward: Generator, backward: Generator, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        for name, model in (("forward", forward), ("backward", backward)):
            if not isinstance(model, (Seq2Seq, Ensemble)):
                raise ValueError(
                    f"BidirectionalEnsemble: `{name}` must be a Seq2Seq or an Ensemble; received "
                    f"{described(model)}."
                )
        tokens = [(x.start_token, x.end_token, x.pad_token) for x in (forward, backward)]
        if tokens[0] != tokens[1]:
            raise ValueError(
                "BidirectionalEnsemble: both models must have the same start_token, end_token and "
                f"pad_token; received {tokens}."
            )
        self.forward, self.backward = forward, backward
        self.start_token, self.end_token, self.pad_token = tokens[0]
        self.built = forward.built and backward.built  # it has no weights of its own

    def call(self, inputs: Any, training: bool | None = None) -> Tensor:
        self._note_form(inputs)

        def measure(model, *pair):
            return ops.log_softmax(ops.cast(model(pair), "float32")), None

        return self._both(measure, *check_pair(inputs))[0]

    def start(self, source: Nested) -> tuple[Nested, Nested]:
        """Encodes a source with both models. Returns their states and their memories."""
        found = self.forward.start(source), self.backward.start(source)
        states, memories = zip(*found, strict=True)
        return states, memories

    @property
    def step(self) -> tuple:
        """The steps of both models, as `bidirectional_search` takes them."""
        return self.forward.step, self.backward.step

    @property
    def _cut_token(self):
        tokens = {self.forward._cut_token, self.backward._cut_token}
        return tokens.pop() if len(tokens) == 1 else None

    @property
    def _vocabulary(self):
        return self.forward._vocabulary

    def _memory_mask(self, memory):
        return None

    def _distribution(self, source, target):
        def measure(model, *pair):
            return model._distribution(*pair)

        return self._both(measure, source, ops.cast(target, "int32"))

    def _both(self, measure, source, target):
        """The mean of the log probabilities of both models, and the weights of the first."""
        tokens = self.end_token, self.pad_token
        ahead, weights = measure(self.forward, source, target)
        back, _ = measure(self.backward, source, reverse_tokens(target, *tokens))
        return (ahead + take_rows(back, reversed_places(target, *tokens))) / 2, weights

    def _form(self):
        return self.forward._form()

    def get_config(self) -> dict[str, Any]:
        parts = {n: keras.saving.serialize_keras_object(getattr(self, n)) for n in PARTS}
        return {**super().get_config(), **parts}

    @classmethod
    def from_config(cls, config: dict[str, Any], custom_objects: Any = None) -> Self:
        parts = {n: keras.saving.deserialize_keras_object(config[n], custom_objects) for n in PARTS}
        return cls(**{**config, **parts})
