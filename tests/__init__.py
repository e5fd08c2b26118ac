"""The folders mirror the package. `conformance` holds the one table of layers."""

from pathlib import Path

ROOT = Path(__file__).parents[1]
