"""What is on record about where models come from."""

from pathlib import Path
from typing import Any

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
