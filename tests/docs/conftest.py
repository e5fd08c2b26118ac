"""The fixtures of this folder."""

from tests.browser import browser  # noqa: F401
