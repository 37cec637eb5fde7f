"""`imir-lens trajectory`: coordinates, losses and attention over the checkpoints of a run."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from imir_lens.commands.places import task_of
from imir_lens.commands.shared import (
    PLACE,
    Output,
    command,
    command_line,
    given,
    knob_option,
    model_option,
    parse_fields,
    seed_option,
)

if TYPE_CHECKING:
    from imir_lens.report.trajectory_document import Trajectory

_LINES = 20  # of progress where nobody watches a bar
Progress = Callable[[int, int, int, Mapping[str, Any]], None]


@click.command()
@click.argument("run", type=PLACE)
@click.option("--task", metavar="TASK", help="The task; a run of `imir-lens train` knows its own.")
@knob_option
@model_option
@click.option("--config", type=PLACE, metavar="FILE", help="The checkpoints' config as a JSON file.")
@click.option("--contexts", type=int, metavar="N", help="Held-out contexts.  [default: 512]")
@click.option("--budget", type=float, metavar="B", help="Share of the loss a circuit may give up.  [default: 0.01]")
@click.option("--top", type=click.IntRange(min=0), metavar="N", help="Follow the N of largest effect.  [default: 12]")
@click.option("--detect-every", is_flag=True, help="Look for a circuit at every checkpoint, not only at the last.")
@seed_option
@click.option("--out", type=PLACE, metavar="DIR", required=True, help="Where the trajectory goes.")
@click.option("--force", is_flag=True, help="Replace an older trajectory in DIR.")
@command
def trajectory(
    run: Path,
    task: str | None,
    knobs: tuple[str, ...],
    fields: tuple[str, ...],
    config: Path | None,
    out: Path,
    force: bool,
    say: Output,
    device: str | None,
    **options: Any,
) -> None:
    """Follow coordinates, loss and attention over the checkpoints of RUN: what emerges, when, in which order.

    RUN is a run of `imir-lens train`, a folder of numbered checkpoints of any format, or a quoted pattern such as
    'run/step_*.pt'. What was measured is kept in DIR/points: after an interruption the same command goes on from there.
    """
    overrides = parse_fields(fields)
    from imir_lens.dynamics.trajectory_cache import FOLDER
    from imir_lens.report.storage import check_output
    from imir_lens.tasks.registry import make_task

    check_output(out, force=force or _only_points(out, FOLDER))
    name, settings = task_of(run, task, knobs, say=say, example="NAME")
    chosen = make_task(name, **settings)

    from imir_lens.dynamics.trajectory_pipeline import trajectory as follow

    with _hint(say, out / FOLDER), _shown(say) as progress:
        found = follow(
            run,
            chosen,
            config=config,
            overrides=overrides,
            cache=out / FOLDER,
            device=device,
            command=command_line(),
            progress=progress,
            **given(**options),
        )
    found.save(out, force=True)
    say.result(*result_of(found, out))


def result_of(found: "Trajectory", directory: Path) -> tuple[dict[str, Any], list[str]]:
    """Return a trajectory's gist, as JSON values (named as in trajectory.json) and as lines."""
    from imir_lens.report.trajectory_tables import headline, swaps_table

    data, page = found.data, directory / "trajectory.html"
    lines = [headline(data)]
    for role in data["roles"]:
        step = "never" if role["emergence"] is None else f"step {role['emergence']['step']}"
        lines.append(f"  {role['role']:<10} {step:<12} {role['final']:+8.2f}  {' '.join(role['units'])}")
    lines += [f"  moved      step {row[0]:<7} {row[1]}  ({row[2]})" for row in swaps_table(data).rows]
    lines += ["", f"trajectory {page}"]
    keys = ("command", "seed", "model", "task", "run", "emergence", "swaps")
    roles = [{name: role[name] for name in ("role", "units", "final", "emergence")} for role in data["roles"]]
    return {"out": str(directory), "page": str(page), **{key: data[key] for key in keys}, "roles": roles}, lines


def _only_points(out: Path, folder: str) -> bool:
    """Whether a directory holds nothing but what an interrupted trajectory left."""
    return out.is_dir() and {entry.name for entry in out.iterdir()} == {folder}


@contextmanager
def _hint(say: Output, points: Path) -> Iterator[None]:
    """On Ctrl-C, say how to go on."""
    try:
        yield
    except KeyboardInterrupt:
        if points.is_dir():
            say.note(f"what was measured is in {points}; the same command goes on")
        raise


@contextmanager
def _shown(say: Output) -> Iterator[Progress]:
    """Show a bar on a terminal, and a line now and then elsewhere."""
    if not say.terminal:
        yield lambda done, total, step, facts: _line(say, done, total, step, facts)
        return
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    columns = (TextColumn("checkpoints"), BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[state]}"))
    with Progress(*columns, TimeRemainingColumn(), console=Console(stderr=True)) as bar:
        line = bar.add_task("checkpoints", total=None, state="")

        def show(done: int, total: int, step: int, facts: Mapping[str, Any]) -> None:
            state = f"step {step}  loss {facts['loss']:.4f}"
            bar.update(line, completed=done, total=total, state=state)

        yield show


def _line(say: Output, done: int, total: int, step: int, facts: Mapping[str, Any]) -> None:
    if done == total or done % max(1, total // _LINES) == 0:
        say.note(f"checkpoint {done}/{total}  step {step}  loss {facts['loss']:.4f}")
