"""`analyze`: from a checkpoint, or a live model, to its report."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from torch import nn

from imir_lens.analysis import BOOTSTRAPS, run_analysis
from imir_lens.lens_model import open_model
from imir_lens.report.build import report_data
from imir_lens.report.document import Report
from imir_lens.tasks import make_task
from imir_lens.tasks.base import Task


def analyze(
    model: nn.Module | str | Path,
    task: Task | str,
    *,
    knobs: Mapping[str, Any] | None = None,
    config: str | Path | None = None,
    overrides: Mapping[str, Any] | None = None,
    contexts: int = 512,
    budget: float = 0.01,
    seed: int = 0,
    bootstraps: int = BOOTSTRAPS,
    device: str | None = None,
    command: str | None = None,
    progress: Callable[[str], None] = lambda step: None,
) -> Report:
    """Find out how a model does a task.

    Args:
        model: a checkpoint path, an ImirTransformer, a DisentangledTransformer, a HookedTransformer (TransformerLens 3)
            or a native TransformerBridge (TransformerLens 4).
        task: a task, or the name of one.
        knobs: knobs of a task given by name.
        config: for a path without a config: a JSON file.
        overrides: for a path: single config fields.
        contexts: number of test contexts.
        budget: share of the loss gap that the circuit may give up.
        seed: of all contexts.
        bootstraps: number of bootstrap searches behind the stability figure.
        device: where to run.
        command: what to print in the report as its origin (default: this call).
        progress: called with the name of each step.

    Returns:
        The report: `report.verdict`, `report.units`, `report.save(directory)`.

    Raises:
        ImirError: of the kind that names the fault; see `open_model`, `make_task` and `run_analysis`.
    """
    resolved = make_task(task, **dict(knobs or {})) if isinstance(task, str) else task
    opened = open_model(model, config=config, overrides=overrides, device=device)
    analysis = run_analysis(
        opened, resolved, contexts=contexts, budget=budget, seed=seed, bootstraps=bootstraps, progress=progress
    )
    settings = "".join(f", {name}={value!r}" for name, value in resolved.knobs.items())
    call = (
        f"imir_lens.analyze({opened.info['source']!r}, make_task({resolved.name!r}{settings}), "
        f"contexts={contexts}, budget={budget}, seed={seed}, bootstraps={bootstraps})"
    )
    return Report(report_data(analysis, command=command or call), coordinates=analysis.circuit.coordinates)
