"""Questions about a passage: `python -m examples.question_answering`."""
