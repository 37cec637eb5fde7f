"""(f) Stability: the same circuit from resampled contexts, and from training again with another seed.

- `bootstraps`: mean Jaccard index between a checkpoint's circuit and those found on 100 bootstrap samples of the search
  contexts.
- `seeds`: the demonstration's recipe (recall), trained with five seeds; what detection finds in each. Then the same
  with two heads a layer, where training may share a job between heads in one run and not in another.
- `pairs of seeds`: mean and least Jaccard index over all pairs, up to head relabelling (`imir_lens.shapes`), of the
  units with a named role, of whole circuits, and of those without their backups; on three samples of search contexts,
  since a weak auxiliary unit may be worth the budget on one of them and not on another.
"""

import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import combinations
from pathlib import Path
from typing import Any

import torch

from imir_lens.analysis import SEARCH_CONTEXTS
from imir_lens.detection import Circuit, bootstrap_jaccard, detect, path_stay
from imir_lens.explained import capture
from imir_lens.lens_model import LensModel, open_model
from imir_lens.projector import ImirProjector
from imir_lens.roles import Unit
from imir_lens.shapes import circuit_shape, shape_jaccard
from imir_lens.tasks import make_task
from imir_lens.tasks.base import Batch, Task
from imir_lens.training import default_config, train
from imir_lens.training.recipes import DEMO, Recipe

DATA = Path(__file__).parent.parent / "tests" / "data"
CHECKPOINTS = {"recall_2l.pt": {}, "memory_2l.pt": {"vocab": 65, "f_r": 0.0, "f_v": 0.0}}


def run(*, small: bool = False, seed: int = 0) -> list[dict[str, Any]]:
    """Measure both; small: few bootstraps, and two seeds of a few hundred steps."""
    rows = [_bootstraps(name, knobs, n=10 if small else 100, seed=seed) for name, knobs in CHECKPOINTS.items()]
    seeds, contexts_seeds = range(seed, seed + (2 if small else 5)), range(seed, seed + (1 if small else 3))
    wide = replace(DEMO, config=default_config(DEMO.task, n_heads=2))
    for recipe in [replace(DEMO, options={"steps": 300})] if small else [DEMO, wide]:
        rows += _seeds(recipe, seeds=seeds, contexts_seeds=contexts_seeds)
    return rows


def tables(rows: Sequence[Mapping[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    """Return the rows of each part, without its name."""
    found: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        found.setdefault(row["part"], []).append({name: value for name, value in row.items() if name != "part"})
    return found


def _bootstraps(name: str, knobs: Mapping[str, Any], *, n: int, seed: int) -> dict[str, Any]:
    task = make_task("recall", **knobs)
    circuit, batch, stay = _found(open_model(DATA / name), task, seed)
    generator = torch.Generator().manual_seed(seed + 2)
    jaccard = bootstrap_jaccard(circuit, batch, n=n, generator=generator, stay=stay)
    return {"part": "bootstraps", "model": name, "units": len(circuit.units), "bootstraps": n, "mean Jaccard": jaccard}


def _found(model: LensModel, task: Task, seed: int) -> tuple[Circuit, Batch, Any]:
    """Detect as `analyze` does."""
    projector = ImirProjector.for_task(task).fit(model.weights)
    batch = task.sample(SEARCH_CONTEXTS, torch.Generator().manual_seed(seed))
    stay = path_stay(capture(model, projector.space_.paths.heads, batch[:128]).patterns, batch[:128])
    return detect(projector.coordinates_, batch, stay=stay), batch, stay


def _seeds(recipe: Recipe, *, seeds: Sequence[int], contexts_seeds: Sequence[int]) -> list[dict[str, Any]]:
    rows, models = [], []
    for seed in seeds:
        with tempfile.TemporaryDirectory() as place:
            result = train(recipe.task, recipe.config, run=Path(place) / "run", seed=seed, **recipe.options)
        models.append(open_model(result.model))
        circuit = _found(models[-1], recipe.task, contexts_seeds[0])[0]
        rows.append(
            {
                "part": "seeds",
                "heads a layer": recipe.config.n_heads,
                "seed": seed,
                "steps": recipe.options["steps"],
                "loss": result.score.loss,
                "accuracy": result.score.accuracy,
                "units": len(circuit.units),
                "circuit": "; ".join(f"{unit.role} {unit.id} {unit.value:+.2f}" for unit in circuit.units),
            }
        )
    return rows + [_pairs(models, recipe, contexts_seed) for contexts_seed in contexts_seeds]


def _pairs(models: Sequence[LensModel], recipe: Recipe, contexts_seed: int) -> dict[str, Any]:
    circuits = [_found(model, recipe.task, contexts_seed)[0] for model in models]
    row: dict[str, Any] = {
        "part": "pairs of seeds",
        "heads a layer": recipe.config.n_heads,
        "contexts seed": contexts_seed,
        "pairs": len(models) * (len(models) - 1) // 2,
    }
    compared = {
        "named roles": [circuit_shape(circuit.units, named=True) for circuit in circuits],
        "whole circuits": [circuit_shape(circuit.units) for circuit in circuits],
        "without backups": [circuit_shape(_without_backups(circuit)) for circuit in circuits],
    }
    for what, shapes in compared.items():
        jaccard = [shape_jaccard(first, second) for first, second in combinations(shapes, 2)]
        row |= {f"{what}, mean Jaccard": sum(jaccard) / len(jaccard), f"{what}, least": min(jaccard)}
    return row


def _without_backups(circuit: Circuit) -> list[Unit]:
    return [unit for unit in circuit.units if str(unit.id) not in circuit.backups]
