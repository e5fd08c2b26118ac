"""Independent pieces of work on several processes, each with its share of the cores."""

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
    """The work was asked to stop."""


def run(work, jobs, processes, interrupt):
    """Yields what `work(job)` returns for each of the jobs, in the order in which they end.

    Args:
        work: function of a module. It may ask `asked_to_stop()` now and then, and raise `Stopped`.
        jobs: list of its arguments.
        processes: how many, at most.
        interrupt: a `checkpoint.Interrupt`; when it was asked, what was not begun is left out.
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
            # Asked twice: not even what was begun is ended.
            for process in multiprocessing.active_children():
                process.terminate()
            raise
        except BrokenProcessPool as error:
            if interrupt.asked:
                return  # the processes got the signal, too
            raise SystemExit(
                "a process of the training ended unexpectedly, perhaps for want of memory (fewer "
                "--jobs need less). What was finished is kept; the same command goes on."
            ) from error
        finally:
            # Also where the caller left the loop.
            stop.set()
            pool.shutdown(wait=False, cancel_futures=True)


def asked_to_stop():
    return _stop is not None and _stop.is_set()


_stop = None


def _do(work, job):
    # The pool hands some jobs out before they are begun, and these it does not take back.
    if asked_to_stop():
        raise Stopped
    return work(job)


def _begin(stop, threads):
    global _stop
    _stop = stop
    # Ctrl-C is sent to all processes; the first one decides.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    parent = multiprocessing.parent_process()

    def watch():
        multiprocessing.connection.wait([parent.sentinel])
        os._exit(1)  # it was killed: nobody would take the result

    threading.Thread(target=watch, daemon=True).start()
    if keras.backend.backend() == "tensorflow":
        import tensorflow as tf

        for device in tf.config.list_physical_devices("GPU"):
            tf.config.experimental.set_memory_growth(device, True)
        tf.config.threading.set_intra_op_parallelism_threads(threads)
        tf.config.threading.set_inter_op_parallelism_threads(threads)
