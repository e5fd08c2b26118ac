"""Pairs of texts, generated dates or files, as batches of subword ids."""

import io
import itertools

from examples.common import dates
from examples.common.files import NUL, refuse
from keras_attention.text import SentencePiece

PAD, UNKNOWN, START, END = range(4)


def load_data(options):
    """The texts: {"train": (sources, targets), "valid": ..., "test": ...}."""
    names = ("train", "valid", "test")
    if options.valid:
        paths = {name: getattr(options, name) for name in names}
        # A test set stays complete.
        pairs = {name: list(read_pairs(x, name == "test")) for name, x in paths.items() if x}
        return {name: [list(side) for side in zip(*x, strict=True)] for name, x in pairs.items()}
    sets = dates.make_pairs((12_000, 500, 1_000), seed=options.seed)
    return dict(zip(names, sets, strict=True))


def read_pairs(paths, keep_empty=False):
    """Yields the pairs of lines of two text files, whose line n is a translation of line n."""
    kept = left_out = 0
    for pair in itertools.zip_longest(*map(_read_lines, paths)):
        if None in pair:
            longer, shorter = paths if pair[1] is None else paths[::-1]
            both = f"{longer} has more lines than {shorter}, which has {kept + left_out:,}"
            refuse(both, "line n of one must be the translation of line n of the other")
        if all(pair) or keep_empty:
            kept += 1
            yield pair
        else:
            left_out += 1
    if not kept:
        refuse(" and ".join(paths), "hold no pair of lines")
    if left_out:
        print(f"{paths[0]}: {left_out:,} pairs with an empty line left out")


def _read_lines(path):
    number = 0
    try:
        # In text mode, lines would also end at a carriage return inside a sentence.
        with open(path, "rb") as file:
            for number, line in enumerate(file, 1):
                if b"\0" in line:
                    refuse(f"{path}, line {number}", NUL)
                # Some editors write a byte order mark at the start of a file.
                yield line.decode("utf-8-sig" if number == 1 else "utf-8").strip()
    except OSError as error:
        refuse(path, error.strerror)
    except UnicodeDecodeError:
        remedy = "Convert it, for example: iconv -f latin1 -t utf-8"
        refuse(f"{path}, line {number}", f"not UTF-8. {remedy}")


def learn_subwords(lines, size, kind):
    """Learns a SentencePiece model and returns its tokenizer; `kind` is "char" or "bpe"."""
    import sentencepiece

    model, lines = io.BytesIO(), list(lines)
    options = {"hard_vocab_limit": False, "character_coverage": 1.0, "minloglevel": 2}
    options |= {"normalization_rule_name": "identity", "add_dummy_prefix": kind != "char"}
    options |= {"pad_id": PAD, "unk_id": UNKNOWN, "bos_id": START, "eos_id": END}
    # SentencePiece leaves out lines with more bytes than this. Its default is 4192.
    options["max_sentence_length"] = max(4192, *(len(line.encode()) for line in lines))
    options |= {"model_type": kind, "vocab_size": size, "model_writer": model}
    sentencepiece.SentencePieceTrainer.train(sentence_iterator=iter(lines), **options)
    return SentencePiece(model.getvalue())


def encode(tokenizers, texts, backward=False):
    """Turns texts into pairs of lists of ids. With `backward`, the targets are in reverse order."""
    sources, targets = (
        [tokenizer.encode(text) for text in side]
        for tokenizer, side in zip(tokenizers, texts, strict=True)
    )
    step = -1 if backward else 1
    sources = [[*ids, tokenizers[0].end_id] for ids in sources]
    targets = [[*ids[::step], tokenizers[1].end_id] for ids in targets]  # the end stays the end
    return list(zip(sources, targets, strict=True))


def drop_long(pairs, limit, quiet=False):
    """Leaves out pairs of more than `limit` tokens, to limit memory and time."""
    kept = [pair for pair in pairs if max(map(len, pair)) <= limit]
    if not kept:
        raise SystemExit(f"no training pair has at most {limit} tokens: raise --max-tokens")
    if len(kept) < len(pairs) and not quiet:
        n = len(pairs) - len(kept)
        print(f"{n:,} of {len(pairs):,} training pairs have more than {limit} tokens: left out")
    return kept
