"""Translation with attention: `python -m examples.translation`."""
