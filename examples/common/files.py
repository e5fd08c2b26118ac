"""Files and folders that are written completely or not at all, and checked when they are read."""

import contextlib
import hashlib
import shutil
import tempfile

import numpy as np


def make_folder(path):
    """Makes a folder for results. Refuses one that cannot be written, before any work is done."""
    try:
        path.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=path) as file:
            file.write(bytes(4096))
    except OSError as error:
        raise SystemExit(
            f"--output {path}: {error.strerror}. Choose a folder that can be written."
        ) from error
    return path


@contextlib.contextmanager
def whole_file(path):
    """Gives the name of a temporary file or folder, which then replaces `path` in one step.

    Raises:
        SystemExit: the file cannot be written. An earlier file of this name is unchanged.
    """
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
        raise SystemExit(
            f"{path} cannot be written: {error.strerror or error}. Earlier results are unchanged. "
            "Free space on the disk or choose another --output, then run the same command again."
        ) from error
    finally:
        remove(temporary)


def remove(path):
    """Deletes a file or a folder, if it is there."""
    with contextlib.suppress(OSError):
        path.unlink()
    shutil.rmtree(path, ignore_errors=True)


def write_bytes(path, data):
    with whole_file(path) as temporary:
        temporary.write_bytes(data)


def write_text(path, text):
    write_bytes(path, text.encode())


def save_figure(path, figure):
    """Writes a matplotlib figure as a PNG."""
    with whole_file(path) as temporary:
        figure.savefig(temporary, format="png")


def read_unchanged(path, digest, folder):
    """Returns the bytes of a file. Refuses the file if its `fingerprint` is not `digest`.

    Args:
        path: the file.
        digest: the fingerprint that was noted when the file was written.
        folder: the folder that the message tells the user to delete.
    """
    try:
        data = path.read_bytes()
    except OSError as error:
        raise refusal(path, f"cannot be read ({error.strerror})", folder) from error
    if fingerprint(data) != digest:
        raise refusal(path, "was changed after it was written: its digest differs", folder)
    return data


def refusal(path, problem, folder):
    return SystemExit(
        f"{path} {problem}. Delete {folder} to start again, or choose another --output. Nothing "
        "was written."
    )


def fingerprint(*data):
    """A digest of bytes or arrays, to tell whether two runs had the same data."""
    digest = hashlib.sha256()
    for part in data:
        if not isinstance(part, bytes):
            digest.update(f"{part.dtype} {part.shape}".encode())
            part = np.ascontiguousarray(part).data
        digest.update(part)
    return digest.hexdigest()
