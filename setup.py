"""Makes the links of the README whole, for the package index; `pyproject.toml` has all else."""

import re
import tomllib
from pathlib import Path

from setuptools import setup

ROOT = Path(__file__).parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]


def readme():
    """README.md, with links to files of the repository as they are in this version."""
    text = (ROOT / "keras_attention" / "_version.py").read_text("utf-8")
    version = re.search(r'^__version__ = "(.*)"', text, re.MULTILINE)[1]
    source = PROJECT["urls"]["Source"]

    def whole(match):
        kind = "raw" if match[1] else "blob"
        return f"{match[1]}[{match[2]}]({source}/{kind}/v{version}/{match[3]})"

    local = r"(!?)\[([^\]]*)\]\((?![a-z]+:|#)([^)]+)\)"
    return re.sub(local, whole, (ROOT / "README.md").read_text("utf-8"))


setup(long_description=readme(), long_description_content_type="text/markdown")
