"""A progress bar for `train`."""

from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from imir_lens.training.loop import Progress as Callback
from imir_lens.training.run_directory import Metrics


@contextmanager
def progress_bar(steps: int, *, console: Console | None = None) -> Iterator[Callback]:
    """Show a bar on stderr while the block runs; pass what it yields to `train` as `progress`.

    Args:
        steps: optimizer steps in all.
        console: where to draw; stderr when None.
    """
    columns = (TextColumn("training"), BarColumn(), TextColumn("{task.fields[state]}"), TimeRemainingColumn())
    with Progress(*columns, console=console or Console(stderr=True)) as bar:
        line = bar.add_task("training", total=steps, state="")

        def show(step: int, row: Metrics) -> None:
            state = f"step {step}/{steps}  loss {row['loss']:.4f}  accuracy {row['accuracy']:.3f}"
            bar.update(line, completed=step, state=state)

        yield show
