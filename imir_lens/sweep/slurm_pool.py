"""Jobs of a SLURM cluster, through submitit."""

import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import BrokenExecutor, Executor, Future
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

from imir_lens.errors import OptionError
from imir_lens.sweep.pools import Pool

_MOST_SUBMITTED = 1000  # jobs at a time: clusters take arrays of little more
_TIMEOUT = 240  # minutes


class SlurmPool(Executor):
    """An executor whose calls are jobs.

    Args:
        inner: a submitit executor.
        poll: seconds between two looks at the jobs.
    """

    def __init__(self, inner: Any, *, poll: float) -> None:
        self._inner, self._poll = inner, poll
        self._jobs: dict[Future[Any], Any] = {}
        self._lock = threading.RLock()
        self._closed = threading.Event()
        self._watcher = threading.Thread(target=self._watch, daemon=True)
        self._watcher.start()

    @contextmanager
    def batch(self) -> Iterator[None]:
        """Submit everything that the block submits as one array of jobs."""
        with self._lock, self._inner.batch():
            yield

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        """Submit a job."""
        future: Future[Any] = Future()
        future.set_running_or_notify_cancel()
        with self._lock:
            self._jobs[future] = self._inner.submit(fn, *args, **kwargs)
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Stop watching; with `wait=False`, cancel the jobs that are not done."""
        self._closed.set()
        self._watcher.join()
        if not wait:
            for job in self._jobs.values():
                job.cancel(check=False)

    def _watch(self) -> None:
        while not self._closed.wait(self._poll):
            with self._lock:
                done = [(future, job) for future, job in self._jobs.items() if job.done()]
                for future, _ in done:
                    del self._jobs[future]
            for future, job in done:
                _settle(future, job)


def _settle(future: Future[Any], job: Any) -> None:
    from submitit.core.utils import FailedJobError, UncompletedJobError

    error = job.exception()
    if error is None:
        future.set_result(job.result())
    elif isinstance(error, UncompletedJobError) and not isinstance(error, FailedJobError):
        future.set_exception(BrokenExecutor(f"job {job.job_id} ended without a result ({job.state})"))
    else:
        future.set_exception(error)


@contextmanager
def slurm_pool(workers: int | None, folder: Path, options: Mapping[str, Any]) -> Iterator[Pool]:
    """Open a SLURM cluster for as long as the block runs.

    Args:
        workers: jobs that may run at once; None leaves that to the cluster.
        folder: where scripts and logs go; must be visible to all nodes.
        options: parameters of submitit's AutoExecutor, as `slurm_partition`; `cluster` may be `local`, to try it out.

    Raises:
        OptionError: when there is no such cluster here, or an option is unknown.
    """
    import submitit

    given = dict(options)
    cluster = given.pop("cluster", "slurm")
    settings: dict[str, Any] = {"name": "imir-lens", "timeout_min": _TIMEOUT, "cpus_per_task": 1}
    if cluster == "slurm":
        settings["slurm_setup"] = ["export OMP_NUM_THREADS=1"]
        if workers is not None:
            settings["slurm_array_parallelism"] = workers
    try:
        inner = submitit.AutoExecutor(folder / "%j", cluster=cluster)
        inner.update_parameters(**settings | given)
    except (RuntimeError, ValueError, NameError, TypeError, AssertionError) as error:
        raise OptionError(f"SLURM cannot be used: {' '.join(str(error).split())}") from error
    slots = _MOST_SUBMITTED if cluster == "slurm" or workers is None else workers
    executor = SlurmPool(inner, poll=2.0 if cluster == "slurm" else 0.2)
    batch, refill = (executor.batch, slots // 2) if cluster == "slurm" else (nullcontext, None)
    try:
        yield Pool(executor, slots, exact=True, refill=refill, batch=batch)
    except BaseException:
        executor.shutdown(wait=False)
        raise
    executor.shutdown()
