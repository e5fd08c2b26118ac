"""Print the versions that an issue needs: python -m keras_attention. See `--help` for the demo."""

import argparse
import importlib.metadata
import platform
from collections.abc import Sequence

import keras

import keras_attention
from keras_attention._demo import EXAMPLES, run_demo

PACKAGES = "tensorflow", "tensorflow-text", "jax", "torch", "numpy", "matplotlib", "keras-tuner"


def main(argv: Sequence[str] | None = None) -> None:
    """Run the command of the arguments."""
    about = "Print the versions that an issue needs, or run the demo."
    parser = argparse.ArgumentParser(prog="python -m keras_attention", description=about)
    about = "translate written dates, and print the attention"
    demo = parser.add_subparsers(dest="command").add_parser("demo", help=about, description=about)
    demo.add_argument("dates", nargs="*", default=EXAMPLES, help=f"such as {EXAMPLES[0]!r}")
    demo.add_argument("--model", metavar="FILE", help="a .keras file, instead of a download")
    options = parser.parse_args(argv)
    if options.command == "demo":
        run_demo(options.dates, options.model)
    else:
        print_versions()


def print_versions() -> None:
    """Print one line for each package that is installed."""
    print(f"keras_attention {keras_attention.__version__}, {keras_attention.__file__}")
    print(f"keras {keras.__version__}, backend {keras.backend.backend()}")
    for name in PACKAGES:
        try:
            print(f"{name} {importlib.metadata.version(name)}")
        except importlib.metadata.PackageNotFoundError:
            print(f"{name} is not installed")
    print(f"Python {platform.python_version()}, {platform.platform()}")


if __name__ == "__main__":
    main()
