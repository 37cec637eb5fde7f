"""Processes on this machine: one pool of one worker each, so that a death concerns one cell and no other."""

import multiprocessing
import os
import queue
import signal
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import BrokenExecutor, Executor, Future, ProcessPoolExecutor
from concurrent.futures import wait as wait_for_futures
from contextlib import contextmanager, suppress
from multiprocessing.connection import wait as wait_for_end
from typing import Any

_GRACE = 5.0  # seconds a cell has to save its state when the sweep is interrupted


class LocalPool(Executor):
    """An executor over processes of this machine, each with one thread for torch.

    A worker that dies breaks its own call alone, with BrokenProcessPool, and is replaced.

    Args:
        workers: number of processes; each is started when it is first needed.
    """

    def __init__(self, workers: int) -> None:
        self._free: queue.SimpleQueue[_Worker] = queue.SimpleQueue()
        for _ in range(workers):
            self._free.put(_Worker())
        self._busy: dict[Future[Any], _Worker] = {}

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Start a call; waits until a worker is free."""
        worker = self._free.get()
        try:
            future = worker.submit(fn, *args, **kwargs)
        except BrokenExecutor:  # it died while it had nothing to do
            worker = _Worker()
            future = worker.submit(fn, *args, **kwargs)
        self._busy[future] = worker
        future.add_done_callback(self._release)
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """End the workers; with `wait=False`, ask what runs to save its state, and end it after a few seconds."""
        busy = list(self._busy.items())
        if not wait:
            for _, worker in busy:
                worker.send(signal.SIGINT)
            try:
                wait_for_futures([future for future, _ in busy], _GRACE)
            finally:  # a second Ctrl-C ends the wait
                for future, worker in busy:
                    if not future.done():
                        worker.send(signal.SIGTERM)
        with suppress(queue.Empty):
            while True:
                self._free.get_nowait().close(wait=wait)
        for _, worker in busy:
            worker.close(wait=wait)

    def _release(self, future: Future[Any]) -> None:
        worker = self._busy.pop(future)
        broken = not future.cancelled() and isinstance(future.exception(), BrokenExecutor)
        self._free.put(_Worker() if broken else worker)


class _Worker:
    """A process that does one call at a time."""

    def __init__(self) -> None:
        self._pool: ProcessPoolExecutor | None = None
        self._process: Future[int] | None = None

    def submit(self, fn: Callable[..., Any], *args: Any, **kwargs: Any) -> Future[Any]:
        if self._pool is None:
            # Spawned, not forked: a fork copies the threads of torch in the middle of whatever they do.
            context = multiprocessing.get_context("spawn")
            with _interrupt_held_back():
                self._pool = ProcessPoolExecutor(1, mp_context=context, initializer=_start)
                self._process = self._pool.submit(os.getpid)
        return self._pool.submit(fn, *args, **kwargs)

    def send(self, number: int) -> None:
        if self._process is not None and self._process.done() and self._process.exception() is None:
            with suppress(ProcessLookupError):
                os.kill(self._process.result(), number)

    def close(self, *, wait: bool) -> None:
        if self._pool is not None:
            self._pool.shutdown(wait=wait, cancel_futures=True)


@contextmanager
def _interrupt_held_back() -> Iterator[None]:
    """Let Ctrl-C wait, here and in a process started meanwhile: it must not end one that is still being imported."""
    if not hasattr(signal, "pthread_sigmask"):
        yield
        return
    previous = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, previous)


def _start() -> None:
    """Prepare a worker: one thread for torch, Ctrl-C left to whoever asks for it, and no life after the sweep's."""
    for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
        os.environ[name] = "1"
    # Training notes Ctrl-C by itself, and saves its state; anything else is ended by the sweep.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    if hasattr(signal, "pthread_sigmask"):
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
    threading.Thread(target=_end_with_parent, daemon=True).start()


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        wait_for_end([parent.sentinel])
        os._exit(1)  # without its sweep, a worker would go on writing where the next one writes
