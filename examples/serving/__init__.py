"""A server for the SavedModels of the tasks: `python -m examples.serving`."""
