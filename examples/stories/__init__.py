"""Questions about stories: `python -m examples.stories`."""
