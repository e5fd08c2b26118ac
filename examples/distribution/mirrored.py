"""Trains a translator on all GPUs of a machine, with TensorFlow.

`tf.distribute.MirroredStrategy` copies the model to every device, divides every batch, and adds the
gradients. Without GPUs, two simulated devices share the processor.

It prints the loss of every epoch. It is the same on any number of devices, up to rounding.
"""

import os

os.environ.setdefault("KERAS_BACKEND", "tensorflow")

import tensorflow as tf

from examples.distribution.training import check_backend, check_batch, parse, script_parser, train


def main(argv=None):
    parser = script_parser("mirrored", __doc__)
    parser.add_argument("--devices", type=int, help="default: all GPUs, or two simulated devices")
    options = parse(parser, argv, "devices")
    check_backend("tensorflow")
    devices = find_devices(options.devices)
    check_batch(parser, options, len(devices))
    strategy = tf.distribute.MirroredStrategy(devices)
    print(f"devices: {', '.join(devices)}")
    # Layers and optimizers make their variables here, and every device gets a copy.
    with strategy.scope():
        return train(options)


def find_devices(count):
    """The names of GPUs, or of simulated devices if there are none."""
    gpus = [f"GPU:{n}" for n, _ in enumerate(tf.config.list_physical_devices("GPU"))]
    if not gpus:
        [processor] = tf.config.list_physical_devices("CPU")
        simulated = [tf.config.LogicalDeviceConfiguration()] * max(count or 0, 2)
        tf.config.set_logical_device_configuration(processor, simulated)
        gpus = [f"CPU:{n}" for n, _ in enumerate(simulated)]
    if count is not None and count > len(gpus):
        raise SystemExit(
            f"--devices {count}: this machine has {len(gpus)} GPUs. Pass at most that."
        )
    return gpus[:count]


if __name__ == "__main__":
    main()
