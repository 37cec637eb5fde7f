"""The cell of an ordinary sweep: train a model, then analyse it."""

import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from imir_lens.models.config import TransformerConfig
from imir_lens.pipeline import analyze
from imir_lens.tasks.registry import make_task
from imir_lens.training.loop import train

_NO_SCORE = {"loss": None, "accuracy": None}  # of a circuit where none was found


def run_cell(settings: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """Train a model and analyse it.

    Args:
        settings: all of them, as `imir_lens.sweep.settings.resolve` returns them.
        folder: becomes the run's directory; a run that is in it already is gone on with.

    Returns:
        `training`: the last row of metrics; `analysis`: mechanism, evidence_level, units (id, role, value),
        faithfulness, completeness, stability and the scores of the report, or None; `seconds` of both.
    """
    task = make_task(settings["task"]["name"], **settings["task"]["knobs"])
    options = dict(settings["train"])
    options["curriculum"] = [(until, knobs) for until, knobs in options["curriculum"]]
    device, begun = settings.get("device"), time.monotonic()
    run = train(
        task,
        TransformerConfig.from_dict(settings["model"]),
        run=folder,
        resume=(folder / "run.json").exists(),
        device=device,
        **options,
    )
    trained = time.monotonic()
    found = None
    if settings["analysis"] is not None:
        found = _findings(analyze(run.checkpoint, task, device=device, **settings["analysis"]).data)
    seconds = {"training": trained - begun, "analysis": time.monotonic() - trained}
    return {"training": dict(run.metrics[-1]), "analysis": found, "seconds": seconds}


def _findings(report: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a table of many reports has of each."""
    circuit, evaluation = report["circuit"], report["evaluation"]
    return {
        "mechanism": report["verdict"]["mechanism"],
        "evidence_level": report["verdict"]["evidence_level"],
        "units": [{key: unit[key] for key in ("id", "role", "value")} for unit in circuit["units"]],
        "faithfulness": circuit["faithfulness"],
        "completeness": circuit["completeness"],
        "stability": circuit["stability"]["bootstrap_jaccard"] if circuit["stability"] else None,
        **{name: evaluation[name] or _NO_SCORE for name in ("model", "projection", "circuit", "without_circuit")},
    }
