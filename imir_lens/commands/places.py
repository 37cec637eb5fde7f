"""Where results go, and what is on record about where models come from."""

import os
from pathlib import Path
from typing import Any

from imir_lens.errors import OptionError


def check_place(directory: Path, *, force: bool) -> None:
    """Refuse an output directory that is taken or cannot be written, before any work is done for it.

    Raises:
        OptionError: saying which.
    """
    from imir_lens.report.document import check_output

    try:
        place = directory.absolute()
        nearest = next(folder for folder in (place, *place.parents) if folder.exists())
    except OSError as error:
        raise OptionError(f"cannot write to {str(directory)!r}: {error.strerror}; choose another --out") from error
    if nearest != place and not nearest.is_dir():
        raise OptionError(f"cannot write to {str(directory)!r}: {str(nearest)!r} is a file; choose another --out")
    check_output(directory, force=force)
    if not os.access(nearest, os.W_OK | os.X_OK):
        raise OptionError(f"cannot write to {str(directory)!r}: permission denied; choose another --out")


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
