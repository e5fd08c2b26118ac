"""The finished parts of a long run, as JSON with a digest."""

import json
import pathlib

from examples.common.files import fingerprint, refusal, write_text


class Results:
    """A list of results in a JSON file, which stays valid if the process is killed at any moment.

    Args:
        path: the file.
        arguments: everything that the results depend on, as JSON can store it.
    """

    def __init__(self, path, arguments):
        self.path = pathlib.Path(path)
        self.state = read_state(self.path, {"arguments": arguments, "results": []})

    def find(self, **names):
        """The first result with these entries, or None."""
        for result in self.state["results"]:
            if all(result.get(name) == value for name, value in names.items()):
                return result
        return None

    def add(self, result):
        self.state["results"].append(result)
        self.save()

    def save(self):
        write_state(self.path, self.state)


def write_state(path, state):
    """Writes a dictionary as JSON. Its first entry is the digest of the others."""
    digest = fingerprint(json.dumps(state).encode())
    write_text(path, json.dumps({"digest": digest, **state}, indent=1) + "\n")


def read_state(path, new):
    """Reads the state from a JSON file, or returns `new` if there is no file.

    Refuses a file that is damaged or that belongs to a run with other arguments.
    """
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return new
    except (OSError, ValueError) as error:
        raise refusal(path, f"cannot be read ({error})", path.parent) from error
    complete = isinstance(found, dict) and set(found) >= {"digest", *new}
    if not complete or not isinstance(found["arguments"], dict):
        raise refusal(path, "cannot be read (it is not of this program)", path.parent)
    if found.pop("digest") != fingerprint(json.dumps(found).encode()):
        raise refusal(path, "was changed after it was written: its digest differs", path.parent)
    # JSON turns tuples into lists, so the new arguments take the same way before they are compared.
    old, arguments = found["arguments"], json.loads(json.dumps(new["arguments"]))
    changed = [
        f"{name}: {old.get(name)!r} then, {arguments.get(name)!r} now"
        for name in sorted({*old, *arguments})
        if old.get(name) != arguments.get(name)
    ]
    if changed:
        raise SystemExit(
            f"{path} is of a run with other settings ({'; '.join(changed)}). Choose another "
            f"--output, or delete {path.parent}. Nothing was written."
        )
    return found
