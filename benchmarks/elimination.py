"""(c) Exhaustive one-by-one backward elimination against ours, on models small enough for both.

Exhaustive: from all coordinates, at every step try every single removal, take the one that hurts least, and stop when
none stays within the limit. It needs no ranking and no gradients, and about n²/2 evaluations.
"""

import time
from pathlib import Path
from typing import Any

import torch

from imir_lens.detection import detect
from imir_lens.lens_model import open_model
from imir_lens.models.constructions import induction_circuit, memory_circuit, plant
from imir_lens.projector import ImirProjector
from imir_lens.search import Meter
from imir_lens.surrogate import Surrogate
from imir_lens.tasks import make_task

DATA = Path(__file__).parent.parent / "tests" / "data"


def exhaustive(meter: Meter, limit: float) -> list[int]:
    """Remove the least harmful coordinate, one at a time, trying all of them each time."""
    kept = (meter.values.abs() > 1e-6 * meter.values.abs().max()).nonzero().squeeze(1).tolist()
    while kept:
        losses = [meter.score(meter.mask(kept[:i] + kept[i + 1 :])).loss for i in range(len(kept))]
        best = min(range(len(kept)), key=losses.__getitem__)
        if losses[best] > limit:
            return kept
        kept.pop(best)
    return kept


def run(*, small: bool = False, seed: int = 0) -> list[dict[str, Any]]:
    """Compare circuits and costs."""
    recall, memory = make_task("recall", length=10, pairs=3), make_task("recall", vocab=65, f_r=0.0, f_v=0.0)
    generator = torch.Generator().manual_seed(seed)
    options: dict[str, Any] = {"n_layers": 2, "n_heads": 1, "other_heads": "random", "noise": 0.1}
    cases: list[tuple[str, Any, Any]] = [
        ("planted induction, 10 positions", plant(recall, induction_circuit(), generator=generator, **options), recall)
    ]
    if not small:
        cases += [
            ("planted memory, 24 positions", plant(memory, memory_circuit(), generator=generator, **options), memory),
            ("recall_2l.pt", DATA / "recall_2l.pt", make_task("recall")),
            ("memory_2l.pt", DATA / "memory_2l.pt", memory),
        ]
    rows = []
    for name, source, task in cases:
        projector = ImirProjector.for_task(task, min_coordinate=1e-6).fit(open_model(source).weights)
        batch = task.sample(16 if small else 128, torch.Generator().manual_seed(seed))
        ours = detect(projector.coordinates_, batch)
        meter = Meter(Surrogate(projector.space_), projector.coordinates_.values, batch)
        started = time.perf_counter()
        theirs = set(exhaustive(meter, ours.limit))
        spent = time.perf_counter() - started
        mine = {unit.place for unit in ours.units}
        rows.append(
            {
                "model": name,
                "coordinates": projector.space_.n_active,
                "ours": len(mine),
                "exhaustive": len(theirs),
                "common": len(mine & theirs),
                "same circuit": "yes" if mine == theirs else "no",
                "evaluations, exhaustive / ours": meter.evaluations / ours.evaluations,
                "seconds, exhaustive / ours": spent / ours.seconds,
                "only in one": ", ".join(sorted(str(projector.space_.id(place)) for place in mine ^ theirs)) or "-",
            }
        )
    return rows
