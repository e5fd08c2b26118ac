"""The version, which the build reads for the distribution."""

__version__ = "0.1.0"
