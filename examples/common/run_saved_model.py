"""Runs the SavedModel of a task in a process that has neither keras nor keras_attention.

    python -m examples.common.run_saved_model output/translate/saved_model \\
        '{"texts": ["3rd of May 1998"]}'

The second argument is a JSON object with a list of strings, or of lists of numbers, for each input.
Without it, the object is read from standard input. The program prints one JSON object: the outputs
of `serving_default`, and under "absent" the modules that this process did not have.

It needs tensorflow and the compiled operations of tensorflow-text. Copy this file alone to use it
elsewhere: it imports nothing else of the examples.
"""

import importlib.util
import json
import pathlib
import sys

ABSENT = ("keras", "keras_attention", "tf_keras")


class _Without:
    """An import finder that hides some packages, as if they were not installed."""

    def __init__(self, finder):
        self.finder = finder

    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in ABSENT:
            return None
        return self.finder.find_spec(name, path, target)

    def __getattr__(self, name):
        return getattr(self.finder, name)


def forbid_keras():
    """Prevents this process from importing keras and keras_attention."""
    sys.meta_path[:] = map(_Without, sys.meta_path)


def check_absent():
    """Ends the program if one of the hidden packages was imported after all."""
    found = sorted(set(ABSENT) & set(sys.modules))
    if found:
        raise SystemExit(f"this process has imported {', '.join(found)}, which it must not need")


def load_text_operations():
    """Loads the operations of tensorflow-text. Importing the package would import keras."""
    import tensorflow as tf

    spec = importlib.util.find_spec("tensorflow_text")
    if spec is None:
        raise SystemExit('tensorflow-text is missing: pip install "keras-attention-layers[text]"')
    for library in sorted((pathlib.Path(spec.origin).parent / "python" / "ops").glob("*.so")):
        tf.load_op_library(str(library))


def read_inputs(text):
    try:
        inputs = json.loads(text)
    except ValueError as error:
        raise SystemExit(f"the inputs are not JSON: {error}") from None
    lists = isinstance(inputs, dict) and all(isinstance(x, list) for x in inputs.values())
    if not lists or not all(map(_is_input, inputs.values())):
        raise SystemExit(
            "expected a JSON object with a list of strings, or of lists of numbers of one length, "
            'for each input, like {"texts": ["a", "b"]} or {"samples": [[0.0, 0.1]]}; '
            f"received {text[:80]}"
        )
    return inputs


def _is_input(values):
    if all(isinstance(x, str) for x in values):
        return True
    rows = all(isinstance(x, list) for x in values)
    numbers = rows and all(isinstance(y, int | float) for x in values for y in x)
    return numbers and len({len(x) for x in values}) == 1


def main(directory, inputs):
    inputs = read_inputs(inputs)
    forbid_keras()
    import tensorflow as tf

    load_text_operations()
    loaded = tf.saved_model.load(directory)
    signature = loaded.signatures["serving_default"]
    names = sorted(signature.structured_input_signature[1])
    if sorted(inputs) != names or len(set(map(len, inputs.values()))) != 1:
        sizes = {name: len(texts) for name, texts in inputs.items()}
        raise SystemExit(
            f"{directory} takes lists of one length for {', '.join(names)}; received {sizes}"
        )
    specs = signature.structured_input_signature[1]
    outputs = signature(**{name: tf.constant(x, specs[name].dtype) for name, x in inputs.items()})
    check_absent()
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
