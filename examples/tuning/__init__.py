"""Search for the best attention: `python -m examples.tuning`."""
