"""Asks a SavedModel of an example from a process that has neither keras nor keras_attention.

    python examples/run_saved_model.py output/translate/saved_model '{"texts": ["3rd of May 1998"]}'

takes the inputs by name as JSON, each a list of strings; without them, from standard input. It
prints one JSON object: what `serving_default` returned, and the modules that were missing. It needs
tensorflow, and of tensorflow-text the compiled operations alone.
"""

import importlib.util
import json
import pathlib
import sys

ABSENT = ("keras", "keras_attention", "tf_keras")


class _Without:
    """An import finder that does not find some packages, as if they were not installed."""

    def __init__(self, finder):
        self.finder = finder

    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ABSENT:
            return None
        return self.finder.find_spec(name, path, target)

    def __getattr__(self, name):
        return getattr(self.finder, name)


def load_text_operations():
    """Registers tensorflow-text's operations without importing it, since it imports keras."""
    import tensorflow as tf

    spec = importlib.util.find_spec("tensorflow_text")
    if spec is None:
        raise SystemExit('tensorflow-text is missing: pip install "keras-attention-layers[text]"')
    for library in sorted((pathlib.Path(spec.origin).parent / "python" / "ops").glob("*.so")):
        tf.load_op_library(str(library))


def main(directory, inputs):
    sys.meta_path[:] = map(_Without, sys.meta_path)
    import tensorflow as tf

    load_text_operations()
    loaded = tf.saved_model.load(directory)
    inputs = {name: tf.constant(texts, tf.string) for name, texts in json.loads(inputs).items()}
    outputs = loaded.signatures["serving_default"](**inputs)
    found = sorted(set(ABSENT) & set(sys.modules))
    if found:
        raise SystemExit(f"this process was to run without {', '.join(found)}, but has it")
    result = {name: _decoded(value.numpy().tolist()) for name, value in outputs.items()}
    print(json.dumps({"absent": ABSENT, **result}))


def _decoded(value):
    if isinstance(value, list):
        return [_decoded(item) for item in value]
    return value.decode() if isinstance(value, bytes) else value


if __name__ == "__main__":
    if len(sys.argv) not in (2, 3):
        raise SystemExit(__doc__)
    main(sys.argv[1], sys.argv[2] if len(sys.argv) == 3 else sys.stdin.read())
