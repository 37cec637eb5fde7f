"""Train a model, analyse it, and compare the circuit found with the reference."""

import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from benchmarks.trained.matching import EQUIVALENT, FOUND, Matched, Matching, match_circuit
from imir_lens.analysis import Analysis, run_analysis
from imir_lens.ids import CoordinateId
from imir_lens.lens_model import open_model
from imir_lens.models.constructions import (
    hop_circuit,
    induction_circuit,
    ioi_circuit,
    ngram_circuit,
    retrieval_circuit,
)
from imir_lens.tasks.base import Task
from imir_lens.training.loop import train
from imir_lens.training.recipes import TRAINED, Recipe

BOOTSTRAPS = 3  # many redundant heads make each search slow
SMALL = ("recall",)
HAND_BUILT: dict[str, Callable[[Any], dict[str, float]]] = {
    "recall": lambda task: induction_circuit(),
    "ngram": lambda task: ngram_circuit(task.n),
    "ioi": lambda task: ioi_circuit(gap=task.gap),
    "hop": lambda task: hop_circuit(task.hops),
    "retrieval": lambda task: retrieval_circuit(),
}


def run(*, small: bool = False, seed: int = 0) -> list[dict[str, Any]]:
    """Train and analyse one model for each recipe; small: the quickest one only."""
    return [measure(recipe, seed=seed) for name, recipe in TRAINED.items() if not small or name in SMALL]


def measure(recipe: Recipe, *, seed: int) -> dict[str, Any]:
    """Train and analyse one model.

    Args:
        recipe: what to train.
        seed: of the training run and of the analysis.
    """
    started = time.process_time()
    with tempfile.TemporaryDirectory() as place:
        model = train(recipe.task, recipe.config, run=Path(place) / "run", seed=seed, **recipe.options).model
    seconds = time.process_time() - started
    analysis = run_analysis(open_model(model), recipe.task, seed=seed, bootstraps=BOOTSTRAPS)
    return {
        "task": recipe.task.name,
        "knobs": recipe.task.knobs,
        "model": {name: getattr(recipe.config, name) for name in ("n_layers", "n_heads", "d_model")},
        "training": {**recipe.options, "seed": seed},
        "training seconds": seconds,
        **compare(analysis),
    }


def compare(analysis: Analysis) -> dict[str, Any]:
    """Return scores, verdict and the comparison with the task's reference circuit."""
    matching = match_circuit(reference_values(analysis.task), {unit.id: unit.value for unit in analysis.circuit.units})
    evidence, verdict = analysis.evidence, analysis.verdict
    return {
        "loss": evidence.model.loss,
        "accuracy": evidence.model.accuracy,
        "bayes accuracy": analysis.bayes.accuracy,
        "circuit accuracy": evidence.circuit.accuracy,
        "accuracy without": evidence.without_circuit.accuracy,
        "mechanism": verdict.mechanism,
        "level": verdict.evidence_level,
        "text": verdict.text,
        "caveats": list(verdict.caveats),
        "stability": analysis.stability,
        "roles": {role: len(units) for role, units in analysis.circuit.by_role().items()},
        "heads": {str(ours): str(theirs) for ours, theirs in matching.heads.items()},
        "reference": [_reference_unit(unit, analysis) for unit in matching.units],
        "extra": _extra_units(matching, analysis),
        "found": matching.count(FOUND),
        "equivalent": matching.count(EQUIVALENT),
    }


def reference_values(task: Task) -> dict[CoordinateId, float]:
    """Return the units of a task's reference circuit with their values in the hand-built model."""
    values = HAND_BUILT[task.name](task)
    return {CoordinateId.parse(text): values[text] for text in task.reference_circuit}


def share_of_loss(unit: CoordinateId, analysis: Analysis) -> float:
    """Return the loss the model gains without a unit, as a share of its gap to chance."""
    gap = analysis.chance.loss - analysis.evidence.model.loss
    return (analysis.evidence.units[str(unit)].model.loss - analysis.evidence.model.loss) / gap


def _reference_unit(unit: Matched, analysis: Analysis) -> dict[str, Any]:
    share = None if unit.found is None else share_of_loss(unit.found, analysis)
    found = None if unit.found is None else str(unit.found)
    return {"unit": str(unit.reference), "how": unit.how, "found": found, **_valued(found, analysis), "share": share}


def _extra_units(matching: Matching, analysis: Analysis) -> list[dict[str, Any]]:
    rows = [
        {"unit": str(unit), **_valued(str(unit), analysis), "share": share_of_loss(unit, analysis)}
        for unit in matching.extra
    ]
    return sorted(rows, key=lambda row: -row["share"])


def _valued(name: str | None, analysis: Analysis) -> Mapping[str, Any]:
    unit = next((unit for unit in analysis.circuit.units if str(unit.id) == name), None)
    return {"role": unit and unit.role, "value": unit and unit.value}
