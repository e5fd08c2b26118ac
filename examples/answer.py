"""Question answering by attention flow (BiDAF; Seo, Kembhavi, Farhadi and Hajishirzi, 2017).

    python examples/answer.py

learns to answer questions about generated passages ("Where was Mira Solberg born?"), beside the
same model without attention, in about five minutes on two cores; at least 95% of the answers about
unseen passages come out exactly right. It writes the predictions, a picture of the attention, a
`.keras` file and a SavedModel from strings to strings, which a process without keras then runs.

    python examples/answer.py --data DIR --steps 6000

does the same on SQuAD v1.1: DIR holds `train-v1.1.json` and `dev-v1.1.json`; with `--data download`
the official files are downloaded. All questions of the dev file are scored by exact match and F1,
as the official evaluation does it. `--vectors glove.6B.100d.txt` starts from word vectors that stay
fixed. A run that was stopped, by Ctrl-C or a kill, goes on when it is started again with the same
arguments. Measured figures are in docs/results.md.
"""

import argparse
import collections
import contextlib
import json
import os
import pathlib
import signal
import sys
import time
from typing import NamedTuple

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import keras
import numpy as np
import passages
import squad
import tensorflow as tf
from batching import bucketed
from checkpoint import Checkpoint, fingerprint, reseed, write_text
from extras import check_extras
from keras import layers, ops
from schedules import warmup_cosine
from serving import ask_saved_model, write_saved_model

from keras_attention import BiDAFAttentionFlow

FLOWS = ("both", "context-to-query", "query-to-context", "none")
FILES = ("train-v1.1.json", "dev-v1.1.json")
SOURCE = "https://rajpurkar.github.io/SQuAD-explorer/dataset/"
# Characters of a word that are looked at.
WORD_LENGTH = 16
# Words that are not in the vocabulary share this many vectors, by their hash.
UNKNOWN_WORDS = 1000
# A start or end where there is no word, in float32.
NOWHERE = -1e30
# A program compiled by XLA has fixed shapes: few of them there.
STEP = 8 if keras.backend.backend() == "tensorflow" else 64


# --- text ----------------------------------------------------------------------------------------


def tokenize(texts):
    """Words, numbers and single signs of each text: ragged tokens, first byte and end byte."""
    import tensorflow_text

    return tensorflow_text.regex_split_with_offsets(
        texts,
        delim_regex_pattern=r"[\s\p{Z}]+|[^\s\p{Z}\p{L}\p{M}\p{N}]",
        keep_delim_regex_pattern=r"[^\s\p{Z}\p{L}\p{M}\p{N}]",
    )


class Vocabulary(tf.Module):
    """Tokens to ids, inside TensorFlow, so that a SavedModel can do it.

    Words are taken in lower case, characters as they are; 0 is padding. Words that are not in the
    vocabulary share `UNKNOWN_WORDS` ids by their hash, so that most of them keep an identity.

    Args:
        words, characters: lists of strings; the first has the id 1.
    """

    def __init__(self, words, characters):
        super().__init__()
        self.words = _table(words, default=-1)
        self.characters = _table(characters, default=1 + len(characters))
        self.known = len(words)
        self.sizes = 1 + len(words) + UNKNOWN_WORDS, 2 + len(characters)

    def __call__(self, tokens):
        """Flat tokens `(N,)` to ids of words `(N,)` and of characters `(N, WORD_LENGTH)`."""
        words = tf.strings.lower(tokens, encoding="utf-8")
        ids = self.words.lookup(words)
        unknown = 1 + self.known + tf.strings.to_hash_bucket_fast(words, UNKNOWN_WORDS)
        characters = tf.strings.unicode_split(tokens, "UTF-8")
        characters = tf.ragged.map_flat_values(self.characters.lookup, characters)
        characters = characters.to_tensor(0, shape=(None, WORD_LENGTH))
        return tf.cast(tf.where(ids < 0, unknown, ids), "int32"), tf.cast(characters, "int32")


def _table(keys, default):
    # TensorFlow takes no empty table; no token is the empty string.
    keys = [*keys, ""]
    numbers = tf.range(1, len(keys) + 1, dtype="int64")
    pairs = tf.lookup.KeyValueTensorInitializer(tf.constant(keys, "string"), numbers)
    return tf.lookup.StaticHashTable(pairs, default)


def count_tokens(texts):
    """How often each word, in lower case, and each character occurs: two Counters of strings."""
    words, characters = collections.Counter(), collections.Counter()
    for part in _parts(texts):
        tokens = tokenize(part)[0].flat_values
        words.update(tf.strings.lower(tokens, encoding="utf-8").numpy().tolist())
        characters.update(tf.strings.unicode_split(tokens, "UTF-8").flat_values.numpy().tolist())
    return [collections.Counter({k.decode(): n for k, n in c.items()}) for c in (words, characters)]


