"""A run on disk: what it is, its metrics, its checkpoints, and the state to go on from.

    run.json                         task, model, training options, seed, versions
    metrics.jsonl                    one line per evaluation
    checkpoints/step_00001000.pt     weights and cfg, as TransformerLens users save them
    state.pt                         weights, optimizer, generator: replaced as training goes on

Every file but `metrics.jsonl` is replaced whole, so a kill at any moment leaves the old one or the new one; a line of
metrics that was cut short is dropped when the run is resumed.
"""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import nn

from imir_lens.checkpoint_files import write_atomically
from imir_lens.checkpoints import load_checkpoint, save_checkpoint
from imir_lens.errors import CheckpointError, OptionError

Metrics = Mapping[str, int | float]


class RunDirectory:
    """Where a run keeps its files.

    Args:
        path: the directory.
        record: what identifies the run, as JSON values: the contents of `run.json`.
    """

    def __init__(self, path: Path, record: dict[str, Any]) -> None:
        self.path = path
        self.record = record

    def start(self) -> None:
        """Begin a new run.

        Raises:
            OptionError: when something is there already, or the place cannot be written.
        """
        if self.path.exists() and (not self.path.is_dir() or any(self._visible())):
            raise OptionError(f"{self.path} already exists: choose another place, or resume the run in it")
        self.write_record()

    def reopen(self) -> None:
        """Go on with the run that is there.

        Raises:
            OptionError: when there is none, or it was made with another task, model, seed or option.
        """
        differences = _differences(_identity(read_record(self.path)), _identity(self.record))
        if differences:
            name, old, new = differences[0]
            raise OptionError(f"{self.path} was made with {name}={old!r}, found {new!r}: resume it with the former")
        for leftover in [*self.path.glob(".*.tmp"), *self.path.glob("checkpoints/.*.tmp")]:
            leftover.unlink()  # half-written by a process that was killed

    def write_record(self) -> None:
        """Write `run.json`."""
        write_atomically(self.path / "run.json", json.dumps(self.record, indent=2).encode())

    def checkpoint(self, step: int) -> Path:
        """Return where the checkpoint of a step is kept."""
        return self.path / "checkpoints" / f"step_{step:08d}.pt"

    def save_checkpoint(self, step: int, model: nn.Module, config: Mapping[str, Any]) -> None:
        """Write the checkpoint of a step."""
        save_checkpoint(self.checkpoint(step), model.state_dict(), config, extra={"step": step})

    def save_state(
        self,
        step: int,
        model: nn.Module,
        config: Mapping[str, Any],
        optimizer: torch.optim.Optimizer,
        generator: torch.Generator,
    ) -> None:
        """Write all that the steps after `step` depend on."""
        extra = {"step": step, "optimizer": optimizer.state_dict(), "generator": generator.get_state()}
        save_checkpoint(self.path / "state.pt", model.state_dict(), config, extra=extra)

    def restore(self, model: nn.Module, optimizer: torch.optim.Optimizer, generator: torch.Generator) -> int:
        """Set model, optimizer and generator to the saved state, drop later metrics, and return its step.

        A run that was killed before its first save starts anew, at step 0.

        Raises:
            CheckpointError: when `state.pt` is damaged.
        """
        file = self.path / "state.pt"
        step = 0
        if file.exists():
            state = load_checkpoint(file)
            if state.step is None or {"optimizer", "generator"} - state.extra.keys():
                raise CheckpointError(f"{file}: not the state of a run: expected step, optimizer and generator in it")
            model.load_state_dict(state.state_dict)
            optimizer.load_state_dict(state.extra["optimizer"])
            generator.set_state(state.extra["generator"])
            step = state.step
        kept = [row for row in read_metrics(self.path) if row["step"] < step]
        write_atomically(self.path / "metrics.jsonl", "".join(map(_line, kept)).encode())
        return step

    def append_metrics(self, row: Metrics) -> None:
        """Add one line to `metrics.jsonl`."""
        try:
            with (self.path / "metrics.jsonl").open("a") as file:
                file.write(_line(row))
        except OSError as error:
            raise OptionError(f"{self.path / 'metrics.jsonl'} cannot be written: {error.strerror}") from error

    def _visible(self) -> Iterator[Path]:
        return (entry for entry in self.path.iterdir() if not entry.name.startswith("."))


def read_record(run: Path) -> dict[str, Any]:
    """Return the contents of a run's `run.json`.

    Raises:
        OptionError: when the directory is not a run, or the file is damaged.
    """
    try:
        record = json.loads((run / "run.json").read_bytes())
    except OSError as error:
        raise OptionError(f"{run} is not a run: run.json cannot be read ({error.strerror})") from error
    except ValueError as error:
        raise OptionError(f"{run / 'run.json'} is not valid JSON: {error}") from error
    if not isinstance(record, dict):
        raise OptionError(f"{run / 'run.json'} is not the record of a run: found {type(record).__name__}")
    return record


def read_metrics(run: Path) -> list[Metrics]:
    """Return the rows of a run's `metrics.jsonl`, up to the first line that was cut short; none without a file."""
    rows: list[Metrics] = []
    try:
        lines = (run / "metrics.jsonl").read_text().splitlines()
    except FileNotFoundError:
        return rows
    for line in lines:
        try:
            rows.append(json.loads(line))
        except ValueError:
            break
    return rows


def _line(row: Metrics) -> str:
    return json.dumps(row) + "\n"


def _identity(record: Mapping[str, Any]) -> dict[str, Any]:
    """Return what must not change when a run is resumed: a newer library or a longer run is still this run."""
    training = {name: value for name, value in record.get("training", {}).items() if name != "steps"}
    return {"task": record.get("task"), "model": record.get("model"), "training": training}


def _differences(old: Any, new: Any, name: str = "") -> list[tuple[str, Any, Any]]:
    """Return (dotted name, old, new) of every leaf that differs."""
    if isinstance(old, dict) and isinstance(new, dict):
        keys = list(dict.fromkeys([*old, *new]))
        return [d for key in keys for d in _differences(old.get(key), new.get(key), f"{name}.{key}".lstrip("."))]
    return [] if old == new else [(name, old, new)]
