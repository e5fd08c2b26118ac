"""Reads stories with questions in the format of bAbI, and names what is wrong with a file."""

import pathlib
import re
from typing import NamedTuple

ARCHIVE = "https://s3.amazonaws.com/text-datasets/babi_tasks_1-20_v1-2.tar.gz"
FOLDERS = {"1k": "en", "10k": "en-10k"}
# Names of the tasks 1 to 20, as the files spell them.
NAMES = """
    single-supporting-fact two-supporting-facts three-supporting-facts two-arg-relations
    three-arg-relations yes-no-questions counting lists-sets simple-negation indefinite-knowledge
    basic-coreference conjunction compound-coreference time-reasoning basic-deduction
    basic-induction positional-reasoning size-reasoning path-finding agents-motivations
""".split()  # noqa: SIM905


class Question(NamedTuple):
    """A question about the sentences before it.

    facts: the numbers of the deciding sentences, counted from 0.
    """

    story: tuple
    text: str
    answer: str
    facts: tuple


def find_files(folder, size):
    """Finds the training and test file of each task: `{number: (path, path)}`, in order.

    Args:
        folder: a folder with the files of all tasks, or with the folders "en" and "en-10k".
        size: "1k" or "10k".
    """
    folder = pathlib.Path(folder)
    if not folder.is_dir():
        raise SystemExit(
            f"{folder}: not a folder. Give the folder with the files qa1_..._train.txt, or the "
            "folder of the archive, which has the folders en and en-10k. Nothing was written."
        )
    inner = folder / FOLDERS[size]
    if inner.is_dir():
        folder = inner
    found = {}
    for path in sorted(folder.iterdir()):
        match = re.fullmatch(r"qa([1-9]\d*)_.*_(train|test)\.txt", path.name)
        if match:
            paths = found.setdefault(int(match[1]), {})
            if match[2] in paths:
                raise SystemExit(
                    f"{path} and {paths[match[2]].name}: both are of task {match[1]}. Remove "
                    "one. Nothing was written."
                )
            paths[match[2]] = path
    if not found:
        raise SystemExit(
            f"{folder}: holds no file such as qa1_single-supporting-fact_train.txt, nor is there "
            f"a folder {FOLDERS[size]} in it with some. Nothing was written."
        )
    for number in sorted(found):
        for kind in {"train", "test"} - set(found[number]):
            print(f"{folder}: task {number} has no {kind} file, and is left out")
    pairs = {n: (found[n].get("train"), found[n].get("test")) for n in sorted(found)}
    pairs = {n: pair for n, pair in pairs.items() if all(pair)}
    if not pairs:
        raise SystemExit(f"{folder}: no task has a train and a test file. Nothing was written.")
    return pairs


def read(path):
    """Reads the questions of a file."""
    try:
        text = path.read_bytes().decode().removeprefix("\ufeff")
    except OSError as error:
        raise SystemExit(f"{path}: {error.strerror}. Nothing was written.") from error
    except UnicodeDecodeError as error:
        raise SystemExit(
            f"{path}: not UTF-8 at byte {error.start} ({error.object[error.start]:#04x}). Convert "
            "it, for example: iconv -f latin1 -t utf-8. Nothing was written."
        ) from error
    questions, last, story, places = [], 0, [], {}
    for line, content in enumerate(text.split("\n"), 1):
        if not content.strip():
            continue
        try:
            number, content = _numbered(content, last)
            if number == 1:
                story, places = [], {}
            last = number
            if "\t" in content:
                questions.append(_question(content, story, places))
            else:
                places[number] = len(story)
                story.append(content.strip())
        except ValueError as error:
            raise SystemExit(f"{path}, line {line}: {error}. Nothing was written.") from error
    if not questions:
        raise SystemExit(f"{path}: holds no question. Nothing was written.")
    return questions


def _numbered(content, last):
    number, _, content = content.strip().partition(" ")
    if not number.isascii() or not number.isdigit() or not content.strip():
        raise ValueError(
            f"expected a number, a space and a sentence, found {(number + ' ' + content)[:80]!r}"
        )
    if int(number) not in (1, last + 1):
        wanted = f"{last + 1}, or 1 for a new story" if last else "1"
        raise ValueError(f"expected the number {wanted}, found {number}")
    return int(number), content


def _question(content, story, places):
    text, answer, *facts = (part.strip() for part in content.split("\t"))
    if not text or not answer or len(facts) > 1:
        raise ValueError(
            "expected a question, a tab, its answer, and after another tab the numbers of the "
            f"sentences that decide; found {content[:80]!r}"
        )
    numbers = facts[0].split() if facts else []
    for number in numbers:
        if not number.isascii() or not number.isdigit() or int(number) not in places:
            raise ValueError(f"the deciding sentence {number!r} is none of the story before")
    return Question(tuple(story), text, answer, tuple(places[int(n)] for n in numbers))
