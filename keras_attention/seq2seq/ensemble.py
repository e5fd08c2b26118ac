"""Ensembles: models that generate together."""

from typing import NoReturn, Unpack

import keras

from keras_attention._typing import LayerOptions, Nested, Tensor
from keras_attention.search import average_steps
from keras_attention.search.average_steps import average
from keras_attention.seq2seq._checks import check, check_pair
from keras_attention.seq2seq._generation import Generator
from keras_attention.seq2seq.model import Seq2Seq
from keras_attention.text import Tokenizer

__all__ = ["Ensemble"]


class EnsembleBase(Generator):
    """Models that generate together, and that are trained one by one."""

    start_token: int
    end_token: int
    pad_token: int
    source_text: Tokenizer | None
    target_text: Tokenizer | None

    def _take_tokens(self, models):
        """Set the tokens to those of the models, which must share them."""
        tokens = [(x.start_token, x.end_token, x.pad_token) for x in models]
        expected = "the models must have the same start_token, end_token and pad_token"
        check(type(self).__name__, len(set(tokens)) == 1, expected, tokens)
        self.start_token, self.end_token, self.pad_token = tokens[0]
        texts = [(x.source_text, x.target_text) for x in models]
        expected = "the models must have the same tokenizers"
        check(type(self).__name__, all(x == texts[0] for x in texts), expected, texts)
        self.source_text, self.target_text = texts[0]

    def fit(self, *args: object, **kwargs: object) -> NoReturn:
        """Raise an error: train the models one by one, and then join them."""
        raise ValueError(
            f"{self.name}: the models of an ensemble are trained one by one. Call "
            "model.fit(source, target) of each, and then join them."
        )

    train_on_batch = fit


@keras.saving.register_keras_serializable(package="keras_attention")
class Ensemble(EnsembleBase):
    """Generate with the average of the probabilities of several models.

        p(y[i] | y[<i], x) = 1/M sum_m p_m(y[i] | y[<i], x)

    Train the models one by one, for example with other seeds. It has `generate`, `log_probability`,
    `save` and `export_generate`, as `Seq2Seq` has.

    Args:
        models: a list of `Seq2Seq` models with the same tokens and vocabularies.

    Call arguments:
        inputs: the pair `(source, target)`, see `Seq2Seq`.
        training: has no effect.

    Returns:
        Log probabilities `(B, T, V)` of all tokens, also of the padding and the start token, which
        a search and `log_probability` leave out.

    Raises:
        ValueError: there is no model, or the models differ in their tokens.

    Example:
        >>> import keras, numpy
        >>> from keras_attention import AttentionRNN, BahdanauAttention, Ensemble
        >>> from keras_attention import RecurrentEncoder, Seq2Seq
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
        >>> models = [translator(), translator()]  # train each with `fit`
        >>> source = numpy.array([[3, 4, 5, 6]])
        >>> Ensemble(models).generate(source, max_length=6, beam_width=3).tokens.shape
        (1, 6)
    """

    _arguments = ("models",)

    def __init__(self, models: list[Seq2Seq], **kwargs: Unpack[LayerOptions]) -> None:
        super().__init__(**kwargs)
        models = list(models) if isinstance(models, (list, tuple)) else [models]
        right = models and all(isinstance(model, (Seq2Seq, Ensemble)) for model in models)
        expected = "`models` must be a list of Seq2Seq models, or of ensembles of them"
        check("Ensemble", right, expected, models)
        self._take_tokens(models)
        self.models = models

    def call(self, inputs: Nested, training: bool | None = None) -> Tensor:
        check_pair(self.name, inputs)
        return average([model(inputs, training=False) for model in self.models])[0]

    def start(self, source: Nested) -> tuple[Nested, Nested]:
        """Encode a source with every model. Return their states and their memories."""
        states, memories = zip(*(model.start(source) for model in self.models), strict=True)
        return states, memories

    def step(
        self, tokens: Tensor, state: Nested, memory: Nested
    ) -> tuple[Tensor, Nested, Tensor | None]:
        """Predict the next token by the average of all models, see `average_steps`."""
        return average_steps([model.step for model in self.models])(tokens, state, memory)

    def _members(self) -> list[Seq2Seq]:
        return [one for model in self.models for one in model._members()]

    def _memory_mask(self, memory):
        return self.models[0]._memory_mask(memory[0])

    def _log_distribution(self, source, target):
        distributions = [model._log_distribution(source, target) for model in self.models]
        return average(*zip(*distributions, strict=True))
