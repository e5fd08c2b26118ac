"""The searches of keras-tuner, in this process or with a chief and workers."""

import json
import os
import socket
import subprocess
import sys
import time
import warnings

import keras_tuner

from examples.tuning.model import DateTranslator


def make_tuner(name, options):
    """The tuner of one search. It resumes after the trials in its folder.

    Raises:
        SystemExit: a kill has damaged the state of the search.
    """
    common = {
        "hypermodel": DateTranslator(options.seed),
        "objective": keras_tuner.Objective("val_accuracy", "max"),
        "directory": str(options.output),
        "project_name": name,
        "seed": options.seed,
        # The first failure ends the search, so that no failure is hidden.
        "max_consecutive_failed_trials": 1,
    }
    try:
        if name == "hyperband":
            # It continues with the weights of an earlier trial, but not with its optimizer.
            warnings.filterwarnings("ignore", "Skipping variable loading for optimizer")
            tuner = keras_tuner.Hyperband(max_epochs=options.epochs, factor=3, **common)
        else:
            tuner = keras_tuner.BayesianOptimization(
                max_trials=options.trials, num_initial_points=3, **common
            )
    except json.JSONDecodeError as error:
        raise SystemExit(
            f"{options.output / name} is damaged, as a kill may leave it ({error}). Delete it to "
            "start the search again."
        ) from None
    # keras-tuner writes a new trial first, and then the state of the search, which names it. A kill
    # between the two leaves a trial that would never run.
    oracle = tuner.oracle
    if hasattr(oracle, "start_order"):  # a worker only talks to the chief, which has it
        for begun in set(oracle.trials) - set(oracle.start_order):
            del oracle.trials[begun]
    return tuner


def search_distributed(name, workers, argv):
    """Runs a search with a chief and workers, as processes of this machine.

    keras-tuner itself would wait for ever if one of them died, so all of them end then.
    """
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    command = [sys.executable, "-m", "examples.tuning", *argv, "--searches", name]
    processes = {}
    try:
        for role in ["chief", *(f"worker-{n + 1}" for n in range(workers))]:
            variables = {
                "KERASTUNER_TUNER_ID": role,
                "KERASTUNER_ORACLE_IP": "127.0.0.1",
                "KERASTUNER_ORACLE_PORT": str(port),
            }
            processes[role] = subprocess.Popen(command, env={**os.environ, **variables})
        print(
            f"{name}: processes " + ", ".join(f"{x} {p.pid}" for x, p in processes.items()),
            flush=True,
        )
        # The chief itself ends up to 20 seconds after the workers.
        while any(p.poll() is None for role, p in processes.items() if role != "chief"):
            time.sleep(0.5)
            for role, process in processes.items():
                if process.poll():
                    raise SystemExit(
                        f"{name}: {role} ended with status {process.returncode}. Finished trials "
                        "are kept. Run the same command to resume."
                    )
    finally:
        # The chief stops last, because it writes what the workers report.
        for process in reversed(processes.values()):
            process.terminate()
            process.wait()
