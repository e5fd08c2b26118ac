"""Trains a translator on several devices with JAX: data parallel, or data and model parallel.

By default every device has a copy of the model and a share of each batch. With --model-parallel 2,
two devices also share the weights of the model, and together take one share of each batch. Without
GPUs, four simulated devices share the processor.

It prints the mesh of devices, the loss of every epoch, and the weights that one device holds. The
loss is the same on any mesh, up to rounding.
"""

import os

os.environ["KERAS_BACKEND"] = "jax"
os.environ.setdefault("JAX_NUM_CPU_DEVICES", "4")

import keras

from examples.common.arguments import count, run
from examples.distribution.training import check_sizes, script_parser, train
from keras_attention.distribution import get_layout_map


def main(argv=None):
    parser = script_parser("sharded", __doc__)
    parser.add_argument("--devices", type=count, help="default: all")
    parser.add_argument("--model-parallel", type=count, default=1, help="devices to share weights")
    options = parser.parse_args(argv)
    devices = keras.distribution.list_devices()
    number, split = options.devices or len(devices), options.model_parallel
    if number > len(devices):
        parser.error(
            f"--devices must be at most {len(devices)}, the number of devices. Set "
            f"JAX_PLATFORMS=cpu and JAX_NUM_CPU_DEVICES={number} to simulate more"
        )
    if number % split or options.units % split:
        parser.error(f"--model-parallel must divide --units and the number of devices, {number}")
    check_sizes(parser, options, number // split)
    distribution = make_distribution(devices[:number], split)
    print(distribution.device_mesh)
    # Layers and optimizers place their variables when they make them.
    with distribution.scope():
        model = train(options)
    values = [weight.value for weight in model.weights]
    held = sum(x.addressable_shards[0].data.size for x in values)
    print(f"each device holds {held:,} of {sum(x.size for x in values):,} weights")
    return model


def make_distribution(devices, split):
    if split == 1:
        return keras.distribution.DataParallel(devices=devices)
    shape = len(devices) // split, split
    mesh = keras.distribution.DeviceMesh(shape, ("batch", "model"), devices)
    layout_map = get_layout_map(mesh)
    # The layers of Keras around the attention are ours to place.
    layout_map["(.*/)?(source|target)_embedding/embeddings"] = (None, "model")
    layout_map["(.*/)?logits/kernel"] = (None, "model")
    return keras.distribution.ModelParallel(layout_map=layout_map, batch_dim_name="batch")


if __name__ == "__main__":
    run(main)
