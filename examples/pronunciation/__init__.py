"""Letters to phones with hard and soft attention: `python -m examples.pronunciation`."""
