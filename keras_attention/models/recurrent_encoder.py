"""The encoder of a sequence-to-sequence model: an embedding and a recurrent layer."""

from typing import Any

import keras
from keras import ops

from keras_attention._checks import check_rate, described
from keras_attention._typing import Tensor

__all__ = ["RecurrentEncoder"]


@keras.saving.register_keras_serializable(package="keras_attention")
class RecurrentEncoder(keras.layers.Layer):
    """Embeds ids and reads them with a recurrent layer; an encoder for `Seq2Seq`.

        h, s = rnn(embedding(x)),    mask = (x != pad_token)

    The last states start the decoder. A bidirectional layer has two of each kind, which are joined:
    a decoder cell of 2 H units fits `Bidirectional(GRU(H, ...))`.

    Sizes: B samples, S steps, H units.

    Args:
        embedding: a layer from ids to vectors, such as `keras.layers.Embedding`.
        rnn: a recurrent layer with `return_sequences=True`, or `Bidirectional` of one. With
            `return_state=True` the states are returned too; otherwise the decoder starts from
            zeros.
        pad_token: the id of padding.
        dropout: fraction of the embedded ids dropped in training, in [0, 1).

    Call arguments:
        source: `(B, S)` integers.
        training: whether dropout is active.

    Returns:
        `(memory, state, mask)`: memory `(B, S, H)` or `(B, S, 2 H)`; a list of states, or None;
        mask `(B, S)` boolean.

    Raises:
        ValueError: the recurrent layer returns no sequences.

    Example:
        >>> import keras, numpy
        >>> from keras_attention import RecurrentEncoder
        >>> gru = keras.layers.GRU(7, return_sequences=True, return_state=True)
        >>> both = keras.layers.Bidirectional(gru)
        >>> encoder = RecurrentEncoder(keras.layers.Embedding(11, 5), both)
        >>> memory, state, mask = encoder(numpy.array([[3, 4, 0]]))
        >>> memory.shape, state[0].shape, mask.numpy().tolist()
        (TensorShape([1, 3, 14]), TensorShape([1, 14]), [[True, True, False]])
    """

    def __init__(
        self,
        embedding: keras.layers.Layer,
        rnn: keras.layers.Layer,
        pad_token: int = 0,
        dropout: float = 0.0,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        if not getattr(rnn, "return_sequences", False):
            raise ValueError(
                f"{self.name}: `rnn` must be a recurrent layer with return_sequences=True; "
                f"received {described(rnn)}."
            )
        self.embedding, self.rnn = embedding, rnn
        self.pad_token = pad_token
        self.dropout = check_rate(self.name, "dropout", dropout)
        self.drop = keras.layers.Dropout(dropout, dtype=self.dtype_policy)

    def build(self, source_shape: Any) -> None:
        # A call with symbolic ids builds the parts, in the dtypes that they have.
        self._read(keras.KerasTensor(tuple(source_shape), dtype="int32"), False)

    def call(
        self, source: Tensor, training: bool | None = None
    ) -> tuple[Tensor, list[Tensor] | None, Tensor]:
        return self._read(source, training)

    def _read(self, source, training):
        mask = ops.not_equal(source, self.pad_token)
        vectors = self.drop(self.embedding(source), training=training)
        found = self.rnn(vectors, mask=mask, training=training)
        if not getattr(self.rnn, "return_state", False):
            return found, None, mask
        memory, *states = found
        if hasattr(self.rnn, "backward_layer"):
            half = len(states) // 2
            pairs = zip(states[:half], states[half:], strict=True)
            states = [ops.concatenate(pair, axis=-1) for pair in pairs]
        return memory, states, mask

    def get_config(self) -> dict[str, Any]:
        return {
            **super().get_config(),
            "embedding": keras.saving.serialize_keras_object(self.embedding),
            "rnn": keras.saving.serialize_keras_object(self.rnn),
            "pad_token": self.pad_token,
            "dropout": self.dropout,
        }

    @classmethod
    def from_config(cls, config: dict[str, Any]) -> "RecurrentEncoder":
        parts = {x: keras.saving.deserialize_keras_object(config[x]) for x in ("embedding", "rnn")}
        return cls(**{**config, **parts})
