"""What is public changes on purpose only."""

import difflib

import pytest

pytest.importorskip("matplotlib", reason="plotting needs matplotlib")

from tests.public_api import FILE, entries, text


def test_what_is_written_down_stays_public():
    """A new name may wait for the release, which writes the file again."""
    written, found = (entries(x) for x in (FILE.read_text("utf-8"), text()))
    found = {name: members for name, members in found.items() if name in written}
    difference = difflib.unified_diff(
        lines_of(written), lines_of(found), "public_api.txt", "package"
    )
    assert "\n".join(difference) == "", "if this is on purpose: python -m tests.public_api"


def lines_of(entries):
    return [line for name, members in sorted(entries.items()) for line in (name, *members)]
