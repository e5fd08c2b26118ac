"""Documents with labels: read from files, split into sentences of words, turned into ids."""

import json
import pathlib
from typing import NamedTuple

import numpy as np
import tensorflow as tf

# After one of these and a space, or after a line break, a new sentence begins.
ENDS = [".", "!", "?", "…", "。", "！", "？"]
SPACE, SIGN = r"[\s\v\p{Z}]", r"[^\s\v\p{Z}\p{L}\p{M}\p{N}]"
LINE_BREAK = rf"{SPACE}*[\n\r\x{{2028}}\x{{2029}}]{SPACE}*"
CLOSING = ['"', "'", ")", "]", "}", "»", "”", "’"]


class Document(NamedTuple):
    name: str
    text: str
    label: str


# --- reading -------------------------------------------------------------------------------------


def read(path):
    """Documents of a folder with a sub-folder a class, or of a file with a JSON object a line."""
    path = pathlib.Path(path)
    if path.is_dir():
        documents = _read_folder(path)
    elif path.is_file():
        documents = _read_lines(path)
    else:
        raise SystemExit(
            f"{path}: not there. Give a folder with one sub-folder a class and a file a document, "
            'or a file with lines like {"text": "...", "label": "..."}. Nothing was written.'
        )
    for document in documents:
        try:
            (document.text + document.label).encode()
        except UnicodeEncodeError as error:
            half = error.object[error.start]
            raise SystemExit(
                f"{path}, {document.name}: {half!a} is half of a character. Nothing was written."
            ) from error
        if "\0" in document.text + document.label:
            raise SystemExit(
                f"{path}, {document.name}: holds a NUL character. If it is UTF-16, convert it: "
                "iconv -f utf-16 -t utf-8. Nothing was written."
            )
    labels = sorted({document.label for document in documents})
    if len(labels) < 2:
        raise SystemExit(
            f"{path}: all {len(documents)} documents are of the class {labels[0]!r}; there must be "
            "two classes at least. Nothing was written."
        )
    return documents


def _read_folder(path):
    folders = sorted(p for p in path.iterdir() if p.is_dir() and not p.name.startswith("."))
    if not folders:
        raise SystemExit(
            f"{path}: has no sub-folder. Put the documents of every class into a folder of their "
            f"own, such as {path / 'pos'} and {path / 'neg'}. Nothing was written."
        )
    documents = []
    for folder in folders:
        files = sorted(p for p in folder.iterdir() if p.is_file() and not p.name.startswith("."))
        if not files:
            raise SystemExit(
                f"{folder}: the class has no document. Put its files there, or delete the folder. "
                "Nothing was written."
            )
        for file in files:
            documents.append(Document(f"{folder.name}/{file.name}", _text(file), folder.name))
    return documents


def _text(path):
    try:
        # Windows begins a file with a mark.
        return path.read_bytes().decode().removeprefix("\ufeff")
    except UnicodeDecodeError as error:
        raise SystemExit(
            f"{path}: not UTF-8 at byte {error.start} ({error.object[error.start]:#04x}). Convert "
            f"it, for example: iconv -f latin1 -t utf-8. Nothing was written."
        ) from error
    except OSError as error:
        raise SystemExit(f"{path}: {error.strerror}. Nothing was written.") from error


def _read_lines(path):
    documents = []
    for number, line in enumerate(_text(path).split("\n"), 1):
        if not line.strip():
            continue
        try:
            entry = json.loads(line)
        except ValueError as error:
            raise SystemExit(
                f"{path}, line {number}: not JSON ({error}). Nothing was written."
            ) from error
        text, label = (
            entry.get(name) if isinstance(entry, dict) else None for name in ("text", "label")
        )
        # An integer; of True and False Python says that they are.
        known = isinstance(label, (str, int)) and not isinstance(label, bool)
        if not isinstance(text, str) or not known or not str(label).strip():
            raise SystemExit(
                f"{path}, line {number}: expected an object with a string `text` and a `label`, a "
                f"string or an integer; found {line.strip()[:80]}. Nothing was written."
            )
        documents.append(Document(f"line {number}", text, str(label)))
    if not documents:
        raise SystemExit(f"{path}: holds no document. Nothing was written.")
    return documents


# --- text to ids ---------------------------------------------------------------------------------


