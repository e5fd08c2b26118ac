"""Word vectors from a file of GloVe or fastText."""

import numpy as np


def read_vectors(path, wanted):
    """Reads the vectors of the words in `wanted`: a dictionary from words to `(d,)`.

    A file of fastText begins with the number of words and the width.
    """
    found, width = {}, None
    try:
        with open(path, encoding="utf-8") as lines:
            for number, line in enumerate(lines, 1):
                parts = line.split()
                if number == 1 and len(parts) == 2 and all(part.isdigit() for part in parts):
                    continue
                width = width or len(parts) - 1
                # Split from the right: in some files words contain spaces.
                word, *numbers = line.rstrip().rsplit(" ", max(width, 1))
                try:
                    vector = np.array(numbers, "float32")
                except ValueError:
                    vector = np.array([np.nan])
                if len(vector) != width or width < 2 or not np.isfinite(vector).all():
                    raise SystemExit(
                        f"{path}, line {number}: expected a word and {max(width, 2)} finite "
                        "numbers with single spaces between them, "
                        f"found {line[:60]!r}. Nothing was written."
                    )
                if word in wanted:
                    found[word] = vector
    except OSError as error:
        raise SystemExit(f"{path}: {error.strerror}. Nothing was written.") from error
    except UnicodeDecodeError as error:
        raise SystemExit(f"{path}: not UTF-8 ({error}). Nothing was written.") from error
    if not found:
        raise SystemExit(f"{path}: holds none of the words of the training data.")
    return found


def first_vectors(vocabulary_words, found, sizes, seed):
    """The initial embedding: given vectors, and random ones with the same spread for the rest."""
    given = np.stack(list(found.values()))
    vectors = np.random.default_rng(seed).normal(given.mean(), given.std(), (sizes, given.shape[1]))
    for n, word in enumerate(vocabulary_words, 1):
        if word in found:
            vectors[n] = found[word]
    return vectors.astype("float32")
