"""Translation with attention (Bahdanau et al., 2015; Luong et al., 2015).

    python examples/translate.py

learns to turn written dates into ISO dates ("the third of May, 1998" -> "1998-05-03") from
generated pairs, beside the same model without attention, in about three minutes on two cores; at
least 99% of 1,000 unseen dates come out right. It writes a heat map of the attention, a `.keras`
file and a SavedModel from strings to strings, which a process without keras then runs.

    python examples/translate.py --train train.de train.en --valid val.de val.en \\
        --test test.de test.en --attention luong-general --units 512 --epochs 12

does the same for any two files whose lines are translations of each other, with subwords learned
from the training files, and reports BLEU. A run that was killed continues where it stopped when it
is started again with the same arguments. Multi30k, the corpus of docs/results.md, is at
https://github.com/multi30k/dataset.
"""

import argparse
import io
import json
import os
import pathlib
import sys
import time

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import dates
import keras
import numpy as np
import tensorflow as tf
from arguments import check_at_least_one, check_ranges, check_seed, fill
from batching import bucketed
from checkpoint import (
    Checkpoint,
    fingerprint,
    make_folder,
    reseed,
    save_figure,
    seed_model,
    write_text,
)
from extras import check_extras
from keras import layers, ops
from schedules import warmup_cosine
from serving import ask_saved_model, write_model, write_saved_model

from keras_attention import AttentionRNN, BahdanauAttention, LuongAttention, beam_search
from keras_attention.plotting import plot_attention

PAD, UNKNOWN, START, END = range(4)
ATTENTIONS = (
    "bahdanau",
    "luong-dot",
    "luong-general",
    "luong-concat",
    "luong-local-m",
    "luong-local-p",
    "none",
)
LENGTH_PENALTY = 1.0
DECODE_BATCH = 64


# --- data ----------------------------------------------------------------------------------------


def load_pairs(paths, keep_empty=False):
    """Two line-aligned text files as two lists of strings, without pairs with an empty line.

    Nothing may be left out of a test set: `keep_empty`.
    """
    sides = [read_lines(path) for path in paths]
    if len(sides[0]) != len(sides[1]):
        raise SystemExit(
            f"{paths[0]} has {len(sides[0])} lines and {paths[1]} has {len(sides[1])}: line n of "
            "one must be the translation of line n of the other. Nothing was written."
        )
    pairs = [(a, b) for a, b in zip(*sides, strict=True) if keep_empty or (a and b)]
    if not pairs:
        raise SystemExit(f"{paths[0]} and {paths[1]} hold no pair of lines. Nothing was written.")
    if len(pairs) < len(sides[0]):
        print(f"{paths[0]}: {len(sides[0]) - len(pairs)} pairs with an empty line left out")
    return [a for a, _ in pairs], [b for _, b in pairs]


def read_lines(path):
    try:
        text = pathlib.Path(path).read_bytes().decode("utf-8")
    except OSError as error:
        raise SystemExit(f"{path}: {error.strerror}. Nothing was written.") from error
    except UnicodeDecodeError as error:
        line = error.object[: error.start].count(b"\n") + 1
        raise SystemExit(f"{path}, line {line}: not UTF-8. Nothing was written.") from error
    # Not splitlines(), which also splits at characters that may stand inside a sentence.
    return [line.strip() for line in text.removesuffix("\n").split("\n")]


def learn_subwords(lines, size, kind):
    """A SentencePiece model, as bytes; `kind` is "char" or "bpe"."""
    import sentencepiece

    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines),
        model_writer=model,
        model_type=kind,
        vocab_size=size,
        hard_vocab_limit=False,
        character_coverage=1.0,
        normalization_rule_name="identity",
        add_dummy_prefix=kind != "char",
        pad_id=PAD,
        unk_id=UNKNOWN,
        bos_id=START,
        eos_id=END,
        minloglevel=2,
    )
    return model.getvalue()


def make_tokenizers(subwords):
    """Tokenizers of the source and the target, from their two SentencePiece models."""
    import tensorflow_text

    # In a SavedModel two tokenizers without names of their own would share one vocabulary.
    return [
        tensorflow_text.SentencepieceTokenizer(model, add_eos=True, name=name)
        for model, name in zip(subwords, ("source", "target"), strict=True)
    ]


def encode(tokenizer, lines):
    return tokenizer.tokenize(tf.constant(lines)).to_list()


