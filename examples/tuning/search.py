"""The searches of keras-tuner, in this process or with a chief and workers."""

import json
import os
import socket
import subprocess
import sys
import time
import warnings

import keras
import keras_tuner

from examples.common.files import remove, write_text
from examples.tuning.model import DateTranslator


def make_tuner(name, options):
    """The tuner of one search. It resumes after the finished trials in its folder."""
    folder = options.output / name
    # keras-tuner would reload files that a kill may have damaged.
    remove(folder / f"{os.environ.get('KERASTUNER_TUNER_ID', 'tuner0')}.json")
    keras.utils.set_random_seed(options.seed)  # with a seed of 0 keras-tuner draws one
    common = {
        "hypermodel": DateTranslator(options.seed),
        "objective": keras_tuner.Objective("val_accuracy", "max"),
        "directory": str(options.output),
        "project_name": name,
        "seed": options.seed,
        # The first failure ends the search, so that no failure is hidden.
        "max_consecutive_failed_trials": 1,
    }
    if name == "hyperband":
        # It continues with the weights of an earlier trial, but not with its optimizer.
        warnings.filterwarnings("ignore", "Skipping variable loading for optimizer")
        tuner = keras_tuner.Hyperband(max_epochs=options.epochs, factor=3, **common)
    else:
        tuner = keras_tuner.BayesianOptimization(
            max_trials=options.trials, num_initial_points=3, **common
        )
    if isinstance(tuner.oracle, keras_tuner.Oracle):  # a worker talks to the oracle of the chief
        resume(tuner.oracle, folder)
    return tuner


def resume(oracle, folder):
    """Restores the state after the last finished trial, and keeps each such state in one file.

    keras-tuner writes a search into many files, one after the other, so a kill leaves half of one,
    or a trial that no other file names. It also repeats the last trial of a finished search.
    """
    path = folder / "finished.json"
    states = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {}
    for trial in folder.glob("trial_*"):
        if f"{trial.name}/trial.json" not in states:
            remove(trial)
    for name, state in states.items():
        write_text(folder / name, state)
    if states:
        oracle.reload()
    end = oracle.end_trial

    def end_trial(trial):
        end(trial)
        oracle.save()  # now without the trial among those that run
        files = [folder / "oracle.json", *folder.glob("trial_*/trial.json")]
        states = {x.relative_to(folder).as_posix(): x.read_text(encoding="utf-8") for x in files}
        write_text(path, json.dumps(states))
        score = oracle.get_trial(trial.trial_id).score
        print(f"{folder.name}: trial {trial.trial_id} found {score:.3f}", file=sys.stderr)

    oracle.end_trial = end_trial


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
            # keras-tuner 1.4.8 prints every condition of the space that a worker sends.
            processes[role] = subprocess.Popen(
                command, env={**os.environ, **variables}, stdout=subprocess.DEVNULL
            )
        roles = ", ".join(f"{role} {process.pid}" for role, process in processes.items())
        print(f"{name}: processes {roles}", flush=True)
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
