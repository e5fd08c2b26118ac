"""Translates texts with a trained model, and compares searches."""

import time

import tensorflow as tf

from examples.translation.data import END, PAD, encode, pad
from examples.translation.evaluation import accuracy, bleu
from keras_attention.search import reverse_tokens


def translate(model, tokenizers, texts, max_length, backward=False, **options):
    """Translates texts. `Seq2Seq.generate` takes the options.

    With `backward`, the model writes from right to left.
    """
    found = model.generate(pad(encode(tokenizers[0], texts)), max_length, **options)
    tokens = reverse_tokens(found.tokens, END, PAD) if backward else found.tokens
    return [text.decode() for text in detokenize(tokenizers[1], tokens, found.lengths).numpy()]


def detokenize(tokenizer, tokens, lengths):
    """Makes strings of ids."""
    ids = tf.RaggedTensor.from_tensor(tokens, lengths=lengths)
    return tokenizer.detokenize(tf.ragged.boolean_mask(ids, ids != END))


def searches(arguments):
    """The options of the searches of the table: greedy, beam, and beam with one change each."""
    beam, usual = f"beam {arguments.beam}", arguments.length_penalty
    penalties = sorted({0.0, 0.5, 1.0} - {usual})
    changes = {f"length penalty {x}": {"length_penalty": x} for x in penalties}
    if arguments.attention != "none":  # it has no weights to judge by
        for name in ("gnmt", "summary"):
            for x in (0.1, 0.3):
                change = {"coverage_penalty": x, "coverage": name}
                changes[f"coverage penalty {x}, {name}"] = change
    changes |= {f"no {n} tokens twice": {"no_repeat_ngram_size": n} for n in (2, 3)}
    plain = {"beam_width": arguments.beam, "length_penalty": usual}
    changed = {f"{beam}, {name}": {**plain, **change} for name, change in changes.items()}
    return {"greedy": {"search": "greedy"}, beam: plain, **changed}


def compare_searches(model, tokenizers, test, max_length, arguments):
    """Measures the searches on the test set, and prints a table. Seconds include compiling."""
    print(f"\n{'search':<40} {'BLEU':>6} {'length':>7} {'exact':>6} {'seconds':>8}")
    table = {}
    for name, options in searches(arguments).items():
        start = time.perf_counter()
        translations = translate(model, tokenizers, test[0], max_length, **options)
        seconds = time.perf_counter() - start
        found = bleu(translations, test[1])
        row = {"BLEU": found.score, "length": found.sys_len / found.ref_len}
        row |= {"exact": accuracy(translations, test[1]), "seconds": seconds}
        print(
            f"{name:<40} {row['BLEU']:6.2f} {row['length']:7.3f} {row['exact']:6.1%} "
            f"{seconds:8.1f}",
            flush=True,
        )
        table[name] = {"options": options, **row}
    return table
