"""Reads two text files whose lines are translations of each other."""

import itertools


def load_pairs(paths, keep_empty=False):
    """Reads two line-aligned text files as two lists of strings.

    Pairs with an empty line are left out. Pass `keep_empty` for a test set, which must stay
    complete.
    """
    every = list(read_pairs(paths))
    pairs = [pair for pair in every if keep_empty or all(pair)]
    if not pairs:
        raise SystemExit(f"{paths[0]} and {paths[1]} hold no pair of lines. Nothing was written.")
    if len(pairs) < len(every):
        print(f"{paths[0]}: {len(every) - len(pairs)} pairs with an empty line left out")
    return [a for a, _ in pairs], [b for _, b in pairs]


def read_pairs(paths):
    """Yields the pairs of lines of two line-aligned text files, one at a time."""
    files = [read_lines(path) for path in paths]
    for number, pair in enumerate(itertools.zip_longest(*files)):
        if None in pair:
            counts = [
                number + sum(1 for _ in file) + (line is not None)
                for file, line in zip(files, pair, strict=True)
            ]
            raise SystemExit(
                f"{paths[0]} has {counts[0]} lines and {paths[1]} has {counts[1]}: line n of one "
                "must be the translation of line n of the other. Nothing was written."
            )
        yield pair


def read_lines(path):
    """Yields the lines of a text file, without the spaces around them."""
    try:
        # In text mode, lines would also end at a carriage return inside a sentence.
        with open(path, "rb") as file:
            for number, line in enumerate(file, 1):
                # Some editors write a byte order mark at the start of a file.
                yield _decode(line, path, number).removeprefix("\ufeff" * (number == 1))
    except OSError as error:
        raise SystemExit(f"{path}: {error.strerror}. Nothing was written.") from error


def _decode(line, path, number):
    try:
        return line.decode("utf-8").strip()
    except UnicodeDecodeError as error:
        raise SystemExit(
            f"{path}, line {number}: not UTF-8. Convert it, for example with iconv -f latin1 -t "
            "utf-8. Nothing was written."
        ) from error
