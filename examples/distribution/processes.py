"""Trains a translator in several processes with JAX, as on several machines.

--local 2 starts two processes on this machine. On several machines, start this command in every
process; the environment says who is who (docs/howto/devices.md has commands for Slurm and
Kubernetes):

    KERAS_DISTRIBUTION_JOB_ADDRESSES   HOST:PORT of process 0
    KERAS_DISTRIBUTION_NUM_PROCESSES   how many processes there are
    KERAS_DISTRIBUTION_PROCESS_ID      the number of this one, from 0

Under srun nothing needs to be set. Every machine must see the folder --output.

Process 0 prints the loss of every epoch and writes the checkpoint. If a process dies, the others
stop. The same command then resumes after the last epoch in the checkpoint.
"""

import os

os.environ.setdefault("KERAS_BACKEND", "jax")

import re
import sys
import traceback

import jax
import keras
from jax.experimental import multihost_utils

from examples.distribution.local import start_processes
from examples.distribution.training import check_backend, check_batch, parse, script_parser, train

VARIABLES = {
    "JOB_ADDRESSES": (r".+:\d+(,.+:\d+)*", "HOST:PORT of process 0"),
    "NUM_PROCESSES": (r"\d+", "a number"),
    "PROCESS_ID": (r"\d+", "a number"),
}
# What srun sets, and JAX reads.
SLURM = ("SLURM_JOB_ID", "SLURM_STEP_NODELIST", "SLURM_NTASKS", "SLURM_PROCID", "SLURM_LOCALID")


def main(argv=None):
    argv = sys.argv[1:] if argv is None else argv
    parser = script_parser("processes", __doc__)
    parser.add_argument("--local", type=int, help="start this many processes on this machine")
    options = parse(parser, argv, "local")
    check_backend("jax")
    if options.local and "KERAS_DISTRIBUTION_PROCESS_ID" not in os.environ:
        return start_processes(options.local, [sys.executable, "-m", __spec__.name, *argv])
    check_environment()
    # Before anything else, because it decides which devices JAX has.
    keras.distribution.initialize()
    process, processes = jax.process_index(), jax.process_count()
    check_batch(parser, options, jax.device_count())
    # Every process passes its own share of a batch, so Keras need not divide it.
    distribution = keras.distribution.DataParallel(auto_shard_dataset=False)
    keras.distribution.set_distribution(distribution)
    try:
        train(options, process, processes, restored=check_same_checkpoint)
    except BaseException as error:
        problem = str(error) or "interrupted"
        if isinstance(error, Exception):
            # JAX has no error of its own for a process that died.
            traceback.print_exc()
            problem = (
                "this error has ended the run. If another process died, or cannot be reached, "
                "start the same command in all processes again; it resumes from the checkpoint in "
                f"{options.output}."
            )
        print(f"process {process}: {problem}", file=sys.stderr, flush=True)
        # A usual exit would wait minutes for the other processes.
        os._exit(1)


def check_environment():
    given = {name: os.environ.get(f"KERAS_DISTRIBUTION_{name}", "") for name in VARIABLES}
    if any(given.values()):
        for name, value in given.items():
            form, wanted = VARIABLES[name]
            if not re.fullmatch(form, value):
                raise SystemExit(
                    f"KERAS_DISTRIBUTION_{name} must be {wanted} in every process; received "
                    f"{value!r}"
                )
        return
    if all(x in os.environ for x in SLURM):
        return
    raise SystemExit(
        "Nothing says who the other processes are. Start two on this machine with --local 2, start "
        "this command with srun, or set KERAS_DISTRIBUTION_JOB_ADDRESSES, "
        "KERAS_DISTRIBUTION_NUM_PROCESSES and KERAS_DISTRIBUTION_PROCESS_ID in every process."
    )


def check_same_checkpoint(epoch):
    multihost_utils.assert_equal(
        epoch, "The processes found different checkpoints. All must see the same folder --output."
    )


if __name__ == "__main__":
    main()
