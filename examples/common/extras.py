"""Checks for packages that a task needs besides keras_attention."""

import importlib.util


def check_extras(*packages, extra="examples"):
    """Ends the program with the command that installs the missing packages."""
    missing = [name for name in packages if importlib.util.find_spec(name) is None]
    if missing:
        raise SystemExit(
            f"{', '.join(missing)}: not installed. Run "
            f'python -m pip install "keras-attention-layers[{extra}]"'
        )
