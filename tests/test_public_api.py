"""What is public changes on purpose only."""

import difflib

import pytest

pytest.importorskip("matplotlib", reason="plotting needs matplotlib")

from tests.public_api import FILE, text


def test_what_is_public_is_written_down():
    """After a change on purpose, `python -m tests.public_api` writes the file again."""
    difference = difflib.unified_diff(
        FILE.read_text("utf-8").splitlines(), text().splitlines(), "public_api.txt", "the package"
    )
    assert "\n".join(difference) == "", "if this is on purpose: python -m tests.public_api"
