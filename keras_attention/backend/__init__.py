"""Differences between the backends of Keras."""

__all__ = []