def drop_long(sources, targets, limit):
    """Without the pairs of more tokens than memory and time allow for."""
    kept = [(s, t) for s, t in zip(sources, targets, strict=True) if max(len(s), len(t)) <= limit]
    if len(kept) < len(sources):
        print(f"{len(sources) - len(kept)} training pairs of more than {limit} tokens left out")
    if not kept:
        raise SystemExit(f"no training pair has at most {limit} tokens: raise --max-tokens")
    return [s for s, _ in kept], [t for _, t in kept]


def make_batches(sources, targets, size, order=None):
    """Padded batches `((source, target in), target out, weight)` of pairs of similar length.

    Args:
        sources, targets: lists of lists of ids, the end token included.
        order: a NumPy generator to shuffle with, or None to keep the pairs sorted by length.
    """
    lengths = [(len(t), len(s)) for s, t in zip(sources, targets, strict=True)]
    for batch in bucketed(lengths, size, order):
        source = pad([sources[i] for i in batch])
        target = pad([targets[i] for i in batch])
        shifted = np.pad(target[:, :-1], ((0, 0), (1, 0)), constant_values=START)
        shifted = np.where(shifted == END, PAD, shifted)
        yield (source, shifted), target, (target != PAD).astype("float32")


def pad(rows):
    # Few different shapes, so that XLA compiles few programs.
    length = -(-max(map(len, rows)) // 4) * 4
    return np.array([row + [PAD] * (length - len(row)) for row in rows], "int32")


def as_dataset(make, pairs, size):
    ids = tf.TensorSpec((None, None), "int32")
    signature = ((ids, ids), ids, tf.TensorSpec((None, None), "float32"))
    batches = tf.data.Dataset.from_generator(make, output_signature=signature)
    return batches.apply(tf.data.experimental.assert_cardinality(-(-pairs // size))).prefetch(4)


# --- model ---------------------------------------------------------------------------------------


def make_attention(name, units, window):
    """A layer for every name in `ATTENTIONS` but "none"."""
    if name == "bahdanau":
        return BahdanauAttention(units)
    kind = name.removeprefix("luong-")
    if kind.startswith("local"):
        return LuongAttention("general", alignment=kind, half_width=window, units=units)
    return LuongAttention(kind, units=units)


def build_model(attention, source_size, target_size, units, embedding, dropout, window, feeding):
    """The training model: source ids and shifted target ids to logits of the target ids."""
    source = keras.Input((None,), dtype="int32", name="source")
    shifted = keras.Input((None,), dtype="int32", name="shifted_target")

    # The default of Keras, within +-0.05, is so small that the first thousand steps learn little.
    x = layers.Embedding(
        source_size,
        embedding,
        embeddings_initializer=keras.initializers.RandomNormal(stddev=0.5),
        mask_zero=True,
        name="source_embedding",
    )(source)
    x = layers.Dropout(dropout)(x)
    rnn = layers.GRU(units // 2, return_sequences=True, return_state=True, use_cudnn=False)
    encoded, forward, backward = layers.Bidirectional(rnn, name="encoder")(x)
    encoded = layers.Dropout(dropout)(encoded)
    state = layers.Concatenate()([forward, backward])
    state = layers.Dense(units, activation="tanh", name="initial_state")(state)

    table = layers.ReversibleEmbedding(
        target_size,
        embedding,
        embeddings_initializer=keras.initializers.RandomNormal(stddev=embedding**-0.5),
        mask_zero=True,
        name="target_embedding",
    )
    words = layers.Dropout(dropout)(table(shifted))
    cell = layers.GRUCell(units)
    if attention == "none":
        hidden = layers.RNN(cell, return_sequences=True, name="decoder")(words, state)
    else:
        decoder = AttentionRNN(
            cell,
            make_attention(attention, units, window),
            query="previous" if attention == "bahdanau" else "current",
            output_mode="concat" if attention == "bahdanau" else "attention",
            input_feeding=feeding,
            name="decoder",
        )
        hidden = decoder(words, encoded, initial_state=state)
    hidden = layers.Concatenate(name="readout_input")([hidden, words])
    hidden = layers.Dense(embedding, activation="tanh", name="readout")(hidden)
    hidden = layers.Dropout(dropout)(hidden)
    return keras.Model([source, shifted], table(hidden, reverse=True))


class SmoothedCrossEntropy(keras.losses.Loss):
    """Cross-entropy against (1 - s) of the target id and s of all ids alike, a token."""

    def __init__(self, smoothing=0.1):
        super().__init__(reduction="mean_with_sample_weight")
        self.smoothing = smoothing

    def call(self, y_true, y_pred):
        y_true = ops.one_hot(ops.cast(y_true, "int32"), y_pred.shape[-1])
        return keras.losses.categorical_crossentropy(
            y_true, y_pred, from_logits=True, label_smoothing=self.smoothing
        )


class Translator:
    """Searches translations with the layers of a trained model."""

    def __init__(self, model, beam_width, max_length):
        get = model.get_layer
        self.model = model
        self.encoder = keras.Model(
            model.inputs[0], [get("encoder").output[0], get("initial_state").output]
        )
        self.embedding, self.decoder = get("target_embedding"), get("decoder")
        self.readout = get("readout")
        self.attends = isinstance(self.decoder, AttentionRNN)
        self.beam_width, self.max_length = beam_width, max_length

    def __call__(self, source):
        """Source ids `(B, S)` to a `SearchResult` of the target ids."""
        encoded, state = self.encoder(source, training=False)
        memory = None
        if self.attends:
            memory = self.decoder.prepare(encoded, ops.not_equal(source, PAD))
            state = self.decoder.get_initial_state(ops.shape(source)[0], state)
        position = ops.zeros((ops.shape(source)[0],), "int32")
        return beam_search(
            self.step,
            (state, position),
            memory,
            start_token=START,
            end_token=END,
            max_length=self.max_length,
            beam_width=self.beam_width,
            length_penalty=LENGTH_PENALTY,
        )

    def step(self, tokens, state, memory):
        state, position = state
        words = ops.take(self.embedding.embeddings, tokens, axis=0)  # without a mask
        if self.attends:
            hidden, state, weights = self.decoder.step(words, state, memory, position)
        else:
            hidden, (state,) = self.decoder.cell(words, [state])
            weights = None
        hidden = self.readout(ops.concatenate([hidden, words], axis=-1))
        logits = self.embedding(hidden, reverse=True)
        forbidden = ops.arange(logits.shape[-1]) < END
        logits = ops.where(forbidden, ops.cast(-float("inf"), logits.dtype), logits)
        return logits, (state, position + 1), weights


# --- training ------------------------------------------------------------------------------------


def train(model, data, arguments, checkpoint):
    """Trains to the end or goes on with an earlier run; leaves the best weights in the model."""
    pairs, batch_size = len(data["train"][0]), arguments["batch_size"]
    steps = -(-pairs // batch_size) * arguments["epochs"]
    rate = warmup_cosine(arguments["learning_rate"], steps, last=0.01)
    model.compile(
        keras.optimizers.Adam(rate, global_clipnorm=1.0),
        SmoothedCrossEntropy(arguments["smoothing"]),
    )
    judge = keras.Model(model.inputs, model.outputs)
    metric = keras.metrics.SparseCategoricalCrossentropy(from_logits=True, name="nats")
    judge.compile(loss=SmoothedCrossEntropy(0.0), weighted_metrics=[metric])
    valid = as_dataset(
        lambda: make_batches(*data["valid"], batch_size), len(data["valid"][0]), batch_size
    )

    checkpoint.restore(model)
    for epoch in range(checkpoint.state["epoch"], arguments["epochs"]):
        # An order of its own for every epoch, whether or not the run was interrupted.
        def batches(epoch=epoch):
            order = np.random.default_rng([arguments["seed"], epoch])
            return make_batches(*data["train"], batch_size, order)

        reseed(model, arguments["seed"], epoch)
        start = time.perf_counter()
        verbose = 1 if sys.stdout.isatty() else 0
        history = model.fit(
            as_dataset(batches, pairs, batch_size),
            initial_epoch=epoch,
            epochs=epoch + 1,
            shuffle=False,
            verbose=verbose,
        )
        seconds = time.perf_counter() - start
        loss = judge.evaluate(valid, verbose=0, return_dict=True)["nats"]
        entry = {
            "epoch": epoch + 1,
            "train_loss": history.history["loss"][0],
            "valid_loss": loss,
            "seconds": seconds,
        }
        checkpoint.save(model, entry)
        print(
            f"epoch {epoch + 1}/{arguments['epochs']}: training loss {entry['train_loss']:.4f}, "
            f"validation perplexity {np.exp(loss):.3f}, {seconds:.0f} s",
            flush=True,
        )
    checkpoint.load_best(model)
    return checkpoint.state


# --- translating ---------------------------------------------------------------------------------


def translate(translator, tokenizers, texts):
    """Texts to translations, in batches of similar length; progress on a terminal."""
    signature = [tf.TensorSpec((None, None), "int32")]
    search = tf.function(translator, input_signature=signature, autograph=False)
    ids = encode(tokenizers[0], texts)
    order = sorted(range(len(ids)), key=lambda i: len(ids[i]))
    translations = [""] * len(texts)
    for start in range(0, len(order), DECODE_BATCH):
        part = order[start : start + DECODE_BATCH]
        found = search(tf.constant(pad([ids[i] for i in part])))
        for i, text in zip(part, detokenize(tokenizers[1], found).numpy(), strict=True):
            translations[i] = text.decode()
    return translations


def detokenize(tokenizer, found):
    """The best of the beams, as strings."""
    best = tf.RaggedTensor.from_tensor(found.tokens[:, 0], lengths=found.lengths[:, 0])
    return tokenizer.detokenize(tf.ragged.boolean_mask(best, best != END))


def export(translator, tokenizers, path):
    """Writes a SavedModel: `serving_default(texts)` -> translations, scores, alignments, tokens."""
    source_tokenizer, target_tokenizer = tokenizers

    def serve(texts):
        source = source_tokenizer.tokenize(texts).to_tensor(PAD)
        found = translator(source)
        result = {
            "translation": detokenize(target_tokenizer, found),
            "score": found.scores[:, 0],
            "source_tokens": source_tokenizer.id_to_string(source),
            "target_tokens": target_tokenizer.id_to_string(found.tokens[:, 0]),
        }
        if found.alignments is not None:
            result["alignments"] = found.alignments[:, 0]
        return result

    write_saved_model(path, serve, ["texts"], [translator.model, *tokenizers])
    return serve


def check_saved_model(path, serve, texts):
    """Runs the SavedModel in a new process without keras and compares; returns its answer."""
    answer = ask_saved_model(path, {"texts": texts})
    expected = serve(tf.constant(texts))
    same = [text.decode() for text in expected["translation"].numpy()] == answer["translation"]
    difference = np.abs(np.array(answer["score"]) - expected["score"].numpy()).max()
    if "alignments" in expected:
        gap = np.abs(np.array(answer["alignments"]) - expected["alignments"].numpy()).max()
        difference = max(difference, gap)
    if not same or not difference <= 1e-5:
        raise SystemExit(
            f"the SavedModel differs in a new process: translations equal: {same}, scores and "
            f"alignments by {difference:.2g}"
        )
    print(
        f"The reloaded SavedModel agrees: {len(texts)} translations equal, scores and alignments "
        f"within {difference:.1g}; the process had no {' and no '.join(answer['absent'])}."
    )
    return answer


def draw_alignment(answer, path):
    """The attention map of the first translation of `answer`, as a PNG."""
    source, target = (_labels(answer[side][0]) for side in ("source_tokens", "target_tokens"))
    weights = np.array(answer["alignments"][0])[: len(target), : len(source)]
    title = f"{answer['text']}  →  {answer['translation'][0]}"
    save_figure(path, plot_attention(weights, source, target, title=title))


def _labels(tokens):
    """Tokens up to the end, with signs for spaces and the end that a reader can see."""
    tokens = [token for token in tokens if token != "<pad>"]
    if "</s>" in tokens:
        tokens = [*tokens[: tokens.index("</s>")], "⏎"]
    return [token.replace("▁", "␣") for token in tokens]


# --- judging -------------------------------------------------------------------------------------


def accuracy(translations, references):
    return float(np.mean([a == b for a, b in zip(translations, references, strict=True)]))


def bleu_report(sources, translations, references):
    """BLEU of all sentences and by the number of words in the source, with the signature."""
    import sacrebleu

    metric = sacrebleu.metrics.BLEU()
    report = {"all": metric.corpus_score(translations, [references]).score}
    report["signature"] = str(metric.get_signature())
    words = [len(source.split()) for source in sources]
    for low, high in ((1, 7), (8, 11), (12, 15), (16, 20), (21, 10**6)):
        chosen = [i for i, n in enumerate(words) if low <= n <= high]
        if chosen:
            name = f"{low}-{high} words" if high < 10**6 else f"{low} words and more"
            score = metric.corpus_score(
                [translations[i] for i in chosen], [[references[i] for i in chosen]]
            )
            report[name] = {"sentences": len(chosen), "BLEU": score.score}
    return report


# --- command line --------------------------------------------------------------------------------


def parse(argv):
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    files = {"nargs": 2, "metavar": ("SRC", "TGT")}
    parser.add_argument("--train", **files, help="line-aligned text files")
    parser.add_argument("--valid", **files)
    parser.add_argument("--test", **files)
    parser.add_argument("--attention", choices=ATTENTIONS, default="bahdanau")
    parser.add_argument("--input-feeding", action="store_true", help="for the luong attentions")
    parser.add_argument("--window", type=int, default=10, help="D of local attention")
    parser.add_argument("--beam", type=int, default=5, metavar="N", help="width of the search")
    parser.add_argument("--units", type=int, help="of the decoder (default: 128; files: 256)")
    parser.add_argument("--embedding", type=int, help="width of words (default: 64; files: 256)")
    parser.add_argument("--vocabulary", type=int, default=4000, help="subwords a language")
    parser.add_argument("--max-tokens", type=int, default=100, help="of a training sentence")
    parser.add_argument("--epochs", type=int, help="default: 5; files: 8")
    parser.add_argument("--batch-size", type=int, help="default: 64")
    parser.add_argument("--learning-rate", type=float, help="the highest (default: 0.002)")
    parser.add_argument("--dropout", type=float, help="default: 0.1; files: 0.3")
    parser.add_argument("--smoothing", type=float, help="of labels (default: 0; files: 0.1)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--output", default="output/translate", help="where results are written")
    parser.add_argument("--smoke", action="store_true", help="dates in two formats, a minute")
    arguments = parser.parse_args(argv)
    given = [arguments.train, arguments.valid, arguments.test]
    if any(given) and not all(given):
        parser.error("--train, --valid and --test belong together: give all three or none")
    if arguments.smoke and any(given):
        parser.error("--smoke runs on the generated dates, without --train, --valid and --test")
    if arguments.input_feeding and arguments.attention in ("bahdanau", "none"):
        parser.error("--input-feeding goes with the luong attentions")
    positive = ["window", "beam", "units", "embedding", "vocabulary", "max_tokens", "epochs"]
    check_at_least_one(parser, arguments, [*positive, "batch_size"])
    ranges = {"dropout": 1, "smoothing": 1, "learning_rate": float("inf")}
    check_ranges(parser, arguments, ranges)
    check_seed(parser, arguments)
    if arguments.units is not None and arguments.units % 2:
        parser.error(f"--units must be even, half for each direction; received {arguments.units}")
    defaults = {"batch_size": 64, "learning_rate": 2e-3}
    if any(given):
        defaults |= {"epochs": 8, "units": 256, "embedding": 256, "dropout": 0.3, "smoothing": 0.1}
    else:
        defaults |= {"epochs": 5, "units": 128, "embedding": 64, "dropout": 0.1, "smoothing": 0.0}
    if arguments.smoke:
        defaults |= {"epochs": 5, "batch_size": 32, "learning_rate": 4e-3}
    return fill(arguments, defaults)


def load_data(arguments):
    """The texts: {"train": (sources, targets), "valid": ..., "test": ...}."""
    if arguments.train:
        names = ("train", "valid", "test")
        return {name: load_pairs(getattr(arguments, name), name == "test") for name in names}
    sizes, formats = (12_000, 500, 1_000), dates.FORMATS
    if arguments.smoke:
        sizes, formats = (3_000, 200, 200), dates.FORMATS[:2]
    sets = dates.make_pairs(sizes, seed=arguments.seed, formats=formats)
    return dict(zip(("train", "valid", "test"), sets, strict=True))


def run(name, texts, subwords, arguments):
    """Trains one model and translates the test set: the translator, its translations, a summary."""
    output = pathlib.Path(arguments.output)
    seed_model(arguments.seed)
    tokenizers = make_tokenizers(subwords)
    data = {
        part: [encode(tokenizer, side) for tokenizer, side in zip(tokenizers, sides, strict=True)]
        for part, sides in texts.items()
    }
    data["train"] = drop_long(*data["train"], arguments.max_tokens)
    settings = {
        **vars(arguments),
        "attention": name,
        "data": fingerprint(json.dumps(data, sort_keys=True).encode()),
    }
    for free in ("output", "beam", "train", "valid", "test"):
        settings.pop(free)
    checkpoint = Checkpoint(output / f"checkpoint-{name}", settings)
    model = build_model(
        name,
        *(int(tokenizer.vocab_size()) for tokenizer in tokenizers),
        arguments.units,
        arguments.embedding,
        arguments.dropout,
        arguments.window,
        arguments.input_feeding,
    )
    print(f"\nattention: {name}, {model.count_params():,} parameters", flush=True)
    state = train(model, data, settings, checkpoint)
    longest = max(map(len, data["train"][1]))
    translator = Translator(model, arguments.beam, max_length=longest)
    start = time.perf_counter()
    translations = translate(translator, tokenizers, texts["test"][0])
    summary = {
        "attention": name + (" with input feeding" if arguments.input_feeding else ""),
        "command": " ".join(["python", *sys.argv]),
        "keras": keras.__version__,
        "tensorflow": tf.__version__,
        "parameters": model.count_params(),
        "seconds_an_epoch": float(np.median([past["seconds"] for past in state["history"]])),
        "best_epoch": state["best"],
        "validation_perplexity": float(np.exp(state["history"][state["best"] - 1]["valid_loss"])),
        "search_seconds": time.perf_counter() - start,
        "exact": accuracy(translations, texts["test"][1]),
    }
    return translator, translations, summary


def main(argv=None):
    arguments = parse(argv)
    check_extras("tensorflow_text", "sentencepiece", "sacrebleu", "matplotlib")
    texts = load_data(arguments)
    output = pathlib.Path(arguments.output)
    make_folder(output)
    compared = not arguments.train and arguments.attention != "none" and not arguments.smoke
    for name in (arguments.attention, *(["none"] if compared else [])):
        make_folder(output / f"checkpoint-{name}")
    kind = "bpe" if arguments.train else "char"
    subwords = [learn_subwords(side, arguments.vocabulary, kind) for side in texts["train"]]
    translator, translations, summary = run(arguments.attention, texts, subwords, arguments)
    if arguments.train:
        summary["BLEU"] = bleu_report(texts["test"][0], translations, texts["test"][1])
    elif compared:
        *_, baseline = run("none", texts, subwords, arguments)
        summary["exact_without_attention"] = baseline["exact"]
    write_text(output / "translations.txt", "\n".join(translations) + "\n")
    report(summary, texts["test"], translations)
    save(translator, make_tokenizers(subwords), texts["test"][0], output)
    write_text(output / "summary.json", json.dumps(summary, indent=1, ensure_ascii=False) + "\n")
    if arguments.smoke and summary["exact"] < 0.5:
        raise SystemExit(f"smoke run: only {summary['exact']:.1%} right, expected at least 50%")


def report(summary, test, translations):
    print("\nSamples of the test set:")
    for i in range(min(6, len(translations))):
        print(f"  {test[0][i]}\n    -> {translations[i]}    (reference: {test[1][i]})")
    print(
        f"\n{summary['attention']}: validation perplexity {summary['validation_perplexity']:.3f}, "
        f"{summary['seconds_an_epoch']:.0f} s an epoch, search {summary['search_seconds']:.0f} s"
    )
    if "BLEU" in summary:
        scores = dict(summary["BLEU"])
        print(f"BLEU {scores.pop('all'):.2f}  ({scores.pop('signature')})")
        for name, part in scores.items():
            print(f"  {name}: {part['BLEU']:.2f} ({part['sentences']} sentences)")
        return
    print(f"exactly right: {summary['exact']:.1%} of {len(translations):,} unseen dates")
    if "exact_without_attention" in summary:
        print(f"the same model without attention: {summary['exact_without_attention']:.1%}")


def save(translator, tokenizers, texts, output):
    """The `.keras` file, the SavedModel and the picture; each checked after it was written."""
    model = keras.Model(translator.model.inputs, translator.model.outputs)  # without the optimizer
    sample = [np.arange(12).reshape(2, 6) % 9 + END, np.arange(10).reshape(2, 5) % 7 + END]
    write_model(model, output / "model.keras", sample)

    serve = export(translator, tokenizers, output / "saved_model")
    print(f"{output / 'saved_model'}: takes strings, returns strings and alignments")
    texts = texts[:4]
    answer = check_saved_model(output / "saved_model", serve, texts)
    (output / "alignment.png").unlink(missing_ok=True)
    if "alignments" in answer:
        draw_alignment({**answer, "text": texts[0]}, output / "alignment.png")
        print(f"{output / 'alignment.png'}: which source the words of a translation looked at")


if __name__ == "__main__":
    main()
