"""(a) What detection costs: evaluations, gradient passes, seconds, and seconds per forward pass of the model.

The forward pass is the real model's, on the same search contexts, without gradients.
"""

from math import log2
from pathlib import Path
from typing import Any

import torch

from benchmarks.measure import seconds
from imir_lens.detection import Circuit, detect
from imir_lens.lens_model import LensModel, open_model
from imir_lens.models.constructions import hop_circuit, induction_circuit, plant
from imir_lens.projector import ImirProjector
from imir_lens.tasks import make_task
from imir_lens.tasks.base import Batch, Task

DATA = Path(__file__).parent.parent / "tests" / "data"
MEMORY = {"vocab": 65, "f_r": 0.0, "f_v": 0.0}


def run(*, small: bool = False, seed: int = 0) -> list[dict[str, Any]]:
    """Measure the real checkpoints, then planted models of growing size."""
    cases: list[tuple[str, LensModel, Task]] = [
        ("recall_2l.pt", open_model(DATA / "recall_2l.pt"), make_task("recall")),
        ("memory_2l.pt", open_model(DATA / "memory_2l.pt"), make_task("recall", **MEMORY)),
    ]
    cases += [(name, open_model(model), task) for name, model, task in _planted(small=small, seed=seed)]
    return [_measure(name, model, task, contexts=64 if small else 256, seed=seed) for name, model, task in cases]


def _planted(*, small: bool, seed: int) -> list[tuple[str, Any, Task]]:
    """Induction among random heads and 10 % noise, at more and more coordinates; and the 5-layer 2-hop model."""
    out = []
    for n_layers, length, pairs in [(2, 10, 3), (2, 24, 8), (3, 24, 8), (4, 24, 8), (5, 24, 8)][: 2 if small else None]:
        task = make_task("recall", length=length, pairs=pairs)
        generator = torch.Generator().manual_seed(seed)
        options = {"n_layers": n_layers, "n_heads": 1, "other_heads": "random", "noise": 0.1}
        model = plant(task, induction_circuit(), generator=generator, **options)
        out.append((f"induction, {n_layers} layers, {length} positions", model, task))
    if not small:
        task = make_task("hop", hops=2)
        generator = torch.Generator().manual_seed(seed)
        model = plant(task, hop_circuit(2), n_layers=5, n_heads=1, other_heads="random", generator=generator)
        out.append(("2-hop, 5 layers, 24 positions", model, task))
    return out


def _measure(name: str, model: LensModel, task: Task, *, contexts: int, seed: int) -> dict[str, Any]:
    # Paths are cut only where none of their coordinates is above rounding, so that the count is of all coordinates.
    projector = ImirProjector.for_task(task, min_coordinate=1e-6).fit(model.weights)
    batch = task.sample(contexts, torch.Generator().manual_seed(seed))
    forward = seconds(lambda: model.logits(batch.tokens))
    circuit = _best_of(projector, batch)
    n, k = projector.space_.n_active, len(circuit.units)
    return {
        "model": name,
        "coordinates": n,
        "circuit": k,
        "evaluations": circuit.evaluations,
        "gradient passes": circuit.gradient_passes,
        "evaluations / (circuit · log2 coordinates)": circuit.evaluations / (max(k, 1) * log2(n)),
        "seconds": circuit.seconds,
        "forward passes": circuit.seconds / forward,
        "projection, forward passes": seconds(lambda: projector.fit(model.weights), repeats=2) / forward,
    }


def _best_of(projector: ImirProjector, batch: Batch, *, repeats: int = 2) -> Circuit:
    runs = [detect(projector.coordinates_, batch) for _ in range(repeats)]
    return min(runs, key=lambda circuit: circuit.seconds)
