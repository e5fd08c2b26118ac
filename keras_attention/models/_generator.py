"""What a model that generates sequences offers, whatever it is made of."""

import abc
from typing import Any, NamedTuple

import numpy as np
from keras import ops

from keras_attention._checks import LAST_SEED, check_choice, check_positive_int
from keras_attention._typing import Nested, Tensor
from keras_attention.models._batches import as_arrays, batches, joined, padded, widened
from keras_attention.models._export import write_saved_model
from keras_attention.models._forms import KnownForm
from keras_attention.models._programs import Programs
from keras_attention.models._searches import SEARCHES, check_options
from keras_attention.search import SearchResult

LARGEST_BATCH = 2**16


class LogProbability(NamedTuple):
    """What `Seq2Seq.log_probability` returns.

    Attributes:
        scores: `(B,)`, the sum of the tokens' log probabilities.
        log_probs: `(B, T)`, zero at padding.
        weights: `(B, T, Tk)`, the attention weights with which each token was predicted, or None.
    """

    scores: np.ndarray
    log_probs: np.ndarray
    weights: np.ndarray | None


class Generator(KnownForm):
    """A model with a first state, a step and a distribution over targets, and so with a search."""

    start_token: int
    end_token: int
    pad_token: int

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(**kwargs)
        self._programs = Programs()

    @abc.abstractmethod
    def start(self, source: Nested) -> tuple[Nested, Nested]:
        """Encodes a source. Returns `(state, memory)`."""

    @abc.abstractmethod
    def step(
        self, tokens: Tensor, state: Nested, memory: Nested
    ) -> tuple[Tensor, Nested, Tensor | None]:
        """Predicts the next token. Returns `(logits, state, weights)`."""

    @abc.abstractmethod
    def _memory_mask(self, memory):
        """The mask `(B, Tk)` of a memory from `start`, or None."""

    @abc.abstractmethod
    def _distribution(self, source, target):
        """Log probabilities `(B, T, V)` of the tokens of a target, and the weights."""

    def search(
        self,
        source: Nested,
        max_length: int,
        search: str = "beam",
        prefix: Tensor | None = None,
        **options: Any,
    ) -> SearchResult:
        """Searches in one batch. Call it inside your own `tf.function` or `jax.jit`.

        Args:
            source: one batch of what the encoder takes.
            max_length, search, prefix, options: see `generate`.

        Returns:
            The `SearchResult` of the search function.
        """
        state, memory = self.start(source)
        if search == "beam":
            options["memory_mask"] = self._memory_mask(memory)
        return SEARCHES[search](
            self.step,
            state,
            memory,
            start_token=self.start_token,
            end_token=self.end_token,
            max_length=max_length,
            **({} if prefix is None else {"prefix": prefix}),
            **options,
        )

    def generate(
        self,
        source: Nested,
        max_length: int,
        search: str = "beam",
        *,
        n_best: int | None = None,
        prefix: Any = None,
        batch_size: int = 64,
        **options: Any,
    ) -> SearchResult:
        """Generates a target for every source.

        The search is compiled once for its options: a graph on TensorFlow, `jax.jit` on JAX. After
        more training it uses the new weights. Sources of similar length share a batch.

        Args:
            source: arrays of what the encoder takes. Integers `(B, S)` may be padded to any length;
                lists of ids are padded.
            max_length: L, the largest number of tokens, the end token included.
            search: "beam", "greedy" or "sample".
            n_best: how many of the beams to return. By default the best one, without an axis.
            prefix: see `beam_search`.
            batch_size: how many sources are searched at a time.
            options: arguments of `beam_search`, `greedy_search` or `sample_search`, such as
                `beam_width=5`.

        Returns:
            `SearchResult` of NumPy arrays: tokens `(B, L)`, lengths and scores `(B,)`, weights
            `(B, L, S)`. With `n_best`, or for "sample" with `samples`, an axis K follows the first.
        """
        kept = self._check_search(search, max_length, n_best, options)
        check_positive_int(self.name, "batch_size", batch_size, LARGEST_BATCH)
        seed = options.pop("seed", None)
        if search == "sample" and seed is None:
            seed = np.random.randint(LAST_SEED)

        def run(given, seed):
            source, prefix = given
            own = {"seed": seed} if search == "sample" else {}
            found = self.search(source, max_length, search, prefix, **options, **own)
            return tuple(_best(found, kept))

        key = ("generate", search, max_length, kept, *sorted(options.items()))
        return self._in_batches(run, SearchResult, key, (source, prefix), batch_size, seed)

    def log_probability(
        self, source: Nested, target: Any, *, batch_size: int = 64
    ) -> LogProbability:
        """Measures how probable targets are.

            log p(y | x) = sum_i log p(y[i] | y[<i], x)

        Args:
            source: arrays of what the encoder takes.
            target: `(B, T)` ids with their end tokens, then padding; lists of ids are padded.
            batch_size: how many pairs are measured at a time.

        Returns:
            `LogProbability` of NumPy arrays.
        """

        def run(pair, _):
            source, target = pair
            target = ops.cast(target, "int32")
            log_probs, weights = self._distribution(source, target)
            chosen = ops.take_along_axis(log_probs, ops.expand_dims(target, -1), axis=-1)
            valid = ops.not_equal(target, self.pad_token)
            chosen = ops.where(valid, ops.squeeze(chosen, -1), 0.0)
            return ops.sum(chosen, axis=-1), chosen, weights

        key = ("log_probability",)
        return self._in_batches(run, LogProbability, key, (source, target), batch_size)

    def export_generate(
        self,
        path: Any,
        max_length: int,
        search: str = "beam",
        *,
        tokenize: Any = None,
        detokenize: Any = None,
        tracked: tuple = (),
        **options: Any,
    ) -> None:
        """Writes a SavedModel that generates, from ids to ids or from strings to strings.

        The SavedModel runs without keras. It returns a dictionary of "tokens" `(B, L)`, "lengths",
        "scores" and "weights", and with `detokenize` of "texts". An earlier folder is replaced when
        the new one is complete. It needs the TensorFlow backend.

        Args:
            path: the folder.
            max_length, search, options: see `generate`.
            tokenize: a function from strings `(B,)` to what the encoder takes. By default the
                SavedModel takes ids.
            detokenize: a function from `(tokens, lengths)` to strings `(B,)`.
            tracked: the tables and tokenizers that these functions use.
        """
        self._check_search(search, max_length, None, options)

        def serve(source):
            source = source if tokenize is None else tokenize(source)
            found = _best(self.search(source, max_length, search, **options), None)
            result = {name: x for name, x in found._asdict().items() if x is not None}
            if detokenize is not None:
                result["texts"] = detokenize(found.tokens, found.lengths)
            return result

        form = None if tokenize is not None else self._form()
        write_saved_model(path, serve, form, [self, *tracked])

    def _check_search(self, search, max_length, n_best, options):
        """Checks the arguments of a search. Returns how many beams to keep."""
        check_choice(self.name, "search", search, tuple(SEARCHES))
        check_positive_int(self.name, "max_length", max_length)
        check_options(self.name, search, options)
        if n_best is None:
            return options.get("samples") if search == "sample" else None
        check_positive_int(self.name, "n_best", n_best)
        width = options.get("beam_width", 5)
        if search != "beam" or n_best > width:
            raise ValueError(
                f'{self.name}: `n_best` goes with search="beam" and is at most `beam_width`; '
                f"received {n_best} with search={search!r} and beam_width={width}."
            )
        return n_best

    def _in_batches(self, run, kind, key, given, batch_size, seed=None):
        """Runs a compiled function on batches, and joins its results, tuples of this kind."""
        given = as_arrays(self.name, tuple(padded(x, self.pad_token) for x in given))
        found = []
        fixed = self._programs.fixed(self)
        for rows, batch in batches(given, self.pad_token, batch_size, fixed):
            results = self._programs(self, key, run, batch, (seed or 0) + len(found))
            results = kind(*(None if x is None else ops.convert_to_numpy(x) for x in results))
            found.append((rows, results._replace(weights=widened(results.weights, given[0]))))
        return kind(*joined(found))


def _best(found, kept):
    """The best beam without its axis, or the `kept` best."""
    if len(found.tokens.shape) == 2:
        return found
    index = 0 if kept is None else slice(kept)
    return SearchResult(*(x if x is None else x[:, index] for x in found))
