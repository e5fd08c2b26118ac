"""Runs independent jobs in several processes, each with its share of the cores."""

import concurrent.futures
import multiprocessing
import multiprocessing.connection
import os
import signal
import threading
from concurrent.futures.process import BrokenProcessPool

import keras


def cores():
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()


class Stopped(Exception):
    """Raised by work that was asked to stop."""


def run(work, jobs, processes, interrupt):
    """Yields the result of `work(job)` for each job, in the order in which the jobs end.

    Args:
        work: a function of a module. It may call `asked_to_stop()` and raise `Stopped`.
        jobs: a list of arguments of `work`.
        processes: the largest number of processes.
        interrupt: an `Interrupt`. After it was asked to stop, no further job begins.
    """
    processes = max(1, min(processes, len(jobs)))
    context = multiprocessing.get_context("spawn")  # TensorFlow does not survive a fork
    stop = context.Event()
    threads = max(1, cores() // processes)
    pool = concurrent.futures.ProcessPoolExecutor(processes, context, _begin, (stop, threads))
    with pool:
        waiting = {pool.submit(_do, work, job) for job in jobs}
        try:
            while waiting:
                done, waiting = concurrent.futures.wait(
                    waiting, 0.5, concurrent.futures.FIRST_COMPLETED
                )
                for future in done:
                    if not future.cancelled() and not isinstance(future.exception(), Stopped):
                        yield future.result()
                if interrupt.asked:
                    stop.set()
                    for future in waiting:
                        future.cancel()
        except KeyboardInterrupt:
            # The second signal: jobs that have begun are stopped too.
            for process in multiprocessing.active_children():
                process.terminate()
            raise
        except BrokenProcessPool as error:
            if interrupt.asked:
                return  # the processes received the signal too
            raise SystemExit(
                "a training process ended unexpectedly, perhaps because the memory was full (fewer "
                "--jobs need less). Finished models are kept; run the same command to resume."
            ) from error
        finally:
            # The caller may have left the loop early.
            stop.set()
            pool.shutdown(wait=False, cancel_futures=True)


def asked_to_stop():
    return _stop is not None and _stop.is_set()


_stop = None


def _do(work, job):
    # The pool hands out some jobs in advance and cannot cancel them.
    if asked_to_stop():
        raise Stopped
    return work(job)


def _begin(stop, threads):
    global _stop
    _stop = stop
    # The terminal sends Ctrl-C to all processes; the parent decides what to do.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()

    def watch():
        multiprocessing.connection.wait([parent.sentinel])
        os._exit(1)  # the parent was killed, so nobody needs the result

    threading.Thread(target=watch, daemon=True).start()
    if keras.backend.backend() == "tensorflow":
        import tensorflow as tf

        for device in tf.config.list_physical_devices("GPU"):
            tf.config.experimental.set_memory_growth(device, True)
        tf.config.threading.set_intra_op_parallelism_threads(threads)
        tf.config.threading.set_inter_op_parallelism_threads(threads)
