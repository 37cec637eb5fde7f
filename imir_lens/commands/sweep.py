"""`imir-lens sweep`: many models, over processes, Dask or SLURM."""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click

from imir_lens.commands.shared import PLACE, Output, command, on_one_line, parse_fields
from imir_lens.errors import OptionError

if TYPE_CHECKING:
    from imir_lens.sweep.run import Summary
    from imir_lens.sweep.runner import Finished


@click.command()
@click.argument("spec", type=PLACE)
@click.option("--out", "directory", type=PLACE, metavar="DIR", required=True, help="Where the results go.")
@click.option("--executor", metavar="NAME", default="local", help="local, dask or slurm.  [default: local]")
@click.option("--workers", type=int, metavar="N", help="Cells at a time.  [default: one a core]")
@click.option("--scheduler", metavar="ADDRESS", help="A Dask cluster's scheduler.  [default: a cluster here]")
@click.option(
    "--slurm", metavar="NAME=VALUE", multiple=True, help="A parameter of the SLURM jobs, as slurm_partition=cpu."
)
@click.option("--resume", is_flag=True, help="Go on with the sweep in DIR; what has finished is not done again.")
@click.option("--retry-failed", is_flag=True, help="Run failed cells again; goes with --resume.")
@click.option("--export", type=PLACE, metavar="FILE", help="Write a table as well: a .csv or .parquet file.")
@command
def sweep(
    spec: Path,
    directory: Path,
    executor: str,
    workers: int | None,
    scheduler: str | None,
    slurm: tuple[str, ...],
    resume: bool,
    retry_failed: bool,
    export: Path | None,
    say: Output,
    device: str | None,
) -> None:
    """Train and analyse a model for every cell of SPEC, and keep the results in DIR.

    SPEC is a TOML file with [task], [model], [train], [analysis] and [sweep], a grid or random draws over any of their
    keys; docs/sweeps.md describes it. All of it is checked before anything starts. A cell that fails keeps its error
    and stops no other; the exit code is 1 if there is one.
    """
    parameters = parse_fields(slurm)
    if retry_failed and not resume:
        raise OptionError("--retry-failed is for a sweep that is there: give --resume as well")
    from imir_lens.sweep.run import run_sweep
    from imir_lens.sweep.spec import read_spec
    from imir_lens.sweep.tables import check_export, write_table

    if export is not None:
        check_export(export)
    read = read_spec(spec, device=device)
    if read.duplicates:
        say.note(f"{read.duplicates} of {read.duplicates + len(read.cells)} cells are the same as others")
    with _shown(say) as progress, _hint(say, directory):
        summary = run_sweep(
            read.cells,
            directory,
            executor=executor,
            workers=workers,
            scheduler=scheduler,
            slurm=parameters,
            resume=resume,
            retry_failed=retry_failed,
            beside=read.beside,
            progress=progress,
        )
    if export is not None:
        write_table(directory, export)
    say.result(summary.as_dict(), _lines(summary, export))
    if summary.failed:
        say.note(f"{summary.failed} of {summary.cells} cells failed, the first with {summary.first_error}")
        sys.exit(1)


@contextmanager
def _shown(say: Output) -> "Iterator[Callable[[Finished], None]]":
    """Show how the sweep goes: a bar on a terminal, else a line a cell, nothing with --quiet."""
    from imir_lens.sweep.progress import describe, sweep_bar

    if say.terminal:
        with sweep_bar() as bar:
            yield bar
        return
    yield lambda finished: say.note(describe(finished))


@contextmanager
def _hint(say: Output, directory: Path) -> Iterator[None]:
    """On Ctrl-C, say how to go on."""
    try:
        yield
    except KeyboardInterrupt:
        if (directory / "results.sqlite").exists():
            say.note(f"what has finished is kept in {directory}; the same command with --resume goes on")
        raise


def _lines(summary: "Summary", export: Path | None) -> list[str]:
    from imir_lens.sweep.progress import duration

    counts = f"{summary.cells} cells: {summary.done} done, {summary.failed} failed; {summary.ran} run now"
    place = on_one_line(str(Path(summary.directory) / "results.sqlite"))
    lines = [f"{counts}, in {duration(summary.seconds)}", f"results    {place}"]
    return lines if export is None else [*lines, f"table      {on_one_line(str(export))}"]
