"""Classification of documents: `python -m examples.documents`."""
