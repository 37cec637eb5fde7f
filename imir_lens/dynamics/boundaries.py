"""Where along a ray of starts the winner changes, by bisection, and over which distance.

A ray goes from one start to another. Along it the cost of removing a circuit falls from what it is at the near end to
what it is at the far end; `fraction` f of the way down is where it first passes

    (1 − f) cost(near) + f cost(far)

The *position* of the boundary is that of f = 1/2. Its *width* for one seed of the contexts is the distance from
f = 0.1 to f = 0.9: a step has none, a slow crossover has most of the ray. Its *spread* is the distance between the
10 % and 90 % quantiles of the position over seeds: how far the contexts move it.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from imir_lens.dynamics.initialisation import StartTraining, train_starts
from imir_lens.dynamics.rival_circuits import RivalCircuits
from imir_lens.errors import OptionError

FRACTIONS = (0.1, 0.5, 0.9)
_LEAST_CHANGE = 0.3  # of a cost between the ends: below, there is no boundary to locate


def bisect(
    near: Callable[[Float[Tensor, " ray"]], Bool[Tensor, " ray"]], n_rays: int, *, tolerance: float = 1e-3
) -> Float[Tensor, " ray"]:
    """Locate where each of several rays leaves its near side, all at once.

    Where a ray crosses several times, one of the crossings is found.

    Args:
        near: says for a place in [0, 1] on every ray whether it is still on the near side; 0 is taken to be, 1 not.
        n_rays: number of rays.
        tolerance: half the length of the interval that is left.

    Raises:
        OptionError: when the tolerance is not in (0, 1).
    """
    if not 0 < tolerance < 1:
        raise OptionError(f"tolerance must be in (0, 1): tolerance={tolerance}")
    low, high = torch.zeros(n_rays), torch.ones(n_rays)
    while n_rays and float((high - low)[0]) > 2 * tolerance:
        middle = (low + high) / 2
        still = near(middle)
        low, high = torch.where(still, middle, low), torch.where(still, high, middle)
    return (low + high) / 2


@dataclass(frozen=True)
class Boundaries:
    """Crossings of rays, in [0, 1] along each; not a number where a ray has no boundary.

    Attributes:
        circuits: whose cost is followed on each ray: the one that changes most.
        crossings: of each fraction.
        fractions: those of the first axis.
        lengths: of the rays, in units of coordinates.
    """

    circuits: Sequence[int]
    crossings: Float[Tensor, "fraction seed ray"]
    fractions: Sequence[float]
    lengths: Float[Tensor, " ray"]

    @property
    def positions(self) -> Float[Tensor, "seed ray"]:
        """Where half of the change is done."""
        return self.crossings[list(self.fractions).index(0.5)]

    @property
    def widths(self) -> Float[Tensor, "seed ray"]:
        """Distance between the first and the last fraction, in units of coordinates."""
        return (self.crossings[-1] - self.crossings[0]).abs() * self.lengths

    @property
    def spreads(self) -> Float[Tensor, " ray"]:
        """Distance between the 10 % and 90 % quantiles of the position over seeds, in units of coordinates."""
        low, high = self.positions.quantile(torch.tensor([0.1, 0.9]), dim=0)
        return (high - low) * self.lengths


def boundaries_along(
    rivals: RivalCircuits,
    near: Float[Tensor, "ray part"],
    far: Float[Tensor, "ray part"],
    *,
    seeds: Sequence[int],
    training: StartTraining | None = None,
    tolerance: float = 1e-3,
) -> Boundaries:
    """Locate the boundary on every ray, for every seed of the contexts.

    Args:
        rivals: the circuits.
        near: where the rays begin.
        far: where they end.
        seeds: of the contexts.
        training: how runs are trained.
        tolerance: of positions, as a share of a ray.

    Raises:
        OptionError: when there are no seeds, or the ends differ in shape.
    """
    if not seeds or near.shape != far.shape:
        raise OptionError(
            f"expected seeds, and ends of the same rays: found {len(seeds)} seeds, {tuple(near.shape)} and "
            f"{tuple(far.shape)}"
        )
    n_rays, crossings = len(near), []
    circuits: Tensor | None = None
    for seed in seeds:
        ends = train_starts(rivals, torch.cat([near, far]), seed=seed, training=training).costs
        first, last = ends[:n_rays], ends[n_rays:]
        if circuits is None:
            circuits = (first - last).abs().argmax(1)
        crossings.append(_crossings(rivals, near, far, first, last, circuits, seed, training, tolerance))
    assert circuits is not None
    return Boundaries(circuits.tolist(), torch.stack(crossings, dim=1), FRACTIONS, (far - near).norm(dim=1))


def _crossings(
    rivals: RivalCircuits,
    near: Tensor,
    far: Tensor,
    first: Tensor,
    last: Tensor,
    circuits: Tensor,
    seed: int,
    training: StartTraining | None,
    tolerance: float,
) -> Float[Tensor, "fraction ray"]:
    """All fractions of all rays are bisected in one batch."""
    n_rays, rays = len(near), torch.arange(len(near))
    begin, end = first[rays, circuits], last[rays, circuits]
    fractions = torch.tensor(FRACTIONS).unsqueeze(1)
    levels = ((1 - fractions) * begin + fractions * end).flatten()
    falls = (begin > end).repeat(len(FRACTIONS))
    which, start = circuits.repeat(len(FRACTIONS)), near.repeat(len(FRACTIONS), 1)
    step = (far - near).repeat(len(FRACTIONS), 1)

    def still_near(at: Tensor) -> Tensor:
        costs = train_starts(rivals, start + at.unsqueeze(1) * step, seed=seed, training=training).costs
        cost = costs.gather(1, which.unsqueeze(1)).squeeze(1)
        return torch.where(falls, cost > levels, cost < levels)

    found = bisect(still_near, len(levels), tolerance=tolerance).view(len(FRACTIONS), n_rays)
    return torch.where((begin - end).abs() >= _LEAST_CHANGE, found, torch.nan)