def learn_vocabulary(texts, size, vectors=None):
    """The `size` most frequent words that occur twice or have a vector, and all characters.

    Returns a `Vocabulary` and the list of its words.
    """
    words, characters = count_tokens(texts)
    known = vectors or {}
    words = [word for word, count in words.most_common() if count > 1 or word in known]
    characters = [character for character, _ in characters.most_common()]
    return Vocabulary(words[:size], characters), words[:size]


class Encoded(NamedTuple):
    """Tokens of many texts in one row; those of text n are from splits[n] to splits[n + 1].

    words, starts, ends: `(N,)`, ids and byte offsets. characters: `(N, WORD_LENGTH)`.
    """

    words: np.ndarray
    characters: np.ndarray
    starts: np.ndarray
    ends: np.ndarray
    splits: np.ndarray

    @property
    def lengths(self):
        return np.diff(self.splits)

    def tokens(self, n):
        return slice(self.splits[n], self.splits[n + 1])

    def padded(self, index):
        """Ids of words `(B, T)` and of characters `(B, T, WORD_LENGTH)` of some of the texts."""
        longest = max(1, self.lengths[index].max(initial=1))
        shape = len(index), -(-longest // STEP) * STEP
        words = np.zeros(shape, "int32")
        characters = np.zeros((*shape, WORD_LENGTH), "int32")
        for row, n in enumerate(index):
            tokens = self.tokens(n)
            words[row, : self.lengths[n]] = self.words[tokens]
            characters[row, : self.lengths[n]] = self.characters[tokens]
        return words, characters


def encode(texts, vocabulary):
    parts = []
    for part in _parts(texts):
        tokens, starts, ends = tokenize(part)
        words, characters = vocabulary(tokens.flat_values)
        flat = (words, characters, starts.flat_values, ends.flat_values, tokens.row_lengths())
        parts.append([x.numpy() for x in flat])
    *columns, lengths = (np.concatenate(column) for column in zip(*parts, strict=True))
    return Encoded(*columns, np.concatenate([[0], np.cumsum(lengths)]))


def _parts(texts, size=1000):
    for start in range(0, len(texts), size):
        yield tf.constant(texts[start : start + size])


# --- data ----------------------------------------------------------------------------------------


class Questions(NamedTuple):
    """Encoded questions about encoded passages.

    passage_of: `(Q,)`, the number of the passage of each question. spans: `(Q, 2)`, the first and
    the last token of the answer, zeros in a test set.
    """

    examples: list
    passages: Encoded
    questions: Encoded
    passage_of: np.ndarray
    spans: np.ndarray

    def inputs(self, index):
        return [*self.passages.padded(self.passage_of[index]), *self.questions.padded(index)]

    def batches(self, size, order=None):
        lengths = [self.questions.lengths, self.passages.lengths[self.passage_of]]
        return bucketed(np.transpose(lengths), size, order)


def prepare(examples, vocabulary, limits=None):
    """Encodes examples; for training with `limits`, the largest numbers of tokens in a passage and
    a question. Returns `Questions` and a Counter of what was left out."""
    texts = list(dict.fromkeys(example.passage for example in examples))
    numbers = {text: n for n, text in enumerate(texts)}
    passage_of = np.array([numbers[example.passage] for example in examples])
    data = Questions(
        examples,
        encode(texts, vocabulary),
        encode([example.question for example in examples], vocabulary),
        passage_of,
        np.zeros((len(examples), 2), "int32"),
    )
    if limits is None:
        return data, collections.Counter()
    left_out, kept = collections.Counter(), []
    for n, example in enumerate(examples):
        data.spans[n] = first, last = find_span(example, data.passages, passage_of[n])
        if data.passages.lengths[passage_of[n]] > limits[0]:
            left_out[f"passage of more than {limits[0]} tokens"] += 1
        elif data.questions.lengths[n] > limits[1]:
            left_out[f"question of more than {limits[1]} tokens"] += 1
        elif data.questions.lengths[n] == 0:
            left_out["question without a word"] += 1
        elif last < first:
            left_out["answer without a word"] += 1
        else:
            kept.append(n)
    if not kept:
        raise SystemExit(f"no question is left to train on: {describe(left_out)}")
    if left_out:
        examples = [examples[n] for n in kept]
        questions = encode([example.question for example in examples], vocabulary)
        data = Questions(examples, data.passages, questions, passage_of[kept], data.spans[kept])
    return data, left_out


def find_span(example, passages, number):
    """The first and the last token that share a byte with the answer."""
    begin = len(example.passage[: example.start].encode())
    end = begin + len(example.answers[0].encode())
    tokens = passages.tokens(number)
    first = np.searchsorted(passages.ends[tokens], begin, side="right")
    last = np.searchsorted(passages.starts[tokens], end, side="left") - 1
    return first, last


def describe(counter):
    return ", ".join(f"{count:,} with {reason}" for reason, count in counter.items())


def read_vectors(path, wanted):
    """A GloVe text file: a dictionary of the words in `wanted` to `(d,)`."""
    found, width = {}, None
    try:
        with open(path, encoding="utf-8") as lines:
            for number, line in enumerate(lines, 1):
                word, *numbers = line.rstrip("\n").split(" ")
                width = width or len(numbers)
                if len(numbers) != width or width < 2:
                    raise SystemExit(
                        f"{path}, line {number}: expected a word and {max(width, 2)} numbers with "
                        f"single spaces between, found {len(numbers)}. Nothing was written."
                    )
                if word in wanted:
                    try:
                        found[word] = np.array(numbers, "float32")
                    except ValueError as error:
                        raise SystemExit(
                            f"{path}, line {number}: {error}. Nothing was written."
                        ) from error
    except OSError as error:
        raise SystemExit(f"{path}: {error.strerror}. Nothing was written.") from error
    except UnicodeDecodeError as error:
        raise SystemExit(f"{path}: not UTF-8 ({error}). Nothing was written.") from error
    if not found:
        raise SystemExit(f"{path}: holds none of the words of the training data.")
    return found


# --- model ---------------------------------------------------------------------------------------


@keras.saving.register_keras_serializable("answer")
class CharacterCNN(layers.Layer):
    """A vector of each word from its characters: filters of five, and the maximum of each.

    Takes ids `(B, T, WORD_LENGTH)`, 0 behind the end of a word; returns `(B, T, filters)` with a
    mask: a `Concatenate` takes an input without one for a word everywhere.
    """

    def __init__(self, size, filters, dropout, **kwargs):
        super().__init__(**kwargs)
        self.size, self.filters, self.rate = size, filters, dropout
        normal = keras.initializers.RandomNormal(stddev=0.5)
        self.embedding = layers.Embedding(
            size, 8, embeddings_initializer=normal, dtype=self.dtype_policy
        )
        self.convolution = layers.Conv2D(
            filters, (1, 5), activation="relu", dtype=self.dtype_policy
        )
        self.dropout = layers.Dropout(dropout, dtype=self.dtype_policy)

    def build(self, input_shape):
        for layer, shape in ((self.embedding, input_shape), (self.convolution, (*input_shape, 8))):
            if not layer.built:
                layer.build(shape)

    def call(self, inputs, training=None):
        letters = self.dropout(self.embedding(inputs), training=training)
        return ops.max(self.convolution(letters), axis=2)

    def compute_mask(self, inputs, mask=None):
        return ops.not_equal(inputs[:, :, 0], 0)

    def get_config(self):
        own = {"size": self.size, "filters": self.filters, "dropout": self.rate}
        return {**super().get_config(), **own}


@keras.saving.register_keras_serializable("answer")
class Highway(layers.Layer):
    """y = t * relu(W x + b) + (1 - t) * x, t = sigmoid(W_t x + b_t) (Srivastava et al., 2015)."""

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.supports_masking = True

    def build(self, input_shape):
        size = input_shape[-1]
        self.transform = layers.Dense(size, activation="relu", dtype=self.dtype_policy)
        # Begins by letting most of the word through.
        bias = keras.initializers.Constant(-2.0)
        self.gate = layers.Dense(
            size, activation="sigmoid", bias_initializer=bias, dtype=self.dtype_policy
        )
        for layer in (self.transform, self.gate):
            layer.build(input_shape)

    def call(self, inputs):
        gate = self.gate(inputs)
        return gate * self.transform(inputs) + (1 - gate) * inputs


@keras.saving.register_keras_serializable("answer")
class AverageQuestion(layers.Layer):
    """Without attention: every word h of the passage sees the average u of the question.

    G = [h; u; h * u]
    """

    def __init__(self, **kwargs):
        super().__init__(**kwargs)
        self.supports_masking = True

    def call(self, context, query, query_mask=None):
        valid = ops.cast(ops.expand_dims(query_mask, 2), query.dtype)
        average = ops.sum(query * valid, axis=1, keepdims=True)
        average = average / ops.maximum(ops.sum(valid, axis=1, keepdims=True), 1)
        average = average + ops.zeros_like(context)
        return ops.concatenate([context, average, context * average], axis=-1)


@keras.saving.register_keras_serializable("answer")
class SpanSearch(layers.Layer):
    """The span k .. l of at most `limit` tokens with the largest p1[k] p2[l].

    Takes the logits of start and end, `(B, T)` each; returns k, l and the product, `(B,)` each.
    """

    def __init__(self, limit, **kwargs):
        super().__init__(**kwargs)
        self.limit = limit

    def call(self, start, end):
        scores = ops.expand_dims(ops.log_softmax(start), 2) + ops.expand_dims(
            ops.log_softmax(end), 1
        )
        steps = ops.arange(ops.shape(start)[1])
        length = ops.expand_dims(steps, 0) - ops.expand_dims(steps, 1) + 1
        allowed = ops.logical_and(length >= 1, length <= self.limit)
        scores = ops.where(allowed, scores, ops.cast(-float("inf"), scores.dtype))
        scores = ops.reshape(scores, (ops.shape(start)[0], -1))
        best = ops.argmax(scores, axis=1)
        steps = ops.cast(ops.shape(start)[1], best.dtype)
        return best // steps, best % steps, ops.exp(ops.max(scores, axis=1))

    def get_config(self):
        return {**super().get_config(), "limit": self.limit}


def build_model(sizes, units, flow, dropout, max_answer, vectors=None):
    """The model of the paper.

    Args:
        sizes: how many ids of words and of characters there are.
        units: d; also the width of words without `vectors`, and the number of character filters.
        flow: one of `FLOWS`.
        vectors: `(words, width)`, fixed; or None, and vectors of width d are learned.

    Returns:
        Two models on the same four inputs, ids of the passage's words and characters and of the
        question's: the one to train, to the logits of start and end; and the one that answers, to
        a dictionary of start, end, probability and the weights of the attention.
    """
    inputs = [
        keras.Input(shape, dtype="int32", name=f"{text}_{kind}")
        for text in ("passage", "question")
        for kind, shape in (("words", (None,)), ("characters", (None, WORD_LENGTH)))
    ]
    words = layers.Embedding(
        sizes[0],
        units if vectors is None else vectors.shape[1],
        # As wide as word vectors are; from the default of Keras, within +-0.05, little is learned.
        embeddings_initializer=keras.initializers.RandomNormal(stddev=1.0),
        mask_zero=True,
        name="words",
    )
    characters = CharacterCNN(sizes[1], units, dropout, name="characters")
    highways = [Highway(name=f"highway_{n}") for n in (1, 2)]
    contextual = bilstm(units, "contextual")

    def embed(word, character):
        x = layers.Concatenate()([words(word), characters(character)])
        for highway in highways:
            x = highway(x)
        return contextual(layers.Dropout(dropout)(x))

    context, query = embed(*inputs[:2]), embed(*inputs[2:])
    found = {}
    if flow == "none":
        merged = AverageQuestion(name="average")(context, query)
    else:
        merged, weights = BiDAFAttentionFlow(
            query_to_context=flow != "context-to-query",
            context_to_query=flow != "query-to-context",
            name="flow",
        )(context, query, return_attention_scores=True)
        found = dict(zip(("context_to_query", "query_to_context"), weights, strict=False))

    model = bilstm(units, "modeling_1")(layers.Dropout(dropout)(merged))
    model = bilstm(units, "modeling_2")(layers.Dropout(dropout)(model))
    after = bilstm(units, "modeling_end")(layers.Dropout(dropout)(model))
    valid = ops.not_equal(inputs[0], 0)
    logits = []
    for name, hidden in (("start", model), ("end", after)):
        both = layers.Dropout(dropout)(layers.Concatenate()([merged, hidden]))
        logit = ops.squeeze(layers.Dense(1, name=f"{name}_score")(both), -1)
        logits.append(ops.where(valid, logit, NOWHERE))
    names = ("start", "end", "probability")
    found |= dict(zip(names, SpanSearch(max_answer, name="span")(*logits), strict=True))
    if vectors is not None:
        words.embeddings.assign(vectors)
        words.trainable = False
    return keras.Model(inputs, logits), keras.Model(inputs, found)


def bilstm(units, name):
    # Without cuDNN, so that XLA can compile it.
    lstm = layers.LSTM(units, return_sequences=True, use_cudnn=False)
    return layers.Bidirectional(lstm, name=name)


def first_vectors(vocabulary_words, found, sizes, seed):
    """Given vectors, and random ones of the same spread for words without."""
    given = np.stack(list(found.values()))
    vectors = np.random.default_rng(seed).normal(given.mean(), given.std(), (sizes, given.shape[1]))
    for n, word in enumerate(vocabulary_words, 1):
        if word in found:
            vectors[n] = found[word]
    return vectors.astype("float32")


# --- training ------------------------------------------------------------------------------------


class Interrupt:
    """Notes Ctrl-C and SIGTERM, so that a step is finished and saved first; twice stops at once."""

    def __enter__(self):
        self.asked = False
        self.old = {s: signal.signal(s, self._note) for s in (signal.SIGINT, signal.SIGTERM)}
        return self

    def _note(self, number, frame):
        if self.asked:
            raise KeyboardInterrupt
        self.asked = True
        print("\nstopping after this step ...", flush=True)

    def __exit__(self, *_):
        for number, old in self.old.items():
            signal.signal(number, old)


def make_optimizer(settings):
    options = {"use_ema": True, "ema_momentum": settings["average"]}
    if settings["optimizer"] == "adadelta":
        return keras.optimizers.Adadelta(settings["learning_rate"], **options)
    rate = warmup_cosine(settings["learning_rate"], settings["steps"], last=0.05)
    return keras.optimizers.Adam(rate, global_clipnorm=5.0, **options)


def train(model, data, settings, checkpoint, every, watch=None):
    """Trains to the end or goes on with an earlier run.

    Args:
        every: number of steps after which a checkpoint is written.
        watch: called with the number of the epoch after each but the last one, for a look at the
            progress.
    """
    cross_entropy = keras.losses.SparseCategoricalCrossentropy(from_logits=True)
    model.compile(make_optimizer(settings), [cross_entropy, cross_entropy])
    done, steps = checkpoint.restore(model), settings["steps"]
    size, seed = settings["batch_size"], settings["seed"]
    epoch_steps = -(-len(data.examples) // size)
    losses, started, first = [], time.perf_counter(), done
    epoch, batches = None, []
    with Interrupt() as interrupt:
        for step in range(done, steps):
            if step // epoch_steps != epoch:
                epoch = step // epoch_steps
                # An order of its own for every epoch, whether or not the run was interrupted.
                batches = data.batches(size, np.random.default_rng([seed, epoch]))
            batch = batches[step % epoch_steps]
            reseed(model, seed, step)
            model.reset_metrics()
            targets = [data.spans[batch, side] for side in (0, 1)]
            losses.append(float(model.train_on_batch(data.inputs(batch), targets)[0]))
            if not np.isfinite(losses[-1]):
                raise SystemExit(
                    f"the training diverged: loss {losses[-1]} in step {step + 1}. Choose a lower "
                    "--learning-rate and another --output."
                )
            done = step + 1
            seconds = (time.perf_counter() - started) / (done - first)
            place = f"step {done:,}/{steps:,}, epoch {done / epoch_steps:.2f}"
            rest = f"{seconds:.2f} s a step, {(steps - done) * seconds / 60:.0f} min left"
            if done % every == 0 or done == steps or interrupt.asked:
                entry = {"step": done, "loss": float(np.mean(losses)), "seconds_a_step": seconds}
                checkpoint.save(model, entry)
                print(f"{place}: loss {entry['loss']:.4f}, {rest}", flush=True)
                losses = []
            elif sys.stdout.isatty():
                print(f"{place}: {rest}", end="   \r", flush=True)
            if interrupt.asked:
                raise SystemExit(
                    f"stopped and saved after step {done:,} of {steps:,}; the same command goes on."
                )
            if watch and done % epoch_steps == 0 and done < steps:
                with averaged(model):
                    watch(done // epoch_steps)
    model.optimizer.finalize_variable_values(model.trainable_variables)
    return checkpoint.state


@contextlib.contextmanager
def averaged(model):
    """For a while the weights are their moving averages."""
    kept = [np.array(variable) for variable in model.trainable_variables]
    model.optimizer.finalize_variable_values(model.trainable_variables)
    try:
        yield
    finally:
        for variable, value in zip(model.trainable_variables, kept, strict=True):
            variable.assign(value)


# --- answering -----------------------------------------------------------------------------------


def answer(answerer, data, size=60, chosen=None):
    """Answers of all questions, or of those `chosen` by number: a dictionary id -> text."""
    answers = {}
    for batch in data.batches(size):
        if chosen is not None:
            batch = batch[np.isin(batch, chosen)]
        if len(batch) == 0:
            continue
        found = answerer.predict_on_batch(data.inputs(batch))
        for n, first, last in zip(batch, found["start"], found["end"], strict=True):
            answers[data.examples[n].id] = cut(data, n, first, last)
    return answers


def cut(data, n, first, last):
    """The text from one token to another, out of the original passage."""
    number = data.passage_of[n]
    if data.passages.lengths[number] == 0:
        return ""
    begin = data.passages.starts[data.passages.splits[number] + first]
    end = data.passages.ends[data.passages.splits[number] + last]
    return data.examples[n].passage.encode()[begin:end].decode()


def make_serve(answerer, vocabulary):
    """Raw strings to answers, for a SavedModel."""

    def encode_batch(texts):
        tokens, starts, ends = tokenize(texts)
        words, characters = (
            tokens.with_flat_values(flat).to_tensor(0) for flat in vocabulary(tokens.flat_values)
        )
        # A text without a word is one of padding.
        more = tf.maximum(1 - tf.shape(words)[1], 0)
        words = tf.pad(words, [[0, 0], [0, more]])
        characters = tf.pad(characters, [[0, 0], [0, more], [0, 0]])
        return [words, characters], [x.to_tensor() for x in (tokens, starts, ends)]

    def serve(passage, question):
        passage_ids, (passage_tokens, starts, ends) = encode_batch(passage)
        question_ids, (question_tokens, *_) = encode_batch(question)
        found = answerer([*passage_ids, *question_ids], training=False)
        found = dict(found)
        more = tf.maximum(1 - tf.shape(starts)[1], 0)
        start, end = (
            tf.gather(tf.pad(offsets, [[0, 0], [0, more]]), found.pop(name), batch_dims=1)
            for name, offsets in (("start", starts), ("end", ends))
        )
        size = tf.cast(end - start, "int32")
        return {
            "answer": tf.strings.substr(passage, tf.cast(start, "int32"), size),
            "start_byte": start,
            "end_byte": end,
            "passage_tokens": passage_tokens,
            "question_tokens": question_tokens,
            **found,
        }

    return serve


# --- saving --------------------------------------------------------------------------------------


def save(answerer, vocabulary, examples, output):
    """The `.keras` file, the SavedModel and the picture; each checked after it was written."""
    path, temporary = output / "model.keras", output / "model.tmp.keras"
    answerer.save(temporary)
    temporary.replace(path)
    data, _ = prepare(examples, vocabulary)
    inputs = data.inputs(np.arange(len(examples)))
    found = answerer.predict_on_batch(inputs)
    again = keras.saving.load_model(path).predict_on_batch(inputs)
    difference = max(np.abs(found[name] - again[name]).max() for name in found)
    if difference != 0:
        raise SystemExit(f"{path} differs by {difference:g} from the model that was saved")
    print(f"\n{path}: difference after reloading {difference:g}")
    if keras.backend.backend() != "tensorflow":
        print("The SavedModel is written with the TensorFlow backend: start the command with it.")
        return

    serve, path = make_serve(answerer, vocabulary), output / "saved_model"
    write_saved_model(path, serve, ["passage", "question"], [answerer, vocabulary])
    print(f"{path}: takes passages and questions, returns answers, bytes and attention")
    texts = {
        "passage": [example.passage for example in examples],
        "question": [example.question for example in examples],
    }
    reply = ask_saved_model(path, texts)
    texts = [cut(data, n, found["start"][n], found["end"][n]) for n in range(len(examples))]
    gap = np.abs(np.array(reply["probability"]) - found["probability"]).max()
    if reply["answer"] != texts or not gap <= 1e-5:
        raise SystemExit(
            f"the SavedModel differs in a new process: {reply['answer']} for {texts}, "
            f"probabilities by {gap:.2g}"
        )
    print(
        f"The reloaded SavedModel agrees: {len(texts)} answers equal, probabilities within "
        f"{gap:.1g}; the process had no {' and no '.join(reply['absent'])}."
    )
    if "context_to_query" in reply:
        draw_flow(
            {name: value[0] for name, value in reply.items() if name != "absent"},
            examples[0].passage,
            output / "attention.png",
        )
        print(f"{output / 'attention.png'}: which words of the question each word looked at")


def draw_flow(reply, passage, path, columns=28):
    """The T x J map of one answer, the passage in lines of `columns` words, as a PNG."""
    import matplotlib

    matplotlib.use("Agg")
    import matplotlib.pyplot as plt

    words = [word for word in reply["passage_tokens"] if word]
    asked = [word for word in reply["question_tokens"] if word]
    weights = np.array(reply["context_to_query"])[: len(words), : len(asked)].T
    rows = [*asked]
    if "query_to_context" in reply:
        summary = np.array(reply["query_to_context"])[: len(words)]
        # In its own scale: there are ten times as many words in a passage as in a question.
        weights = np.concatenate([weights, summary[None] / max(summary.max(), 1e-30)])
        rows.append("passage word, to the largest")
    begin, ends = 0, []
    for word in words:
        begin = passage.encode().index(word.encode(), begin)
        begin += len(word.encode())
        ends.append(begin)
    inside = [reply["start_byte"] < end <= reply["end_byte"] for end in ends]
    lines = range(0, len(words), columns)
    figure, panels = plt.subplots(
        len(lines),
        squeeze=False,
        figsize=(3.2 + 0.36 * columns, 1.1 + len(lines) * (1.1 + 0.24 * len(rows))),
        layout="constrained",
    )
    for axes, first in zip(panels[:, 0], lines, strict=True):
        part = weights[:, first : first + columns]
        image = axes.imshow(part, cmap="viridis", vmin=0, vmax=1, aspect="auto")
        axes.set_xlim(-0.5, columns - 0.5)
        axes.set_xticks(
            range(part.shape[1]), words[first : first + columns], rotation=60, ha="left"
        )
        axes.xaxis.tick_top()
        axes.set_yticks(range(len(rows)), rows)
        axes.spines[:].set_visible(False)
        if len(rows) > len(asked):
            axes.axhline(len(asked) - 0.5, color="white", linewidth=2)
        for label, marked in zip(axes.get_xticklabels(), inside[first:], strict=False):
            if marked:
                label.set(color="crimson", fontweight="bold")
    figure.suptitle(f"answer: {reply['answer']}", color="crimson", fontweight="bold")
    figure.colorbar(image, ax=panels, label="attention weight", shrink=0.6)
    figure.savefig(path, dpi=110)
    plt.close(figure)


# --- command line --------------------------------------------------------------------------------


def parse(argv):
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", metavar="DIR", help="with SQuAD v1.1, or download")
    parser.add_argument("--vectors", metavar="FILE", help="word vectors, a GloVe text file")
    parser.add_argument("--flow", choices=FLOWS, default="both", help="directions of attention")
    parser.add_argument("--units", type=int, help="d (default: 50; SQuAD: 100)")
    parser.add_argument("--vocabulary", type=int, default=30_000, help="words at most")
    parser.add_argument("--max-passage", type=int, default=400, help="tokens, in training")
    parser.add_argument("--max-question", type=int, default=50, help="tokens, in training")
    parser.add_argument("--max-answer", type=int, default=20, help="tokens")
    parser.add_argument("--steps", type=int, help="default: 1200; SQuAD: 12 epochs")
    parser.add_argument("--batch-size", type=int, help="default: 32; SQuAD: 60")
    parser.add_argument("--optimizer", choices=("adam", "adadelta"), default="adam")
    parser.add_argument("--learning-rate", type=float, help="default: 0.002; adadelta: 0.5")
    parser.add_argument("--average", type=float, help="of weights (default: 0.99; SQuAD: 0.999)")
    parser.add_argument("--dropout", type=float, help="default: 0.1; SQuAD: 0.2")
    parser.add_argument("--save-every", type=int, default=200, metavar="STEPS")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--output", default="output/answer", help="where results are written")
    parser.add_argument("--smoke", action="store_true", help="generated data, about a minute")
    arguments = parser.parse_args(argv)
    if arguments.smoke and arguments.data:
        parser.error("--smoke runs on the generated passages, without --data")
    positive = ["units", "vocabulary", "max_passage", "max_question", "max_answer", "steps"]
    for name in [*positive, "batch_size", "save_every"]:
        value = getattr(arguments, name)
        if value is not None and value < 1:
            parser.error(f"--{name.replace('_', '-')} must be at least 1; received {value}")
    for name, high in (("dropout", 1), ("average", 1), ("learning_rate", float("inf"))):
        value = getattr(arguments, name)
        if value is not None and not 0 <= value < high:
            parser.error(f"--{name.replace('_', '-')} must be in [0, {high}); received {value}")
    rate = 0.5 if arguments.optimizer == "adadelta" else 0.002
    if arguments.data:
        defaults = {"units": 100, "batch_size": 60, "average": 0.999, "dropout": 0.2}
    else:
        defaults = {"units": 50, "batch_size": 32, "average": 0.99, "dropout": 0.1, "steps": 1200}
    for name, value in {**defaults, "learning_rate": rate}.items():
        if getattr(arguments, name) is None:
            setattr(arguments, name, value)
    return arguments


def load_data(arguments):
    """Examples to train on and to test on; what cannot be used is counted and printed."""
    if not arguments.data:
        sizes = (2_000, 200) if arguments.smoke else (8_000, 1_000)
        return passages.split(sizes, seed=arguments.seed)
    if arguments.data == "download":
        paths = [keras.utils.get_file(name, SOURCE + name) for name in FILES]
    else:
        paths = [pathlib.Path(arguments.data) / name for name in FILES]
    sets = []
    for path, training in zip(paths, (True, False), strict=True):
        examples, left_out = squad.read(path, training)
        print(f"{path}: {len(examples):,} questions")
        if left_out:
            print(f"  left out: {describe(left_out)}")
        if not examples:
            raise SystemExit(
                f"{path}: no question of it can be used: {describe(left_out)}. Nothing was written."
            )
        sets.append(examples)
    return sets


def run(flow, data, test, sizes, vectors, arguments):
    """Trains one model and answers the test set: the model, its answers, a summary."""
    steps = arguments.steps or 12 * -(-len(data.examples) // arguments.batch_size)
    settings = {**vars(arguments), "flow": flow, "steps": steps}
    for free in ("output", "data", "save_every", "vectors", "smoke", "max_answer"):
        settings.pop(free)
    arrays = (data.passages.words, data.questions.words, data.passage_of, data.spans)
    settings["fingerprint"] = fingerprint(*arrays, *([] if vectors is None else [vectors]))
    checkpoint = Checkpoint(
        pathlib.Path(arguments.output) / f"checkpoint-{flow}", settings, unit="step"
    )
    model, answerer = build_model(
        sizes, arguments.units, flow, arguments.dropout, arguments.max_answer, vectors
    )
    print(
        f"\nattention: {flow}, {model.count_params():,} parameters, {len(data.examples):,} "
        f"questions to train on, {len(test.examples):,} to test on",
        flush=True,
    )
    # For a look at the progress; nothing is chosen by it.
    sample = np.random.default_rng(0).permutation(len(test.examples))[:1000]

    def watch(epoch):
        score = squad.evaluate(
            answer(answerer, test, chosen=sample), [test.examples[n] for n in sample]
        )
        print(
            f"epoch {epoch}: exact match {score['exact_match']:.1f}, F1 {score['f1']:.1f} "
            f"of {len(sample):,} test questions",
            flush=True,
        )

    every = arguments.save_every
    state = train(model, data, settings, checkpoint, every, watch if arguments.data else None)
    start = time.perf_counter()
    answers = answer(answerer, test)
    summary = {
        "attention": flow,
        "command": " ".join(["python", *sys.argv]),
        "keras": keras.__version__,
        "backend": keras.backend.backend(),
        "parameters": model.count_params(),
        "steps": steps,
        "epochs": steps * arguments.batch_size / len(data.examples),
        "seconds_a_step": float(np.median([e["seconds_a_step"] for e in state["history"]])),
        "answer_seconds": time.perf_counter() - start,
        **squad.evaluate(answers, test.examples),
    }
    return answerer, answers, summary


def main(argv=None):
    arguments = parse(argv)
    check_extras("tensorflow_text", "matplotlib")
    texts = load_data(arguments)
    output = pathlib.Path(arguments.output)
    keras.utils.set_random_seed(arguments.seed)
    lines = [text for example in texts[0] for text in (example.passage, example.question)]
    lines = list(dict.fromkeys(lines))
    found = None
    if arguments.vectors:
        found = read_vectors(arguments.vectors, count_tokens(lines)[0])
    vocabulary, words = learn_vocabulary(lines, arguments.vocabulary, found)
    vectors = None
    if found:
        vectors = first_vectors(words, found, vocabulary.sizes[0], arguments.seed)
        print(f"{arguments.vectors}: vectors of {len(found):,} words, fixed")
    limits = arguments.max_passage, arguments.max_question
    data, left_out = prepare(texts[0], vocabulary, limits)
    if left_out:
        print(f"left out of training: {describe(left_out)}")
    test, _ = prepare(texts[1], vocabulary)
    given = data, test, vocabulary.sizes, vectors, arguments
    output.mkdir(parents=True, exist_ok=True)

    answerer, answers, summary = run(arguments.flow, *given)
    write_text(output / "predictions.json", json.dumps(answers, ensure_ascii=False) + "\n")
    baseline = None
    if not arguments.data and arguments.flow != "none" and not arguments.smoke:
        *_, baseline = run("none", *given)
        summary["without_attention"] = {name: baseline[name] for name in ("exact_match", "f1")}
    report(summary, texts[1], answers)
    save(answerer, vocabulary, texts[1][:4], output)
    write_text(output / "summary.json", json.dumps(summary, indent=1, ensure_ascii=False) + "\n")
    if arguments.smoke and summary["exact_match"] < 50:
        raise SystemExit(
            f"smoke run: only {summary['exact_match']:.1f}% right, expected at least 50%"
        )


def report(summary, examples, answers):
    print("\nSamples of the test set:")
    for example in examples[:6]:
        print(f"  {example.question} -> {answers[example.id]}    (answer: {example.answers[0]})")
    print(
        f"\n{summary['attention']}: {summary['steps']:,} steps, {summary['epochs']:.1f} epochs, "
        f"{summary['seconds_a_step']:.2f} s a step, answering {summary['answer_seconds']:.0f} s"
    )
    print(
        f"exact match {summary['exact_match']:.2f}, F1 {summary['f1']:.2f} "
        f"of {summary['questions']:,} unseen questions"
    )
    if "without_attention" in summary:
        score = summary["without_attention"]
        print(
            f"the same model without attention: exact match {score['exact_match']:.2f}, "
            f"F1 {score['f1']:.2f}"
        )


if __name__ == "__main__":
    main()
