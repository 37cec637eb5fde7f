"""Where cells are run: what the sweep has to know about an executor, and the executors by name."""

import os
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Executor
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from imir_lens.errors import OptionError, did_you_mean

EXECUTORS = ("local", "dask", "slurm")
DEATHS = 3  # of its worker, after which a cell is failed
_EXTRAS = {"dask": ("distributed", "Dask"), "slurm": ("submitit", "submitit")}


@dataclass(frozen=True)
class Pool:
    """An executor and how to use it.

    Attributes:
        executor: what runs the cells.
        slots: calls it is given at a time.
        exact: a worker's death breaks no other call than its own.
        refill: more is submitted when no more calls than this are on their way; None: as soon as a slot is free.
        batch: what to submit within.
    """

    executor: Executor
    slots: int
    exact: bool = False
    refill: int | None = None
    batch: Callable[[], AbstractContextManager[None]] = nullcontext


PoolOpener = Callable[[], AbstractContextManager[Pool]]


def pool_opener(
    executor: str | Executor | Callable[[], Executor],
    *,
    workers: int | None,
    folder: Path,
    scheduler: str | None = None,
    slurm: Mapping[str, Any] | None = None,
) -> PoolOpener:
    """Return what opens an executor; it is checked, but nothing is started yet.

    Args:
        executor: `local`, `dask` or `slurm`; or an executor, or a function that makes one.
        workers: how many cells at a time; None: a process for each core, or whatever a cluster gives.
        folder: of the sweep.
        scheduler: of a Dask cluster.
        slurm: parameters of jobs.

    Raises:
        OptionError: for an unknown executor, one whose package is not installed, or an option of another executor.
    """
    name = executor if isinstance(executor, str) else None
    if name is not None and name not in EXECUTORS:
        raise OptionError(f"unknown executor {name!r}; {did_you_mean(name, EXECUTORS)}")
    if workers is not None and workers < 1:
        raise OptionError(f"workers must be at least 1: found {workers}")
    for option, value, owner in (("scheduler", scheduler, "dask"), ("slurm", slurm, "slurm")):
        if value and name != owner:
            raise OptionError(f"option {option!r} is for executor {owner!r}: found {name or 'another'!r}")
    if name in _EXTRAS and find_spec(_EXTRAS[name][0]) is None:
        raise OptionError(f"executor {name!r} needs {_EXTRAS[name][1]}: pip install 'imir-lens[{name}]'")

    count = workers or _cores()
    if isinstance(executor, Executor):
        return lambda: nullcontext(Pool(executor, count))
    if not isinstance(executor, str):
        return lambda: _made(executor(), count)
    if name == "dask":
        from imir_lens.sweep.dask_pool import dask_pool

        return lambda: dask_pool(count, scheduler)
    if name == "slurm":
        from imir_lens.sweep.slurm_pool import slurm_pool

        return lambda: slurm_pool(workers, folder / "slurm", slurm or {})
    from imir_lens.sweep.local_pool import LocalPool

    return lambda: _made(LocalPool(count), count, exact=True)


@contextmanager
def _made(executor: Executor, slots: int, *, exact: bool = False) -> Iterator[Pool]:
    """Shut an executor down when the block ends; what still runs is only waited for when it ends well."""
    try:
        yield Pool(executor, slots, exact=exact)
    except BaseException:
        executor.shutdown(wait=False, cancel_futures=True)
        raise
    executor.shutdown()


def _cores() -> int:
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
