"""Reads documents with labels from files, and names what is wrong with them."""

import json
import pathlib
from typing import NamedTuple


class Document(NamedTuple):
    name: str
    text: str
    label: str


def read(path):
    """Reads a folder with a sub-folder for each class, or a file with JSON objects as lines.

    A file of SQuAD gives its paragraphs, and the titles of their articles are the classes.
    """
    path = pathlib.Path(path)
    if path.is_dir():
        documents = _read_folder(path)
    elif path.suffix == ".json":
        documents = _read_articles(path)
    elif path.is_file():
        documents = _read_lines(path)
    else:
        raise SystemExit(
            f"{path}: not there. Give a folder with a sub-folder for each class and a file for "
            'each document, or a file with lines like {"text": "...", "label": "..."}. Nothing was '
            "written."
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
            f"{path}: all {len(documents)} documents are of the class {labels[0]!r}; at least two "
            "classes are needed. Nothing was written."
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
        # Programs on Windows write a byte-order mark at the start of a file.
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
        # Python regards True and False as integers.
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


def _read_articles(path):
    try:
        return [
            Document(
                f"{article['title']}, paragraph {number}", paragraph["context"], article["title"]
            )
            for article in json.loads(_text(path))["data"]
            for number, paragraph in enumerate(article["paragraphs"], 1)
        ]
    except (ValueError, KeyError, TypeError) as error:
        raise SystemExit(
            f"{path}: not a file of SQuAD, which holds articles in `data` ({error!r}). Other "
            'documents go into a file that ends in .jsonl, with lines like {"text": "...", '
            '"label": "..."}. Nothing was written.'
        ) from error
