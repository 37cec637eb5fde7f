"""Keeping an executor supplied with cells, and surviving what happens to its workers."""

import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import FIRST_COMPLETED, BrokenExecutor, CancelledError, Future, wait
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from imir_lens.errors import OptionError
from imir_lens.sweep.cells import Cell
from imir_lens.sweep.outcome import Outcome, failure, run_one
from imir_lens.sweep.pools import DEATHS, Pool, PoolOpener
from imir_lens.sweep.store import Store

_STORE_EVERY = 0.25  # seconds
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


def cell_folder(directory: Path, cell: Cell) -> Path:
    """Return a cell's own folder."""
    return directory / "cells" / cell.hash


class Runner:
    """Runs cells until all have finished.

    Args:
        store: where outcomes are kept.
        directory: of the sweep.
        beside: a folder in which workers look for the cells' module.
        progress: called with each finished cell.
        todo: the cells.
    """

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
        self._begun_lately: list[Cell] = []
        self._news: list[Outcome] = []
        self._kept = -_STORE_EVERY
        self._begun = time.monotonic()

    def run(self, opener: PoolOpener) -> None:
        """Run until nothing is left, with a new executor whenever one broke."""
        try:
            while self._waiting or self._suspects:
                self._broken = False
                with opener() as pool:
                    while self._submit(pool):
                        patience = _STORE_EVERY if self._news or self._begun_lately else None
                        self._settle(pool, wait(self._flying, patience, FIRST_COMPLETED).done)
                        self._keep()
        finally:
            self._news += [future.result() for future in self._flying if _has_result(future)]
            self._keep(now=True)
            self._store.interrupt()

    def _submit(self, pool: Pool) -> bool:
        """Submit what fits; return False when nothing is on its way: all is done, or the executor is broken."""
        chosen = self._choose(pool)
        self._begun_lately += chosen
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
        finished, interrupted = [], False
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
                interrupted = True
        if finished:
            self._breaks = 0
        self._news += [outcome for _, outcome in finished]
        for cell, outcome in finished:
            self._tell(cell, outcome)
        if interrupted:
            raise KeyboardInterrupt

    def _keep(self, *, now: bool = False) -> None:
        """Bring the store up to date, but not for each of many quick cells: their folders have it meanwhile."""
        if now or time.monotonic() - self._kept >= _STORE_EVERY:
            self._store.update(self._begun_lately, self._news)
            self._begun_lately, self._news, self._kept = [], [], time.monotonic()

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
