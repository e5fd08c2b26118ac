"""Files and folders that are written completely or not at all, and the settings of a run."""

import collections
import contextlib
import csv
import hashlib
import io
import json
import pathlib
import shutil
import tempfile

import filelock
import numpy as np

NUL = "holds a NUL, which no text holds. If it is UTF-16, convert it: iconv -f utf-16 -t utf-8"
LOCKS = {}  # of the folders that this process owns


def make_folder(path):
    """Makes a folder for results. Refuses one that cannot be written, before any work is done."""
    try:
        path.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=path) as file:
            file.write(bytes(4096))
    except OSError as error:
        refuse(f"--output {path}", f"{error.strerror}. Choose a folder that can be written")
    return path


def own_folder(path):
    """Makes a folder for results, and refuses other runs there until this process ends."""
    folder = make_folder(path).resolve()
    try:
        LOCKS.setdefault(folder, filelock.FileLock(folder / ".lock")).acquire(blocking=False)
    except filelock.Timeout:
        remedy = "Wait until it ends, or choose another --output"
        refuse(f"--output {path}", f"another run writes into this folder. {remedy}")
    return path


def refuse(place, problem):
    """Ends the program: what is wrong, and in which file or line."""
    raise SystemExit(f"{place}: {problem}. Nothing was written.")


def read_text(path):
    """Reads a text file in UTF-8, without the byte-order mark of programs on Windows."""
    try:
        text = pathlib.Path(path).read_bytes().decode().removeprefix("\ufeff")
        return text if "\0" not in text else refuse(path, NUL)
    except UnicodeDecodeError as error:
        found = "utf-16" if error.object[:2] in (b"\xff\xfe", b"\xfe\xff") else "latin1"
        cure = f"Convert it, for example: iconv -f {found} -t utf-8"
        refuse(path, f"not UTF-8 at byte {error.start} ({error.object[error.start]:#04x}). {cure}")
    except OSError as error:
        refuse(path, error.strerror)


def read_table(path):
    """Yields the rows of a `.csv` file that are not empty: their first lines, and their cells."""
    csv.field_size_limit(2**31 - 1)
    reader, line = csv.reader(io.StringIO(read_text(path), newline=""), strict=True), 1
    try:
        for cells in reader:
            if cells:
                yield line, cells
            line = reader.line_num + 1
    except csv.Error as error:
        remedy = 'Close it, and write "" for a quote inside a quoted cell'
        refuse(f"{path}, line {line}", f"a quote is in the wrong place ({error}). {remedy}")


def check_classes(source, labels, folds, unit):
    """Prints the size of each class. Ends the program where one is smaller than the folds."""
    counts = collections.Counter(labels)
    listed = ", ".join(f"{count:,} {label}" for label, count in sorted(counts.items()))
    print(f"{source}: {counts.total():,} {unit} ({listed})")
    small = min(counts, key=counts.get)
    if len(counts) < 2:
        refuse(source, f"all {unit} are of the class {small!r}; at least two are needed")
    if counts[small] < folds:
        few = f"has {counts[small]} {unit}, fewer than the {folds} folds"
        refuse(source, f"the class {small!r} {few}. Give fewer --folds, or more {unit}")


@contextlib.contextmanager
def whole_file(path):
    """Gives the name of a temporary file or folder, which then replaces `path` in one step."""
    temporary, old = (path.with_name(f"{part}-{path.name}") for part in ("tmp", "old"))
    try:
        remove(temporary)
        yield temporary
        if temporary.is_dir() and path.is_dir():
            # No single step replaces a folder that is not empty.
            remove(old)
            path.rename(old)
        temporary.replace(path)
        remove(old)
    except OSError as error:
        remedy = "Free space on the disk or choose another --output, then run the same command"
        wrong = f"{path} cannot be written: {error.strerror or error}"
        raise SystemExit(f"{wrong}. Earlier results are unchanged. {remedy} again.") from error
    finally:
        remove(temporary)


def remove(path):
    """Deletes a file or a folder, if it is there."""
    with contextlib.suppress(OSError):
        path.unlink()
    shutil.rmtree(path, ignore_errors=True)


def write_text(path, text):
    with whole_file(path) as temporary:
        temporary.write_text(text, encoding="utf-8", newline="")


def write_json(path, value):
    write_text(path, json.dumps(value, indent=1, ensure_ascii=False) + "\n")


def save_figure(path, figure):
    """Writes a matplotlib figure as a PNG."""
    with whole_file(path) as temporary:
        figure.savefig(temporary, format="png")


def fingerprint(*data):
    """A digest of arrays, or of what JSON can store, to tell whether two runs had the same data."""
    digest = hashlib.sha256()
    for part in data:
        if isinstance(part, np.ndarray):
            digest.update(f"{part.dtype} {part.shape}".encode())
            digest.update(np.ascontiguousarray(part).data)
        else:
            digest.update(json.dumps(part).encode())
    return digest.hexdigest()


class Results:
    """A list of results in a JSON file, which stays valid if the process is killed."""

    def __init__(self, path, settings):
        self.path = pathlib.Path(path)
        check_settings(self.path.with_name("settings.json"), settings)
        self.results = read_json(self.path, list) or []

    def find(self, **names):
        """The first result with these entries, or None."""
        return next((x for x in self.results if names.items() <= x.items()), None)

    def add(self, result):
        self.results.append(result)
        write_json(self.path, self.results)


def check_settings(path, settings):
    """Writes the settings of a run, or refuses a folder that holds a run with other settings."""
    new = json.loads(json.dumps(settings))  # it turns tuples into lists
    old = read_json(path, dict)
    if old is None:
        write_json(path, new)
        return
    names = [name for name in sorted({*old, *new}) if old.get(name) != new.get(name)]
    if names:
        changed = "; ".join(f"{x}: {old.get(x)!r} then, {new.get(x)!r} now" for x in names)
        remedy = f"Choose another --output, or delete {path.parent}"
        refuse(path, f"belongs to a run with other settings ({changed}). {remedy}")


def read_json(path, kind):
    """What a JSON file of a run holds, a list or a dictionary; None if there is no file."""
    if not path.exists():
        return None
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        if not isinstance(found, kind):
            raise ValueError(f"expected a {kind.__name__}, found {str(found)[:40]}")
        return found
    except (OSError, ValueError) as error:
        refuse_damaged(path, error)


def refuse_damaged(path, problem):
    """Ends the program where a file of an earlier run cannot be used."""
    remedy = f"Delete {path.parent} to start again, or choose another --output"
    refuse(path, f"cannot be used ({problem}). {remedy}")
