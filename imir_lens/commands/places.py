"""What is on record about where models come from."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from imir_lens.commands.shared import Output
from imir_lens.errors import OptionError


def run_of(checkpoint: Path) -> Path | None:
    """Return the run directory that a checkpoint is, or lies in; None when it was not made by `imir-lens train`."""
    for folder in (checkpoint, checkpoint.parent.parent):
        if (folder / "run.json").is_file():
            return folder
    return None


def read_run(run: Path) -> dict[str, Any]:
    """Return a run's record: its `task` (`name`, `knobs`), `model` and `training`.

    Raises:
        OptionError: when there is none, or it lacks one of them.
    """
    from imir_lens.training.run_directory import read_record

    record = read_record(run)
    task = record.get("task")
    parts = [record.get("model"), record.get("training"), task, task.get("knobs") if isinstance(task, dict) else None]
    if not all(isinstance(part, dict) for part in parts) or not isinstance(record["task"].get("name"), str):
        raise OptionError(f"{run / 'run.json'} is not the record of a run: expected its task, model and training in it")
    return record


def task_of(
    checkpoint: Path, task: str | None, knobs: Sequence[str], *, say: Output, example: str
) -> tuple[str, dict[str, Any]]:
    """Return the task to take a model for, and its knobs: as given, and for the rest as its run of training has them.

    Args:
        checkpoint: the model.
        task: the task's name, if it was given.
        knobs: settings `KNOB=VALUE` that were given.
        say: where to say which knobs were taken from the run.
        example: what to write after `--task` in the message to one who has to.

    Raises:
        OptionError: when neither the user nor the run names a task.
        TaskError: when a knob does not fit.
    """
    from imir_lens.tasks.registry import parse_knobs

    run = run_of(checkpoint)
    recorded = {} if run is None else read_run(run)["task"]
    name = task or recorded.get("name")
    if name is None:
        raise OptionError(f"{checkpoint} does not say what it was trained on: give --task {example}")
    settings = parse_knobs(name, knobs)
    if recorded.get("name") == name:
        settings = {**recorded["knobs"], **settings}
        say.note("knobs as in the run: " + " ".join(f"{knob}={value}" for knob, value in settings.items()))
    return name, settings