def split_sentences(texts, longest):
    """Sentences of words, numbers and single signs, inside TensorFlow.

    A sentence ends at a line break, and where white space follows . ! ? or the like and the quotes
    and brackets that close behind it. One of more
    than `longest` words goes on as the next one, so that a batch is never as wide as its strangest
    sentence, and nothing is lost.

    Args:
        texts: `(B,)` strings.

    Returns:
        Ragged `(B, S, W)`: words, the byte where each begins, the byte after it.
    """
    import tensorflow_text

    words, begins, ends = tensorflow_text.regex_split_with_offsets(
        tf.strings.regex_replace(texts, r"\x00", " "),  # where it would take the text to end
        delim_regex_pattern=f"{LINE_BREAK}|{SPACE}+|{SIGN}",
        keep_delim_regex_pattern=f"{LINE_BREAK}|{SIGN}",
    )
    rows, size = words.value_rowids(), words.nrows()
    words, begins, ends = (x.flat_values for x in (words, begins, ends))

    # Whether white space is before each token, or another text.
    last = tf.concat([[-1], ends[:-1]], 0)[: tf.size(words)]
    other = tf.concat([[-1], rows[:-1]], 0)[: tf.size(words)] != rows
    gap = begins != last
    done = _among(words, ENDS)
    closing = _among(words, CLOSING) & ~gap
    for _ in range(3):  # closing signs in a row
        done |= closing & _shifted(done)
    done = _shifted(done)
    is_break = tf.strings.regex_full_match(words, f"{SPACE}+")
    numbers = tf.cumsum(tf.cast(other | _shifted(is_break) | (done & gap), "int64"))

    numbers, rows, words, begins, ends = (
        tf.boolean_mask(x, ~is_break) for x in (numbers, rows, words, begins, ends)
    )
    # Where in its sentence each word is, and with that in which piece of it.
    _, index, counts = tf.unique_with_counts(numbers, tf.int64)
    total = tf.size(words, tf.int64)
    place = tf.range(total) - tf.gather(tf.cumsum(counts, exclusive=True), index)
    _, _, counts = tf.unique_with_counts(index * (total + 1) + place // longest, tf.int64)
    rows = tf.gather(rows, tf.cumsum(counts, exclusive=True))
    return [
        tf.RaggedTensor.from_value_rowids(tf.RaggedTensor.from_row_lengths(x, counts), rows, size)
        for x in (words, begins, ends)
    ]


def _shifted(flags):
    return tf.concat([[False], flags[:-1]], 0)[: tf.size(flags)]


def _among(tokens, wanted):
    return tf.reduce_any(tokens[:, None] == tf.constant(wanted), axis=1)


class Encoded(NamedTuple):
    """Word ids of many documents in one row.

    words: `(N,)`. sentences: `(M + 1,)`, where in `words` each sentence begins. documents:
    `(D + 1,)`, where in `sentences` each document begins. labels: `(D,)`.
    """

    words: np.ndarray
    sentences: np.ndarray
    documents: np.ndarray
    labels: np.ndarray

    @property
    def sizes(self):
        """`(D, 2)`, the number of sentences of each document and of words in its longest one."""
        lengths = np.append(np.diff(self.sentences), 0)
        longest = [lengths[a:b].max(initial=0) for a, b in zip(*self._bounds(), strict=True)]
        return np.stack([np.diff(self.documents), longest], axis=1)

    def padded(self, index, multiple=1):
        """Ids `(B, S, W)` of some of the documents; S and W are multiples of `multiple`."""
        lengths = np.diff(self.sentences)
        spans = [(self.documents[n], self.documents[n + 1]) for n in index]
        sentences = max((b - a for a, b in spans), default=0)
        words = max((lengths[a:b].max(initial=0) for a, b in spans), default=0)
        shape = (-(-max(size, 1) // multiple) * multiple for size in (sentences, words))
        ids = np.zeros((len(index), *shape), "int32")
        for row, (a, b) in enumerate(spans):
            inside = np.arange(ids.shape[2]) < lengths[a:b, None]
            ids[row, : b - a][inside] = self.words[self.sentences[a] : self.sentences[b]]
        return ids

    def _bounds(self):
        return self.documents[:-1], self.documents[1:]


def encode(texts, labels, vocabulary, longest):
    """Encodes texts; `vocabulary` takes flat tokens to ids."""
    parts = []
    for start in range(0, max(len(texts), 1), 500):
        sentences = split_sentences(tf.constant(texts[start : start + 500], "string"), longest)[0]
        lengths = sentences.values.row_lengths(), sentences.row_lengths()
        parts.append([x.numpy() for x in (vocabulary(sentences.flat_values), *lengths)])
    words, sentences, documents = (np.concatenate(part) for part in zip(*parts, strict=True))
    splits = (np.concatenate([[0], np.cumsum(x)]) for x in (sentences, documents))
    return Encoded(words, *splits, np.array(labels, "int32"))
