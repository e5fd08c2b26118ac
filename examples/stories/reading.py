"""Reads stories with questions in the format of bAbI, and names what is wrong with a file."""

import pathlib
import re
from typing import NamedTuple

from examples.common.files import read_text, refuse

ARCHIVE = "https://s3.amazonaws.com/text-datasets/babi_tasks_1-20_v1-2.tar.gz"
FOLDERS = {"1k": "en", "10k": "en-10k"}
FIELD = r"[^\S\t]*([^\t]*[^\s])[^\S\t]*"
LINE = re.compile(rf"([0-9]+) {FIELD}(?:\t{FIELD}(?:\t([0-9 ]*))?)?")


class Question(NamedTuple):
    """A question about the sentences before it.

    facts: the numbers of the deciding sentences, counted from 0.
    """

    story: tuple
    text: str
    answer: str
    facts: tuple


def find_files(folder, size):
    """Finds the training and test file of each task: `{number: {"train": path, "test": path}}`.

    They are in the folder, or in a folder of it for the size.
    """
    folder, found = pathlib.Path(folder), {}
    folder = folder / FOLDERS[size] if (folder / FOLDERS[size]).is_dir() else folder
    for path in sorted(folder.glob("qa*_*_*.txt")):
        if match := re.fullmatch(r"qa([1-9]\d*)_.*_(train|test)\.txt", path.name):
            paths = found.setdefault(int(match[1]), {})
            if match[2] in paths:
                both = f"{path} and {paths[match[2]].name}"
                refuse(both, f"both are of task {match[1]}. Remove one")
            paths[match[2]] = path
    for number in sorted(found):
        for kind in {"train", "test"} - {*found[number]}:
            print(f"{folder}: task {number} has no {kind} file, and is left out")
    found = {number: found[number] for number in sorted(found) if len(found[number]) == 2}
    if not found:
        like = f"files like qa1_single-supporting-fact_train.txt, or with a folder {FOLDERS[size]}"
        lacks = "holds no task with a train and a test file"
        refuse(folder, f"{lacks}. Give a folder with {like} of them")
    return found


def read(path):
    """Reads the questions of a file."""
    questions, last, story, places = [], 0, [], {}
    for line, content in enumerate(read_text(path).split("\n"), 1):
        if not content.strip():
            continue
        place = f"{path}, line {line}"
        match = LINE.fullmatch(content.strip())
        if not match:
            question = "a number, a space, a question, a tab, its answer, and after another tab the"
            wanted = f"a number, a space and a sentence, or {question} numbers of the sentences"
            refuse(place, f"expected {wanted} that decide; found {content[:80]!r}")
        number, text, answer, facts = int(match[1]), match[2], match[3], match[4] or ""
        if number not in (1, last + 1):
            wanted = f"{last + 1}, or 1 for a new story" if last else "1"
            refuse(place, f"expected the number {wanted}, found {number}")
        if number == 1:
            story, places = [], {}
        last = number
        if answer is None:
            places[number] = len(story)
            story.append(text)
            continue
        facts = [int(fact) for fact in facts.split()]
        if unknown := [fact for fact in facts if fact not in places]:
            refuse(place, f"the deciding sentence {unknown[0]} is none of the story before")
        questions.append(Question(tuple(story), text, answer, tuple(places[x] for x in facts)))
    if not questions:
        refuse(path, "holds no question")
    return questions
