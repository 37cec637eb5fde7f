"""`imir-lens train TASK --causal`: a causal transformer, for a task with a hidden graph."""

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from imir_lens.commands.shared import on_one_line
from imir_lens.errors import OptionError

if TYPE_CHECKING:
    from imir_lens.causal.training import CausalTraining
    from imir_lens.tasks.episodes import CausalTask
    from imir_lens.training.loop import Progress

STEPS: Final = 1024
# What a run's record holds beside the options of `train_causal`.
_NOT_OPTIONS: Final = ("decay_until",)


def options_of(record: Mapping[str, Any], chosen: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options to train with: as chosen, and for the rest as the run was started with.

    Args:
        record: of the run to go on with; empty for a new one.
        chosen: what was given on the command line.

    Raises:
        OptionError: for an option that these runs do not have.
    """
    if "checkpoint_every" in chosen:
        raise OptionError(
            "--checkpoint-every is not for --causal: these runs keep checkpoints at steps that grow in proportion"
        )
    recorded = {k: v for k, v in record.get("training", {}).items() if k not in _NOT_OPTIONS}
    return {"steps": STEPS, **recorded, **chosen}


def train_run(
    task: "CausalTask",
    changes: Mapping[str, Any],
    options: Mapping[str, Any],
    *,
    run: Path,
    resume: bool,
    device: str | None,
    progress: "Progress | None",
) -> "CausalTraining":
    """Train a causal transformer with the task's sizes.

    Args:
        task: what to learn.
        changes: fields of its config to set.
        options: of `train_causal`, `steps` among them.
        run: where the run goes.
        resume: go on with the run that is there.
        device: where to train.
        progress: told of every step.
    """
    from imir_lens.causal.config import CausalConfig
    from imir_lens.causal.files import config_for
    from imir_lens.causal.training import train_causal

    config = CausalConfig.from_dict({**config_for(task).to_dict(), **changes})
    placed: dict[str, Any] = {"device": device} if device else {}
    return train_causal(task, config, run=run, resume=resume, progress=progress, **placed, **options)


def causal_result(result: "CausalTraining") -> tuple[dict[str, Any], list[str]]:
    """Return what came out of a run, as JSON values and as lines.

    Args:
        result: of `train_run`.
    """
    last = result.curve[-1]
    losses = {
        "model": {key: last[key] for key in ("loss", "parent_loss")},
        "bma": {key: last[f"bma_{key}"] for key in ("loss", "parent_loss")},
        "uniform": {key: last[f"uniform_{key}"] for key in ("loss", "parent_loss")},
    }
    run, checkpoint = str(result.run), str(result.checkpoint)
    data = {"run": run, "checkpoint": checkpoint, "step": last["step"], **losses}
    lines = [
        f"{name:<10} loss {found['loss']:.4f}  parent loss {found['parent_loss']:.4f}" for name, found in losses.items()
    ]
    return data, [
        *lines,
        f"checkpoint {checkpoint}",
        f"verify     imir-lens verify {on_one_line(run)} --out REPORT",
    ]
