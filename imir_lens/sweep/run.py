"""A sweep from its cells to its results."""

import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from imir_lens.errors import OptionError
from imir_lens.sweep.cells import Cell, load_function, unique
from imir_lens.sweep.lock import locked
from imir_lens.sweep.outcome import kept_outcome
from imir_lens.sweep.pools import pool_opener
from imir_lens.sweep.runner import Finished, Runner, cell_folder
from imir_lens.sweep.store import STORE, Store


@dataclass(frozen=True)
class Summary:
    """What a sweep did.

    Attributes:
        directory: where the results are.
        cells: number of cells, all different.
        done: how many of them have a result.
        failed: how many have an error instead.
        ran: how many were run now; the others had finished before.
        seconds: that took.
        first_error: of the first failed cell, on one line; None without one.
    """

    directory: str
    cells: int
    done: int
    failed: int
    ran: int
    seconds: float
    first_error: str | None = None

    def as_dict(self) -> dict[str, Any]:
        """Return it as JSON values."""
        return asdict(self)


def run_sweep(
    cells: Sequence[Cell],
    directory: str | Path,
    *,
    executor: Any = "local",
    workers: int | None = None,
    resume: bool = False,
    retry_failed: bool = False,
    beside: str | None = None,
    progress: Callable[[Finished], None] = lambda finished: None,
    **options: Any,
) -> Summary:
    """Run the cells that have not finished yet, and keep what comes out of them in `directory`.

    A cell's error is kept and stops no other. A cell whose worker dies is run again, up to three times. On
    KeyboardInterrupt the cells on their way are marked as interrupted; with `resume` they are run again.

    Args:
        cells: as `make_cells` or `read_spec` makes them.
        directory: for results.sqlite and the cells' folders, cells/HASH.
        executor: `local`, `dask` or `slurm`; a `concurrent.futures.Executor`; or a function that makes one, which is
            called again should it break.
        workers: how many cells at a time.
        resume: go on in a directory that holds a sweep.
        retry_failed: run failed cells again.
        beside: a folder in which workers look for the cells' module.
        progress: called with each finished cell.
        options: `scheduler`, the address of a Dask scheduler; `slurm`, parameters of SLURM jobs.

    Raises:
        OptionError: when the directory is taken or in use, the executor or a cell function cannot be had, or the
            executor breaks for good.
    """
    cells, place = unique(cells), Path(directory)
    for function in dict.fromkeys(cell.function for cell in cells):
        load_function(function, beside)
    opener = pool_opener(executor, workers=workers, folder=place.resolve(), **options)
    _claim(place, resume=resume)
    begun = time.monotonic()
    with locked(place):
        store = Store(place)
        try:
            store.interrupt()  # what a sweep that was killed left as running
            store.add(cells)
            if resume:
                _pick_up(store, cells, place)
            finished = {"done"} if retry_failed else {"done", "failed"}
            before = store.statuses()
            todo = [cell for cell in cells if before[cell.hash] not in finished]
            if todo:
                Runner(store, place, beside, progress, todo).run(opener)
            after = store.statuses()
            error = store.first_error(cells)
        finally:
            store.close()
    counts = Counter(after[cell.hash] for cell in cells)
    spent = round(time.monotonic() - begun, 3)
    return Summary(str(place), len(cells), counts["done"], counts["failed"], len(todo), spent, error)


def _claim(directory: Path, *, resume: bool) -> None:
    """Make the directory, or see that it may be gone on with."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
        occupied = any(not entry.name.startswith(".") for entry in directory.iterdir())
    except OSError as error:
        raise OptionError(f"{directory}: cannot be used for a sweep: {error.strerror}") from error
    if occupied and not resume:
        raise OptionError(f"{directory} already exists: choose another place, or resume the sweep in it")
    if occupied and not (directory / STORE).is_file():
        raise OptionError(f"{directory} is not a sweep: expected {STORE} in it")


def _pick_up(store: Store, cells: Sequence[Cell], directory: Path) -> None:
    """Take the results that cells left in their folders when the sweep itself was killed."""
    statuses = store.statuses()
    open_ones = [cell for cell in cells if statuses[cell.hash] not in ("done", "failed")]
    kept = [kept_outcome(cell_folder(directory, cell), cell.hash) for cell in open_ones]
    store.update([], [outcome for outcome in kept if outcome is not None])
