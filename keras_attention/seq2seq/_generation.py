"""The base of models that generate sequences."""

import inspect
import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import nullcontext
from typing import Any, NamedTuple, Self, Unpack

import keras
import numpy as np
from keras import tree

from keras_attention._spec import Description, check_choice, check_int, kind_of, raise_value_error
from keras_attention._typing import Config, LayerOptions, Nested, Tensor
from keras_attention.attention.checked_layer import (
    check_not_fixed,
    deserialized,
    record_holder,
    serialized,
)
from keras_attention.backend import ops, tree_map
from keras_attention.ops.masks import take_last, zero_masked
from keras_attention.search import SearchResult, beam_search, greedy_search, sample_search
from keras_attention.search.options import SearchOptions, split_options
from keras_attention.seq2seq._batches import (
    as_arrays,
    batches,
    concatenate_batches,
    pad_weights,
)
from keras_attention.seq2seq._checks import TARGET_IDS, check
from keras_attention.seq2seq._compiled_functions import CompiledFunctions
from keras_attention.seq2seq._export import check_export, texts_of, write_saved_model
from keras_attention.seq2seq._input_signature import (
    IDS,
    FirstCall,
    one_step,
    symbolic,
    with_fixed_sizes,
)
from keras_attention.seq2seq._text import to_ids, with_texts
from keras_attention.text import Tokenizer

LARGEST_BATCH = 2**16
SEARCHES = {"beam": beam_search, "greedy": greedy_search, "sample": sample_search}
BEAM_WIDTH = inspect.signature(beam_search).parameters["beam_width"].default
# Arguments of the searches that `generate` sets itself.
OWN = (
    *("step", "state", "memory", "start_token", "end_token", "max_length"),
    *("memory_mask", "steps", "states", "memories", "limit"),
)
SHORTEST_BUFFER = 32


class LogProbability(NamedTuple):
    """The log probabilities of targets, as `Seq2Seq.log_probability` returns them.

    Attributes:
        scores: `(B,)`, the sum of the tokens' log probabilities.
        log_probs: `(B, T)`, zero at padding and after the end token.
        weights: `(B, T, Tk)`, the attention weights with which each token was predicted, zero
            where log_probs are; a list of them for several memories, or None.

    Example:
        The perplexity of targets, here for a model to which all tokens are equally probable:

        >>> import keras, numpy
        >>> from keras_attention import AttentionRNN, LuongAttention, RecurrentEncoder, Seq2Seq
        >>> embedding = keras.layers.Embedding(6, 3)
        >>> encoder = keras.layers.GRU(3, return_sequences=True, return_state=True)
        >>> model = Seq2Seq(
        ...     RecurrentEncoder(embedding, encoder),
        ...     AttentionRNN(keras.layers.GRUCell(3), LuongAttention("dot")),
        ...     target_embedding=embedding,
        ...     head=keras.layers.Dense(6, kernel_initializer="zeros"),
        ...     start_token=1,
        ...     end_token=2,
        ... )
        >>> targets = numpy.array([[5, 4, 3, 2], [4, 2, 0, 0]])
        >>> result = model.log_probability(numpy.array([[3, 4], [5, 3]]), targets)
        >>> round(float(numpy.exp(-result.scores.sum() / (targets > 0).sum())), 3)
        4.0
    """

    scores: np.ndarray
    log_probs: np.ndarray
    weights: Nested


