"""In-context against in-weights learning on `recall`: how the data scale the gradient of either.

Four coordinates of a two-layer surrogate compete: alpha, beta and gamma make the induction head (in context), delta
reads the fixed association off the query (in weights). With f_r the share of rare pairs, f_v that of varied labels and
b the mean number of copies of the queried pair, arXiv 2607.11875 predicts that the in-context gradient

- is ordered by `f_r + (1 − f_r) f_v`, the share of queries that memory cannot answer (Theorem 2), and
- is linear in b while distractors dominate (Theorem 3).

The first is a statement about a model that has memory already: at delta = 0 a query that memory could answer pulls on
the induction head as much as any other, and the gradient does not depend on f_r and f_v at all. With delta large it is
right on all but that share. At the delta that is best by itself memory answers a couple with probability 1 − f_v only,
so that the share of its errors, hence the pull, is `f_r + (1 − f_r) (1 − (1 − f_v)²)`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from math import sqrt

import torch
from jaxtyping import Float
from torch import Tensor

from imir_lens.coordinates import CoordinateSpace
from imir_lens.dynamics.batched_surrogate import BatchedSurrogate
from imir_lens.dynamics.run_batch import RunBatch
from imir_lens.errors import OptionError, TaskError
from imir_lens.paths import PathTable
from imir_lens.tasks.recall import Recall

IN_CONTEXT = {
    "alpha": "L0H0/score/q:res/k:res/offset+1",
    "beta": "L1H0/score/q:res/k:L0H0/same",
    "gamma": "readout/via:L1H0/same",
}
IN_WEIGHTS = {"delta": "readout/via:res/assoc"}
ROLES = {**IN_CONTEXT, **IN_WEIGHTS}


def context_share(f_r: float, f_v: float) -> float:
    """Return `f_r + (1 − f_r) f_v`, the share of pairs that the fixed association does not tell (Theorem 2).

    >>> context_share(0.5, 0.5)
    0.75
    """
    return f_r + (1 - f_r) * f_v


def error_share(f_r: float, f_v: float) -> float:
    """Return `f_r + (1 − f_r)(1 − (1 − f_v)²)`, the share of errors of a memory as sure of itself as it should be.

    >>> error_share(0.0, 0.5)
    0.75
    """
    return f_r + (1 - f_r) * (1 - (1 - f_v) ** 2)


class CompetingCoordinates:
    """The four coordinates of one task's surrogate, in the order of `ROLES`.

    Args:
        task: has common words: give `rare`, so that tasks of all f_r and f_v share one vocabulary.

    Raises:
        TaskError: when there is no association to memorise.
    """

    def __init__(self, task: Recall) -> None:
        if "assoc" not in task.relations.matchings:
            raise TaskError(f"{task.name} without common words has nothing to memorise: lower rare={task.n_rare}")
        self.space = CoordinateSpace(PathTable.full(2, 1), task.relations, task.n_positions, task.query_positions)
        self.chosen = torch.zeros(self.space.size, dtype=torch.bool)
        self.chosen[[self.space.place(name) for name in ROLES.values()]] = True
        self.surrogate = BatchedSurrogate(self.space, self.chosen)
        places = self.surrogate.places.tolist()
        self._order = [places.index(self.space.place(name)) for name in ROLES.values()]
        self._back = [self._order.index(place) for place in range(len(places))]

    def logits(self, values: Float[Tensor, "run role"], batch: RunBatch) -> Float[Tensor, "run context query vocab"]:
        """Run the surrogate of every row of coordinates."""
        return self.surrogate.logits_of_chosen(values[:, self._back], batch)

    def by_role(self, values: Float[Tensor, " chosen"]) -> Float[Tensor, " role"]:
        """Sort what belongs to the chosen coordinates, in the order of their places, by role."""
        return values[self._order]


@dataclass(frozen=True)
class MechanismGradient:
    """Minus the gradient of the loss in each of the four coordinates, by role.

    Attributes:
        mean: estimate; positive: the coordinate grows.
        error: its standard error, from the spread of the batches' means.
        contexts: number of contexts.
    """

    mean: dict[str, float]
    error: dict[str, float]
    contexts: int


def mechanism_gradient(
    task: Recall,
    point: Mapping[str, float],
    *,
    contexts: int,
    generator: torch.Generator,
    batches: int = 8,
) -> MechanismGradient:
    """Estimate how fast either mechanism is pulled on, at one point.

    Args:
        task: gives the contexts.
        point: role → value; roles left out are 0.
        contexts: in all.
        generator: of the contexts.
        batches: how many means the standard error comes from.

    Raises:
        OptionError: for an unknown role, or fewer than two batches.
        TaskError: when the task has nothing to memorise.
    """
    if unknown := sorted(set(point) - set(ROLES)):
        raise OptionError(f"unknown role {unknown[0]!r}: expected some of {', '.join(ROLES)}")
    if not 2 <= batches <= contexts:
        raise OptionError(f"a standard error needs from two batches to one a context: batches={batches}")
    competing = CompetingCoordinates(task)
    values = torch.tensor([[point.get(role, 0.0) for role in ROLES]], dtype=torch.float64, requires_grad=True)
    found = []
    for _ in range(batches):
        batch = RunBatch.of(task.sample(contexts // batches, generator))
        loss = batch.losses(competing.logits(values, batch)).sum()
        found.append(-torch.autograd.grad(loss, values)[0][0])
    rows = torch.stack(found)
    return MechanismGradient(
        dict(zip(ROLES, rows.mean(0).tolist(), strict=True)),
        dict(zip(ROLES, (rows.std(0) / sqrt(batches)).tolist(), strict=True)),
        contexts // batches * batches,
    )


def settled_memory(
    task: Recall, point: Mapping[str, float], *, contexts: int, generator: torch.Generator, most: float = 15.0
) -> float:
    """Return the delta at which its own gradient vanishes, the others held: what memory alone would settle at.

    The loss is convex in delta, so bisection on one sample of contexts finds it; `most` is returned where the gradient
    still is positive there.

    Args:
        task: gives the contexts.
        point: role → value of the others.
        contexts: in the sample.
        generator: of the contexts.
        most: upper end.
    """
    competing, batch = CompetingCoordinates(task), RunBatch.of(task.sample(contexts, generator))

    def pull(delta: float) -> float:
        row = [{**point, "delta": delta}.get(role, 0.0) for role in ROLES]
        values = torch.tensor([row], dtype=torch.float64, requires_grad=True)
        loss = batch.losses(competing.logits(values, batch)).sum()
        return -float(torch.autograd.grad(loss, values)[0][0, -1])

    low, high = -most, most
    if pull(high) > 0:
        return high
    for _ in range(30):
        middle = (low + high) / 2
        low, high = (middle, high) if pull(middle) > 0 else (low, middle)
    return (low + high) / 2
