"""Workers of a Dask cluster: one made for the sweep on this machine, or one that is there."""

import logging
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from imir_lens.errors import OptionError
from imir_lens.sweep.pools import DEATHS, Pool

_MOST_SUBMITTED = 1000  # calls a cluster of unknown size is given at a time
_ONE_THREAD = {name: "1" for name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS")}


@contextmanager
def dask_pool(workers: int, scheduler: str | None) -> Iterator[Pool]:
    """Open a Dask client for as long as the block runs.

    Args:
        workers: processes of a cluster on this machine, with one thread each; without meaning for another cluster.
        scheduler: address of a cluster's scheduler, as `tcp://host:8786`; None for a cluster on this machine.

    Raises:
        OptionError: when no scheduler answers.
    """
    import dask
    from distributed import Client, LocalCluster

    cluster = None
    with dask.config.set({"distributed.scheduler.allowed-failures": DEATHS - 1}):
        if scheduler is None:
            cluster = LocalCluster(
                n_workers=workers,
                threads_per_worker=1,
                processes=True,
                memory_limit=0,
                dashboard_address=None,
                silence_logs=logging.ERROR,
                env=_ONE_THREAD,
            )
        with ExitStack() as stack:
            if cluster is not None:
                stack.callback(cluster.close)
            client = _client(Client, cluster or scheduler)
            stack.callback(client.close)
            executor = client.get_executor(pure=False)
            stack.callback(executor.shutdown, wait=False)  # cancels what is left after an interrupt
            slots = workers if cluster is not None else _MOST_SUBMITTED
            yield Pool(executor, slots, exact=True)


def _client(kind: Any, place: Any) -> Any:
    try:
        return kind(place, timeout=30, set_as_default=False)
    except (OSError, ValueError) as error:
        raise OptionError(f"no Dask scheduler answers at {place}: {error}") from error
