"""A progress bar for `train`."""

from collections.abc import Iterator, Mapping
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
            bar.update(line, completed=step, state=f"step {step}/{steps}  {state_of(row)}")

        yield show


def state_of(row: Mapping[str, int | float]) -> str:
    """Return the scores of a row on one line: of a causal transformer its loss on the parents, else the accuracy.

    >>> state_of({"loss": 0.25, "accuracy": 0.5})
    'loss 0.2500  accuracy 0.500'
    """
    second = "accuracy" if "accuracy" in row else "parent_loss"
    return f"loss {row['loss']:.4f}  {second.replace('_', ' ')} {row[second]:.3f}"
