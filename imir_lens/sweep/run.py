"""Running the cells of a sweep: submit, store, survive what happens to workers."""

import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, CancelledError, Future, wait
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from imir_lens.errors import OptionError
from imir_lens.sweep.cells import Cell, load_function, unique
from imir_lens.sweep.lock import locked
from imir_lens.sweep.outcome import Outcome, failure, kept_outcome, run_one
from imir_lens.sweep.pools import DEATHS, Pool, PoolOpener, pool_opener
from imir_lens.sweep.store import STORE, Store

_MOST_BREAKS = 100  # executors made in vain, one after another, before it is not the cells that are to blame


@dataclass(frozen=True)
class Finished:
    """A cell that has just finished, and how far the sweep is.

    Attributes:
        cell: the cell.
        outcome: what came out of it.
        count: cells finished in this run so far.
        total: cells of this run.
        failed: those of `count` that failed.
        left: seconds the rest will take, by the pace so far.
    """

    cell: Cell
    outcome: Outcome
    count: int
    total: int
    failed: int
    left: float


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
            store.add(cells)
            if resume:
                _pick_up(store, cells, place)
            finished = {"done"} if retry_failed else {"done", "failed"}
            before = store.statuses()
            todo = [cell for cell in cells if before[cell.hash] not in finished]
            if todo:
                _Runner(store, place, beside, progress, todo).run(opener)
            after = store.statuses()
            error = store.first_error(cells)
        finally:
            store.close()
    counts = Counter(after[cell.hash] for cell in cells)
    spent = round(time.monotonic() - begun, 3)
    return Summary(str(place), len(cells), counts["done"], counts["failed"], len(todo), spent, error)


def cell_folder(directory: Path, cell: Cell) -> Path:
    """Return a cell's own folder."""
    return directory / "cells" / cell.hash


class _Runner:
    """Keeps an executor supplied with cells until all have finished."""

    def __init__(
        self,
        store: Store,
        directory: Path,
        beside: str | None,
        progress: Callable[[Finished], None],
        todo: Sequence[Cell],
    ) -> None:
        self._store, self._directory, self._beside, self._progress = store, directory.resolve(), beside, progress
        self._waiting = deque(todo)
        self._suspects: deque[Cell] = deque()  # one of them ended a worker that others shared
        self._flying: dict[Future[Outcome], Cell] = {}
        self._deaths: Counter[str] = Counter()
        self._total, self._count, self._failed, self._breaks = len(todo), 0, 0, 0
        self._broken = False
        self._begun = time.monotonic()

    def run(self, opener: PoolOpener) -> None:
        """Run until nothing is left, with a new executor whenever one broke."""
        try:
            while self._waiting or self._suspects:
                self._broken = False
                with opener() as pool:
                    while self._submit(pool):
                        self._settle(pool, wait(self._flying, return_when=FIRST_COMPLETED).done)
        finally:
            self._store.mark(self._flying.values(), "interrupted")
            self._store.record(future.result() for future in self._flying if _has_result(future))

    def _submit(self, pool: Pool) -> bool:
        """Submit what fits; return False when nothing is on its way: all is done, or the executor is broken."""
        chosen = self._choose(pool)
        if chosen:
            self._store.mark(chosen, "running")
        with ExitStack() as stack:
            if chosen:
                stack.enter_context(pool.batch())
            for position, cell in enumerate(chosen):
                folder = str(cell_folder(self._directory, cell))
                try:
                    future = pool.executor.submit(
                        run_one, cell.function, cell.settings, cell.hash, folder, self._beside
                    )
                except BrokenExecutor as error:
                    self._put_back(chosen[position:], error)
                    break
                self._flying[future] = cell
        return bool(self._flying)

    def _choose(self, pool: Pool) -> list[Cell]:
        if self._broken:
            return []
        if self._suspects:  # alone, so that it is known which one it was
            return [] if self._flying else [self._suspects.popleft()]
        refill = pool.slots - 1 if pool.refill is None else pool.refill
        room = pool.slots - len(self._flying) if len(self._flying) <= refill else 0
        return [self._waiting.popleft() for _ in range(min(room, len(self._waiting)))]

    def _put_back(self, cells: Iterable[Cell], error: BrokenExecutor) -> None:
        self._broken = True
        self._breaks += 1
        if self._breaks > _MOST_BREAKS:
            raise OptionError(f"the executor breaks again and again: {error}; what has finished is kept") from error
        self._waiting.extendleft(reversed(list(cells)))

    def _settle(self, pool: Pool, done: Iterable[Future[Outcome]]) -> None:
        alone = pool.exact or len(self._flying) == 1
        finished = []
        for future in done:
            cell = self._flying.pop(future)
            try:
                error = future.exception()
            except CancelledError:
                error = KeyboardInterrupt()
            if error is None:
                finished.append((cell, future.result()))
            elif isinstance(error, BrokenExecutor):
                self._broken = not pool.exact
                outcome = self._died(cell, error, known=alone)
                finished += [] if outcome is None else [(cell, outcome)]
            elif isinstance(error, Exception):  # of the executor: the cell's own come as outcomes
                finished.append((cell, failure(cell.hash, error)))
            else:
                self._flying[future] = cell
                raise KeyboardInterrupt
        if finished:
            self._breaks = 0
        self._store.record(outcome for _, outcome in finished)
        for cell, outcome in finished:
            self._tell(cell, outcome)

    def _died(self, cell: Cell, error: BrokenExecutor, *, known: bool) -> Outcome | None:
        """Put a cell whose worker died back in the queue; return its outcome when it happened too often."""
        if known:
            self._deaths[cell.hash] += 1
        if self._deaths[cell.hash] >= DEATHS:
            message = f"the cell's worker died {DEATHS} times: {error}"
            return failure(cell.hash, BrokenExecutor(message))
        (self._waiting if known else self._suspects).append(cell)
        return None

    def _tell(self, cell: Cell, outcome: Outcome) -> None:
        self._count += 1
        self._failed += outcome.status == "failed"
        left = (time.monotonic() - self._begun) / self._count * (self._total - self._count)
        self._progress(Finished(cell, outcome, self._count, self._total, self._failed, left))


def _has_result(future: Future[Outcome]) -> bool:
    return future.done() and not future.cancelled() and future.exception() is None


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
    store.record(outcome for outcome in kept if outcome is not None)
