"""The encoder of a sequence-to-sequence model: an embedding and a recurrent layer."""

# Keras passes shapes to `build` by the names of the call arguments.
# pyright: reportIncompatibleMethodOverride=false

from typing import Unpack

import keras

from keras_attention._spec import Spec, check_rate, check_seed, check_token, raise_value_error
from keras_attention._typing import LayerOptions, Tensor
from keras_attention.attention.checked_layer import CheckedLayer, check_directions, traced
from keras_attention.backend import ops

__all__ = ["RecurrentEncoder"]


@keras.saving.register_keras_serializable(package="keras_attention")
class RecurrentEncoder(CheckedLayer):
    """Embed ids and read them with a recurrent layer; an encoder for `Seq2Seq`.

        h, s = rnn(embedding(x)),    mask = (x != pad_token)

    The last states start the decoder. The two states of a bidirectional layer are concatenated. The
    decoder cell must then have 2 H units.

    Sizes: B samples, T steps, H units.

    Args:
        embedding: a layer from ids to vectors, such as `keras.layers.Embedding`.
        rnn: a recurrent layer with `return_sequences=True`, or `Bidirectional` of one. With
            `return_state=True` the states are returned too; otherwise the decoder starts from
            zeros.
        pad_token: the id of padding.
        dropout: the share of embedding features that training drops, in [0, 1).
        seed: an integer that makes dropout reproducible.

    Call arguments:
        source: `(B, T)` integers.
        training: whether dropout is active.

    Returns:
        `(memory, state, mask)`: memory `(B, T, H)` or `(B, T, 2 H)`; a list of states, or None;
        mask `(B, T)` boolean.

    Raises:
        ValueError: the recurrent layer returns no sequences; the source has another rank.

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

    # Keras casts ids where an input of its own was traced as floating point.
    CALL = Spec(
        "source: any[B T]",
        call="fit(source, target), generate(source, max_length) or encoder(source). For several "
        "sources, write an encoder that reads all of them",
    )

    def __init__(
        self,
        embedding: keras.layers.Layer,
        rnn: keras.layers.Layer,
        pad_token: int = 0,
        dropout: float = 0.0,
        seed: int | None = None,
        **kwargs: Unpack[LayerOptions],
    ) -> None:
        super().__init__(**kwargs)
        if not getattr(rnn, "return_sequences", False):
            expected = "`rnn` must be a recurrent layer with return_sequences=True"
            raise_value_error(self.name, expected, rnn)
        if getattr(rnn, "merge_mode", "concat") is None:
            raise ValueError(f"{self.name}: `rnn` must not have merge_mode=None; leave it out.")
        check_token(self.name, "pad_token", pad_token)
        check_directions(self.name, rnn)
        self.embedding, self.rnn = embedding, rnn
        self.pad_token = pad_token
        self.dropout = check_rate(self.name, "dropout", dropout)
        self.seed = check_seed(self.name, seed)
        self.drop = keras.layers.Dropout(dropout, seed=seed, dtype=self.dtype_policy)

    def build(self, source_shape: tuple[int, ...]) -> None:
        # It builds the layers inside, in the dtypes that they have.
        traced(lambda ids: self.call(ids, False), keras.KerasTensor(tuple(source_shape), "int32"))

    def call(
        self, source: Tensor, training: bool | None = None
    ) -> tuple[Tensor, list[Tensor] | None, Tensor]:
        mask = ops.not_equal(source, self.pad_token)
        vectors = self.drop(self.embedding(source), training=training)
        results = self.rnn(vectors, mask=mask, training=training)
        if not getattr(self.rnn, "return_state", False):
            return results, None, mask
        memory, *states = results
        if hasattr(self.rnn, "backward_layer"):
            half = len(states) // 2
            pairs = zip(states[:half], states[half:], strict=True)
            states = [keras.tree.map_structure(_concatenate, *pair) for pair in pairs]
        return memory, states, mask


def _concatenate(forward, backward):
    return ops.concatenate([forward, backward], axis=-1)
