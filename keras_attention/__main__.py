"""Print the versions that an issue needs: python -m keras_attention."""

import importlib.metadata
import platform

import keras

import keras_attention

PACKAGES = "tensorflow", "tensorflow-text", "jax", "torch", "numpy", "matplotlib", "keras-tuner"


def main() -> None:
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
