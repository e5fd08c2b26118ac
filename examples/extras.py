"""Packages that an example needs beside keras_attention."""

import importlib.util


def check_extras(*packages):
    missing = [name for name in packages if importlib.util.find_spec(name) is None]
    if missing:
        raise SystemExit(
            f"{', '.join(missing)}: not installed. Run "
            'python -m pip install "keras-attention-layers[examples]"'
        )
