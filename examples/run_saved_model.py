"""Asks a SavedModel of translate.py from a process that has neither keras nor keras_attention.

    python examples/run_saved_model.py output/translate/saved_model "3rd of May 1998"

Prints one JSON object: what `serving_default` returned, and the modules that were missing. It
needs tensorflow, and of tensorflow-text the compiled operations alone.
"""

import importlib.util
import json
import pathlib
import sys


class _Absent:
    """An import hook under which some packages are not installed."""

    names = frozenset({"keras", "keras_attention", "tf_keras"})

    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in self.names:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)


def load_text_operations():
    """Registers tensorflow-text's operations without importing it, since it imports keras."""
    import tensorflow as tf

    spec = importlib.util.find_spec("tensorflow_text")
    if spec is None:
        raise SystemExit('tensorflow-text is missing: pip install "keras-attention-layers[text]"')
    for library in sorted((pathlib.Path(spec.origin).parent / "python" / "ops").glob("*.so")):
        tf.load_op_library(str(library))


def main(directory, texts):
    import tensorflow as tf

    # Only now: TensorFlow looks whether keras is there when it is imported, and leaves it at that.
    sys.meta_path.insert(0, _Absent())
    load_text_operations()
    loaded = tf.saved_model.load(directory)
    outputs = loaded.signatures["serving_default"](texts=tf.constant(texts))
    present = sorted(_Absent.names & set(sys.modules))
    result = {name: value.numpy().tolist() for name, value in outputs.items()}
    decode = lambda x: x.decode() if isinstance(x, bytes) else x  # noqa: E731
    for name, value in result.items():
        result[name] = [[decode(y) for y in x] if isinstance(x, list) else decode(x) for x in value]
    print(json.dumps({"absent": sorted(_Absent.names - set(present)), **result}))


if __name__ == "__main__":
    if len(sys.argv) < 3:
        raise SystemExit(__doc__)
    main(sys.argv[1], sys.argv[2:])
