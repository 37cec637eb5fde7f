"""Trained with L examples, tested with L': L_pa beside that of the posterior from all L', and from the nearest L."""

from functools import partial
from typing import Any

from benchmarks.causal.figures import TEST_SEED
from benchmarks.causal.keeping import kept_row
from benchmarks.partial import PartialRows
from imir_lens.causal.behaviour import examples_curve
from imir_lens.causal.training import train_causal
from imir_lens.ids import Head
from imir_lens.tasks.causal_tree import CausalTree

PART = "generalisation"
READER = Head(1, 0)


def rows(*, small: bool, seed: int, kept: PartialRows) -> list[dict[str, Any]]:
    """One row for each number of training examples, with a curve over the number of test examples."""
    sizes = {"d": 3, "positions": 4} if small else {"d": 10, "positions": 15}
    options: dict[str, Any] = {"steps": 50 if small else 2048, "batch": 64, "decay": 0.2}
    tested = (1, 2) if small else tuple(range(1, 21))
    found = []
    for examples in (1, 2) if small else (1, 3, 5, 10):
        task = CausalTree(examples=examples, **sizes)
        key = {"d": task.d, "H": task.positions, "L": examples, **options, "seed": seed}
        found.append(kept_row(kept, PART, key, partial(measure, task, options, tested, seed, 64 if small else 1024)))
    return found


def measure(
    task: CausalTree, options: dict[str, Any], tested: tuple[int, ...], seed: int, contexts: int
) -> dict[str, Any]:
    """Train one model and test it with other numbers of examples."""
    model = train_causal(task, seed=seed, **options).model
    curve = examples_curve(model, task, tested, contexts=contexts, seed=TEST_SEED, reader=READER)
    return {
        "curve": [
            {"L'": p.examples, "L_pa": p.model, "BMA": p.bma, "BMA, nearest L": p.bma_seen, "uniform": p.uniform}
            for p in curve
        ]
    }
