"""Trains a translator on all GPUs of a machine, with TensorFlow.

`tf.distribute.MirroredStrategy` copies the model to every device, divides every batch, and adds the
gradients. Without GPUs, two simulated devices share the processor.

It prints the loss of every epoch. It is the same on any number of devices, up to rounding.
"""

import os

os.environ["KERAS_BACKEND"] = "tensorflow"

import tensorflow as tf

from examples.common.arguments import count, run
from examples.distribution.training import check_sizes, script_parser, train


def main(argv=None):
    parser = script_parser("mirrored", __doc__)
    parser.add_argument("--devices", type=count, help="default: all GPUs, or two simulated devices")
    options = parser.parse_args(argv)
    devices = [f"GPU:{n}" for n, _ in enumerate(tf.config.list_physical_devices("GPU"))]
    if not devices:
        [processor] = tf.config.list_physical_devices("CPU")
        simulated = [tf.config.LogicalDeviceConfiguration()] * max(options.devices or 0, 2)
        tf.config.set_logical_device_configuration(processor, simulated)
        devices = [f"CPU:{n}" for n, _ in enumerate(simulated)]
    if options.devices and options.devices > len(devices):
        parser.error(f"--devices must be at most {len(devices)}, the number of GPUs")
    devices = devices[: options.devices]
    check_sizes(parser, options, len(devices))
    strategy = tf.distribute.MirroredStrategy(devices)
    print(f"devices: {', '.join(devices)}")
    # Layers and optimizers make their variables here, and every device gets a copy.
    with strategy.scope():
        return train(options)


if __name__ == "__main__":
    run(main)
