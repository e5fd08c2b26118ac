"""Several models that generate together."""

from typing import Any, Self

import keras
from keras import ops

from keras_attention._spec import refuse
from keras_attention._typing import Nested, Tensor
from keras_attention.models._checks import check_pair
from keras_attention.models._generator import Generator
from keras_attention.models._stepper import Stepper
from keras_attention.search import average_steps

__all__ = ["Ensemble"]


@keras.saving.register_keras_serializable(package="keras_attention")
class Ensemble(Stepper):
    """Generates with the average of the probabilities of several models.

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

    def __init__(self, models: list[Stepper], **kwargs: Any) -> None:
        super().__init__(**kwargs)
        models = list(models) if isinstance(models, (list, tuple)) else [models]
        if not models or not all(isinstance(model, Stepper) for model in models):
            both = any(isinstance(model, Generator) for model in models)
            hint = "Make an Ensemble of each direction, and join these." if both else ""
            refuse("Ensemble", "`models` must be a list of Seq2Seq models", models, hint)
        tokens = [(x.start_token, x.end_token, x.pad_token) for x in models]
        if len(set(tokens)) > 1:
            expected = "the models must have the same start_token, end_token and pad_token"
            refuse("Ensemble", expected, tokens)
        self.models = models
        self.start_token, self.end_token, self.pad_token = tokens[0]

    def call(self, inputs: Any, training: bool | None = None) -> Tensor:
        check_pair(self.name, inputs)
        self._note_form(inputs)
        logits = [ops.cast(model(inputs, training=False), "float32") for model in self.models]
        return _mean([ops.log_softmax(x) for x in logits])

    def start(self, source: Nested) -> tuple[Nested, Nested]:
        """Encodes a source with every model. Returns their states and their memories."""
        states, memories = zip(*(model.start(source) for model in self.models), strict=True)
        return states, memories

    def step(
        self, tokens: Tensor, state: Nested, memory: Nested
    ) -> tuple[Tensor, Nested, Tensor | None]:
        """Predicts the next token by the average of all models, see `average_steps`."""
        return average_steps([model.step for model in self.models])(tokens, state, memory)

    @property
    def _cut_token(self):
        tokens = {model._cut_token for model in self.models}
        return tokens.pop() if len(tokens) == 1 else None

    def _members(self):
        return self.models

    @property
    def _vocabulary(self):
        sizes = [model._vocabulary for model in self.models]
        return None if None in sizes else sizes[0]

    def _memory_mask(self, memory):
        return self.models[0]._memory_mask(memory[0])

    def _distribution(self, source, target):
        found = [model._distribution(source, target) for model in self.models]
        log_probs, weights = zip(*found, strict=True)
        same = all(x is not None and x.shape == weights[0].shape for x in weights)
        return _mean(log_probs), sum(weights) / len(weights) if same else weights[0]

    def _form(self):
        return self.models[0]._form()

    def _source_names(self):
        return self.models[0]._source_names()

    def get_config(self) -> dict[str, Any]:
        models = [keras.saving.serialize_keras_object(model) for model in self.models]
        return {**super().get_config(), "models": models}

    @classmethod
    def from_config(cls, config: dict[str, Any], custom_objects: Any = None) -> Self:
        models = [
            keras.saving.deserialize_keras_object(x, custom_objects) for x in config["models"]
        ]
        return cls(**{**config, "models": models})


def _mean(log_probs):
    """The logarithm of the mean of probabilities."""
    return ops.logsumexp(ops.stack(list(log_probs)), axis=0) - ops.log(float(len(log_probs)))
