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

os.environ["KERAS_BACKEND"] = "jax"

import signal
import socket
import subprocess
import sys
import traceback

import jax
import keras

from examples.common.arguments import count, run
from examples.distribution.training import check_sizes, script_parser, train


def main():
    parser = script_parser("processes", __doc__)
    parser.add_argument("--local", type=count, help="start this many processes on this machine")
    options = parser.parse_args()
    if options.local and "KERAS_DISTRIBUTION_PROCESS_ID" not in os.environ:
        return start_processes(options.local)
    # Before anything else, because it decides which devices JAX has.
    keras.distribution.initialize()
    process, processes = jax.process_index(), jax.process_count()
    check_sizes(parser, options, jax.device_count())
    # Every process passes its own share of a batch, so Keras need not divide it.
    keras.distribution.set_distribution(keras.distribution.DataParallel(auto_shard_dataset=False))
    try:
        train(options, process, processes)
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


def start_processes(number):
    """Starts this command in several processes on this machine, and waits until all have ended."""
    command = [sys.executable, *sys.orig_argv[1:]]
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    processes = []
    try:
        for n in range(number):
            variables = {
                "KERAS_DISTRIBUTION_JOB_ADDRESSES": address,
                "KERAS_DISTRIBUTION_NUM_PROCESSES": str(number),
                "KERAS_DISTRIBUTION_PROCESS_ID": str(n),
            }
            processes.append(subprocess.Popen(command, env={**os.environ, **variables}))
            print(f"process {n}: pid {processes[n].pid}", flush=True)
        # If one dies, JAX ends the others.
        codes = [process.wait() for process in processes]
    finally:
        for process in processes:
            process.kill()
    for n, code in enumerate(codes):
        if code < 0:
            print(f"process {n} was killed by {signal.Signals(-code).name}")
    if any(codes):
        raise SystemExit("The run has failed. If a process died, the same command resumes it.")


if __name__ == "__main__":
    run(main)
