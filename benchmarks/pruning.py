"""Circuits written back into checkpoints: what is kept, what is left over, and what the pruned model does.

Circuits are detected on 128 contexts; models are scored on 512 others.
"""

from pathlib import Path
from typing import Any

import torch

from imir_lens.checkpoints import load_transformer
from imir_lens.detection import detect
from imir_lens.dynamics.pruning import prune
from imir_lens.lens_model import open_model
from imir_lens.models.constructions import induction_circuit, plant
from imir_lens.models.transformer import ImirTransformer
from imir_lens.projector import ImirProjector
from imir_lens.tasks import make_task
from imir_lens.tasks.base import Task

DATA = Path(__file__).parent.parent / "tests" / "data"


def run(*, small: bool = False, seed: int = 0) -> list[dict[str, Any]]:
    """Prune a planted model and the trained ones."""
    recall, memory = make_task("recall"), make_task("recall", vocab=65, f_r=0.0, f_v=0.0)
    planted = plant(
        recall,
        induction_circuit(),
        n_layers=2,
        n_heads=2,
        other_heads="random",
        noise=0.1,
        generator=torch.Generator().manual_seed(seed),
    )
    cases: list[tuple[str, ImirTransformer, Task]] = [("planted, noise 0.1", planted, recall)]
    if not small:
        trained = [("recall_2l.pt", recall), ("memory_2l.pt", memory)]
        cases += [(name, _transformer(DATA / name), task) for name, task in trained]
    rows = []
    for name, model, task in cases:
        coordinates = ImirProjector.for_task(task).fit(open_model(model).weights).coordinates_
        circuit = detect(coordinates, task.sample(128, torch.Generator().manual_seed(seed)))
        found = prune(model, circuit, task.sample(512, torch.Generator().manual_seed(seed + 1)))
        off = {unit: found.kept[unit] - value for unit, value in found.wanted.items()}
        worst = max(off, key=lambda unit: abs(off[unit]))
        rows.append(
            {
                "model": name,
                "d_model": model.cfg.d_model,
                "circuit": len(found.wanted),
                "numbers, before": found.numbers_before,
                "numbers, after": found.numbers_after,
                "ranks": "; ".join(f"{head} {qk}, {ov}" for head, (qk, ov) in found.ranks.items()),
                "loss, before": found.before.loss,
                "loss, circuit": found.circuit.loss,
                "loss, after": found.after.loss,
                "accuracy, before": found.before.accuracy,
                "accuracy, after": found.after.accuracy,
                "farthest off": worst,
                "wanted": found.wanted[worst],
                "got": found.kept[worst],
                "largest of the rest": found.rest[0],
                "rest": found.rest[1],
            }
        )
    return rows


def tables(rows: list[dict[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    """Return what a page shows: what the pruned models do, and what is left over."""
    cut = list(rows[0]).index("farthest off")
    left = [{"model": row["model"], **dict(list(row.items())[cut:])} for row in rows]
    return {"behaviour": [dict(list(row.items())[:cut]) for row in rows], "left over": left}


def _transformer(path: Path) -> ImirTransformer:
    model = load_transformer(path)
    if not isinstance(model, ImirTransformer):
        raise TypeError(f"{path} holds a {type(model).__name__}")
    return model