class Generator(keras.Model):
    """A model that generates with one of its searches.

    A subclass defines `start` and `step`, as the searches take them; `_memory_mask(memory)`, the
    mask `(B, Tk)` of a memory from `start`, or None; and `_log_distribution(source, target)`, the
    log probabilities `(B, T, V)` of the tokens of a target, and the weights.
    """

    start_token: int
    end_token: int
    pad_token: int
    _searches: Mapping[str, Callable] = SEARCHES
    # The arguments of the constructor, in the order in which a file loads them.
    _arguments: tuple[str, ...] = ()
    # A `Seq2Seq` sets this once, at its first call.
    _first_call: FirstCall | None = None
    source_text: Tokenizer | None = None
    target_text: Tokenizer | None = None
    _longest_target: int | None = None  # of training

    def __init__(self, **kwargs: Unpack[LayerOptions]) -> None:
        super().__init__(**kwargs)
        self._compiled_functions = CompiledFunctions()

    def __setattr__(self, name: str, value: object) -> None:
        if vars(self).get("built"):
            check_not_fixed(self, name)
        super().__setattr__(name, value)
        record_holder(self, value)

    def compile(self, *args: Any, **kwargs: Any) -> None:
        """Configure training; see `keras.Model.compile`. Drop the compiled searches."""
        super().compile(*args, **kwargs)
        self._compiled_functions.clear()

    def _members(self) -> list:
        """Return the models that are trained: this one, or those that an ensemble joins."""
        return [self]

    def _check_ids(self, source, target=None, name="target"):
        for model in self._members():
            model._check_ids(source, target, name)

    @property
    def _first(self) -> FirstCall:
        """Return the `FirstCall`, which all members share but for the mask."""
        self._check_called()
        return self._members()[0]._first_call

    @property
    def _cut_token(self):
        """Return the padding to cut off a source; None if an encoder returns no mask."""
        calls = [model._first_call for model in self._members()]
        return self.pad_token if all(call and call.masked for call in calls) else None

    def build(self, input_shape: object = None) -> None:
        """Make the weights for a source of ids `(batch, steps)`: call `build()`.

        With shapes, as Keras calls it, the first call makes them. Without this method, Keras would
        trace that call before, and print two warnings before our error if a layer is wrong.
        """
        if input_shape is None:
            self.compute_output_spec((symbolic(IDS), one_step(symbolic(IDS))))

    def get_build_config(self) -> Config | None:
        call = self._members()[0]._first_call
        longest = self._longest_target
        return None if call is None else {"signature": call.signature, "longest_target": longest}

    def build_from_config(self, config: Config) -> None:
        self._longest_target = config.get("longest_target")
        source, target = symbolic(config["signature"])
        self((with_fixed_sizes(source, self._members()[0].encoder), one_step(target)))

    def save(self, filepath: str | os.PathLike[str], *args: Any, **kwargs: Any) -> None:
        """Save the model; see `keras.Model.save`. An ensemble need not have been called."""
        config = self.get_build_config()
        if not self.built and config:  # otherwise Keras warns of a model without weights
            self.build_from_config(config)
        super().save(filepath, *args, **kwargs)

    def load_weights(
        self, filepath: str | os.PathLike[str], skip_mismatch: bool = False, **kwargs: object
    ) -> None:
        """Load weights into a model that was called or built; see `keras.Model.load_weights`."""
        self._check_called()
        super().load_weights(filepath, skip_mismatch, **kwargs)

    def _check_called(self):
        if not all(model._first_call for model in self._members()):
            raise ValueError(
                f"{self.name}: the model has no weights yet. Call build() first; or, if the source "
                "is not ids (batch, steps), call the model once."
            )

    def get_config(self) -> Config:
        own = {x: serialized(getattr(self, x)) for x in self._arguments}
        return {**super().get_config(), **own}

    @classmethod
    def from_config(
        cls, config: Config, custom_objects: Mapping[str, object] | None = None
    ) -> Self:
        # A subclass may make its layers itself.
        names = [name for name in cls._arguments if name in config]
        # An empty scope would hide the one around it.
        scope = (
            keras.saving.custom_object_scope(custom_objects) if custom_objects else nullcontext()
        )
        with scope:
            own = deserialized(config, names)
        return cls(**{**config, **own})

    def tokenize(self, source: Nested, target: Nested = None) -> tuple[Nested, Nested]:
        """Return padded ids of texts, with their end tokens, as the call of the model takes them.

        Lists of ids are padded, and everything else stays as it is. A right-to-left model trains on
        `reverse_tokens(target, model.end_token)` of such a target.
        """
        source, target, _ = to_ids(self, source, target)
        return source, target

    def search_batch(
        self,
        source: Nested,
        max_length: int,
        search: str = "beam",
        *,
        prefix: Tensor | None = None,
        **options: Any,
    ) -> SearchResult:
        """Search one batch. Call it inside your own `tf.function` or `jax.jit`.

        Args:
            source: one batch of what the encoder takes.
            max_length, search, prefix, options: see `generate`.

        Returns:
            The `SearchResult` of the search function.
        """
        self._check_search(search, max_length, None, options, prefix)
        return self._search(source, max_length, search, prefix=prefix, **options)

    def _search(self, source, max_length, search, prefix=None, **options):
        options |= {"start_token": self.start_token, "end_token": self.end_token}
        options |= {} if prefix is None else {"prefix": prefix}
        state, memory = self.start(source)
        return self._run(search, state, memory, {**options, "max_length": max_length})

    def _run(self, search, state, memory, options):
        """Call the function of a search."""
        if search == "beam":
            options["memory_mask"] = self._memory_mask(memory)
        return self._searches[search](self.step, state, memory, **options)

    def generate(
        self,
        source: Nested,
        max_length: int | None = None,
        search: str = "beam",
        *,
        n_best: int | None = None,
        prefix: Nested = None,
        batch_size: int = 64,
        **options: Any,
    ) -> Any:  # a `SearchResult` or a `TextResult`
        """Generate a target for every source.

        The search is compiled once for its options: a graph on TensorFlow, `jax.jit` on JAX. One
        compiled function serves all positive penalties, all temperatures, every `top_p` below 1,
        and all values of `max_length` up to the next power of two, at least 32. It reads the
        weights that the model has at the call. As for `fit` and `predict`, call `compile` after you
        have changed an attribute of a layer. Sources of similar length share a batch.

        Args:
            source: arrays of what the encoder takes. Integers `(B, S)` may be padded to any length;
                lists of ids are padded, also in a list or a dictionary of several sources. With a
                `source_text`, lists and arrays of strings too.
            max_length: L, the largest number of tokens, the end token included; a longer output is
                cut off. By default the length of the longest target that `fit` has seen.
            search: "beam", "greedy" or "sample".
            n_best: how many of the beams to return. By default the best one, without an axis.
            prefix: see `beam_search`; lists of ids are padded with -1. At most L ids each. With a
                `target_text`, strings too.
            batch_size: how many sources are searched at a time.
            options: arguments of the search; see `beam_search`, `greedy_search` and
                `sample_search`. Their defaults:
                "beam": `beam_width=5`, `length_penalty=1.0`, `coverage_penalty=0.0`,
                `coverage="gnmt"`.
                "sample": `samples=1`, `temperature=1.0`, `top_k=None`, `top_p=None`, `seed=None`.
                All: `min_length=0`, `no_repeat_ngram_size=0`, `logits_processors=()`.
                `seed` is an integer; None takes one from NumPy's global generator, which
                `keras.utils.set_random_seed` sets.

        Returns:
            `SearchResult` of NumPy arrays: tokens `(B, L)`, lengths and scores `(B,)`, weights
            `(B, L, Tk)`, of several memories a list. With `n_best`, and for "sample" with more than
            one of `samples`, an axis K follows the first. With a `target_text`, a `TextResult`,
            which has the texts too.
        """
        max_length = self._default_length(max_length)
        n_best = self._check_search(search, max_length, n_best, options, prefix)
        check_int(self.name, "batch_size", batch_size, most=LARGEST_BATCH)
        seed = options.pop("seed", None) if search == "sample" else 0  # others draw nothing
        ids = to_ids(self, source, prefix, prefix=True)
        arrays = self._arrays(ids.source, ids.target)
        free = None if arrays[1] is None else np.where(arrays[1] == -1, self.pad_token, arrays[1])
        self._check_ids(arrays[0], free, "prefix")
        # The compiled search cannot check values.
        shared = [options.get(name, 0) for name in ("min_length", "no_repeat_ngram_size")]
        tokens = self.start_token, self.end_token
        processors = options.get("logits_processors", ())
        SearchOptions(*tokens, max_length, *shared, prefix=arrays[1], logits_processors=processors)
        fixed, tensors = split_options(self._searches[search], options)
        size = max(SHORTEST_BUFFER, 2 ** (max_length - 1).bit_length())

        def run(arrays, seed, tensors):
            source, prefix = arrays
            own = {"seed": seed} if search == "sample" else {}
            options = {**fixed, **tensors, **own, "prefix": prefix}
            return tuple(best(self._search(source, size, search, **options), n_best))

        # The compiled function keeps the processors, so no other object gets the id of one.
        by_id = tuple(map(id, processors))
        key = "generate", search, size, n_best, by_id, repr(sorted(fixed.items()))
        tensors["limit"] = np.asarray(max_length, "int32")
        result = self._in_batches(run, SearchResult, key, arrays, batch_size, seed, tensors)
        result = result._replace(
            tokens=result.tokens[..., :max_length],
            weights=tree_map(lambda x: x[..., :max_length, :], result.weights),
            log_probs=result.log_probs[..., :max_length],
        )
        if self.target_text is None:
            return result
        return with_texts(self, result, ids._replace(source=arrays[0]))

    def _default_length(self, max_length):
        """Return `max_length`, or the length of the longest target of training."""
        if max_length is not None:
            return max_length
        longest = max((x._longest_target or 0 for x in self._members()), default=0)
        remedy = "Pass max_length=..., the largest number of tokens."
        check(self.name, longest, "`max_length` is needed: `fit` has seen no target", None, remedy)
        return longest

    def log_probability(
        self, source: Nested, target: Nested, *, batch_size: int = 64
    ) -> LogProbability:
        """Measure how probable targets are.

            log p(y | x) = sum_i log p(y[i] | y[<i], x)

        p is that of the search, in which the padding and the start token have no probability. So
        the scores of `generate` with `length_penalty=0` are these.

        Args:
            source: arrays of what the encoder takes, or texts.
            target: `(B, T)` ids, or texts. Padding does not count, nor does what follows the first
                end token, so the tokens of `generate` fit. Lists of ids are padded. Without its end
                token, a target counts as the beginning of any output.
            batch_size: how many pairs are measured at a time.

        Returns:
            `LogProbability` of NumPy arrays.
        """

        def run(pair, *_):
            source, target = pair
            target = ops.cast(target, "int32")
            log_probs, weights = self._log_distribution(source, target)
            ends = ops.cast(target == self.end_token, "int32")
            before_end = ops.cumsum(ends, axis=1) - ends == 0
            valid = ops.logical_and(ops.not_equal(target, self.pad_token), before_end)
            chosen = take_last(log_probs, ops.where(valid, target, self.end_token))
            chosen = ops.where(valid, chosen, 0.0)
            weights = tree_map(lambda x: zero_masked(x, valid), weights)
            return ops.sum(chosen, axis=-1), chosen, weights

        check_int(self.name, "batch_size", batch_size, most=LARGEST_BATCH)
        arrays = self._arrays(*to_ids(self, source, target)[:2])
        ids = isinstance(arrays[1], np.ndarray) and arrays[1].ndim == 2
        check(self.name, ids and kind_of(arrays[1].dtype) == "int", TARGET_IDS, arrays[1])
        self._check_ids(*arrays)
        if arrays[1].shape[1] == 0:  # no loop can run
            step = np.full((len(arrays[1]), 1), self.pad_token, arrays[1].dtype)
            score, *others = self.log_probability(source, step, batch_size=batch_size)
            return LogProbability(score, *tree_map(lambda x: x[:, :0], others))
        return self._in_batches(run, LogProbability, ("log_probability",), arrays, batch_size)

    def export_generate(
        self,
        path: str | os.PathLike[str],
        max_length: int | None = None,
        search: str = "beam",
        *,
        text: bool = True,
        tokenize: Callable | None = None,
        detokenize: Callable | None = None,
        tracked: Sequence[object] = (),
        n_best: int | None = None,
        **options: Any,
    ) -> None:
        """Write a SavedModel that generates, from ids to ids or from strings to strings.

        The SavedModel runs without keras. Its input is "source". Several inputs keep the keys of a
        dictionary, or the names of the inputs of a functional encoder; others are "source",
        "source_1" and so on. Sizes that the inputs of a functional encoder fix are fixed in the
        signature, except the batch. It returns a dictionary
        with the items of a `SearchResult`, and with `detokenize` also "texts". The weights of
        several memories are "weights_0", "weights_1" and so on. An earlier SavedModel is replaced
        when the new one is complete. Exporting needs the TensorFlow backend.

        Args:
            path: the folder: a new one, an empty one or a SavedModel.
            max_length, search, n_best, options: see `generate`.
            text: whether the tokenizers of the model are written too. False writes ids to ids.
            tokenize: a function from strings `(B,)` to what the encoder takes. By default that of
                `source_text`; without one the SavedModel takes ids.
            detokenize: a function from tokens `(N, L)` and lengths `(N,)` to strings `(N,)`. N is
                B, or B K with several outputs for each source: "texts" is then `(B, K)`. An output
                that does not exist has length 0. By default that of `target_text`.
            tracked: a list of the tables, tokenizers and layers that these functions use.
        """
        max_length = self._default_length(max_length)
        n_best = self._check_search(search, max_length, n_best, options)
        check_export(text, tokenize, detokenize, tracked)
        if text and tokenize is None and self.source_text is not None:
            copies = hasattr(self._members()[0].head, "max_extra")
            expected = "a head that copies words has no equal with texts in TensorFlow"
            remedy = "Export ids, text=False, and use an ExtendedVocabulary outside."
            check("export_generate", not copies, expected, Description(""), remedy)
            tokenize, _, tables = self.source_text.tensorflow_functions()
            tracked = [*tracked, *tables]
        if text and detokenize is None and self.target_text is not None:
            _, detokenize, tables = self.target_text.tensorflow_functions()
            tracked = [*tracked, *tables]

        def serve(source):
            if tokenize is not None:
                source = tokenize(source)
            searched = best(self.search_batch(source, max_length, search, **options), n_best)
            items = tree.flatten_with_path(searched._asdict())
            result = {"_".join(map(str, path)): x for path, x in items if x is not None}
            if detokenize is not None:
                result["texts"] = texts_of(detokenize, searched.tokens, searched.lengths)
            return result

        source, encoder = self._first.signature[0], self._members()[0].encoder
        sources = None if tokenize else with_fixed_sizes(symbolic(source, None), encoder)
        write_saved_model(path, serve, sources, [*self._members(), *tracked])

    def _check_search(self, search, max_length, n_best, options, prefix=None):
        """Check the arguments of a search. Return how many outputs to keep, or None for one."""
        check_int(self.name, "max_length", max_length)
        check_choice(self.name, "search", search, tuple(self._searches))
        allowed = [x for x in inspect.signature(self._searches[search]).parameters if x not in OWN]
        unknown = {*options, *["prefix"] * (prefix is not None)}.difference(allowed)
        if unknown:
            expected = f"the options of search={search!r} are {', '.join(allowed)}"
            raise_value_error(self.name, expected, Description(", ".join(sorted(unknown))))
        samples = check_int(self.name, "samples", options.get("samples", 1))
        most = check_int(self.name, "beam_width", options.get("beam_width", BEAM_WIDTH))
        if n_best is None:
            return samples if samples > 1 else None
        if search != "beam":
            expected = '`n_best` needs search="beam"'
            raise_value_error(self.name, expected, search, "Leave `n_best` out.")
        remedy = "`beam_width` is the largest `n_best`."
        return check_int(self.name, "n_best", n_best, 1, most, remedy)

    def _arrays(self, *arrays):
        """Convert a source and its target or prefix. One sample builds a new model."""
        arrays = as_arrays(self.name, arrays)
        if not all(model._first_call for model in self._members()):
            one = tree_map(lambda x: x[:1], arrays[0])
            self((one, np.full((1, 1), self.end_token)))
        source, (expected, _) = arrays[0], self._first.signature
        if isinstance(source, np.ndarray) and isinstance(expected, dict):
            cut = source.dtype.kind == "f" and "int" in expected.get("dtype", "")
            check(self.name, not cut, "the source must be integer ids, as in training", source)
        return arrays

    def _in_batches(self, run, kind, key, arrays, batch_size, seed=0, tensors=()):
        """Compile `run(batch, seed, tensors)`, call it on batches, and join the results.

        The results are `kind` tuples.
        """
        fixed = self._compiled_functions.fixed(self)
        key = key, tuple(x._compiled_functions.version for x in self._members())
        cut = list(batches(arrays, self._cut_token, batch_size, fixed))
        seed = np.random.randint(2**31) if seed is None else seed
        check_int(self.name, "seed", seed, 0, 2**63 - 1)
        seeds = np.random.default_rng(seed).integers(2**31 - 1, size=len(cut)).tolist()
        by_batch = []
        for (rows, batch), seed in zip(cut, seeds, strict=True):
            results = self._compiled_functions(
                self, key, run, (batch, np.asarray(seed, "int32"), tensors)
            )
            results = tree_map(ops.convert_to_numpy, kind(*results))
            if self._cut_token is not None:
                sources = batch[0], arrays[0]
                weights = tree_map(lambda x, y=sources: pad_weights(x, *y), results.weights)
                results = results._replace(weights=weights)
            by_batch.append((rows, results))
        return concatenate_batches(by_batch)


def best(result: SearchResult, n_best: int | None) -> SearchResult:
    """Return the best beam without its axis, or the `n_best` best."""
    if len(result.tokens.shape) == 2:
        return result
    index = 0 if n_best is None else slice(n_best)
    return tree_map(lambda x: x[:, index], result)
