"""Spaces, values and batches that the tests of surrogate training share."""

import torch
from torch import Tensor

from imir_lens.coordinates import CoordinateSpace
from imir_lens.paths import PathTable
from imir_lens.tasks import make_task
from imir_lens.tasks.base import Task

INDUCTION = ("L0H0/score/q:res/k:res/offset+1", "L1H0/score/q:res/k:L0H0/same", "readout/via:L1H0/same")


def small_recall(**knobs: object) -> Task:
    return make_task("recall", **{"vocab": 16, "pairs": 3, "length": 9, **knobs})


def space_of(task: Task, n_layers: int = 2, n_heads: int = 1) -> CoordinateSpace:
    table = PathTable.full(n_layers, n_heads)
    return CoordinateSpace(table, task.relations, task.n_positions, task.query_positions)


def random_values(space: CoordinateSpace, runs: int, *, seed: int = 0, share: float = 1.0) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    values = 0.7 * torch.randn(runs, space.size, generator=generator, dtype=torch.float64)
    kept = (torch.rand(space.size, generator=generator) < share) & space.active
    return torch.where(kept, values, 0.0)


def mask_of(space: CoordinateSpace, ids: tuple[str, ...]) -> Tensor:
    mask = torch.zeros(space.size, dtype=torch.bool)
    mask[[space.place(name) for name in ids]] = True
    return mask
