"""The version, from which the build reads that of the distribution."""

__version__ = "0.1.0"
