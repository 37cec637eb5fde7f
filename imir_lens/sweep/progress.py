"""How a sweep is getting on, for people."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

from imir_lens.sweep.runner import Finished


def describe(finished: Finished) -> str:
    """Return a line about a cell that has finished, and about the rest."""
    outcome = finished.outcome
    how = outcome.status
    if how == "failed":
        how = f"failed ({' '.join(f'{outcome.error[0]}: {outcome.error[1]}'.split())[:100]})"
    name = finished.cell.label or finished.cell.hash[:12]
    spent = "" if outcome.seconds is None else f" in {duration(outcome.seconds)}"
    return f"cell {finished.count}/{finished.total} {how}{spent}: {name}; {remaining(finished)}"


def remaining(finished: Finished) -> str:
    """Return `about 3 min left`."""
    return f"about {duration(finished.left)} left" if finished.count < finished.total else "nothing left"


def duration(seconds: int | float) -> str:
    """Return a length of time in two units at most.

    >>> [duration(0.26), duration(59.7), duration(61), duration(7300)]
    ['0.3 s', '1 min', '1 min 1 s', '2 h 1 min']
    """
    if seconds < 10:
        return f"{seconds:.1f} s"
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    big, small, names = (
        (whole // 60, whole % 60, ("min", "s")) if whole < 3600 else (whole // 3600, whole % 3600 // 60, ("h", "min"))
    )
    return f"{big} {names[0]}" + (f" {small} {names[1]}" if small else "")


@contextmanager
def sweep_bar(*, console: Console | None = None) -> Iterator[Callable[[Finished], None]]:
    """Show a bar on stderr while the block runs; pass what it yields to `run_sweep` as `progress`.

    Args:
        console: where to draw; stderr when None.
    """
    columns = (TextColumn("cells"), BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[state]}"))
    with Progress(*columns, TimeElapsedColumn(), console=console or Console(stderr=True)) as bar:
        line = bar.add_task("cells", total=None, state="")

        def show(finished: Finished) -> None:
            failed = f"  {finished.failed} failed" if finished.failed else ""
            state = f"{remaining(finished)}{failed}"
            bar.update(line, completed=finished.count, total=finished.total, state=state)

        yield show
