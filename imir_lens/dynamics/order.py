"""How well a predicted order or a straight line agrees with estimates that have errors of their own."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import torch
from jaxtyping import Float
from torch import Tensor

from imir_lens.errors import OptionError


class Estimate(NamedTuple):
    """A number with the bounds between which 95 % of its resamples lie."""

    value: float
    low: float
    high: float


def spearman(first: Sequence[float], second: Sequence[float]) -> float:
    """Return the rank correlation; tied values share their mean rank. 0 where either has one value only.

    >>> round(spearman([1.0, 2.0, 3.0], [10.0, 30.0, 20.0]), 6)
    0.5
    """
    ranks = [_ranks(values) for values in (first, second)]
    if len(first) != len(second) or len(first) < 2:
        raise OptionError(f"a rank correlation needs two lists of one length: found {len(first)} and {len(second)}")
    x, y = (rank - rank.mean() for rank in ranks)
    size = float(x.norm() * y.norm())
    return float(x @ y) / size if size > 0 else 0.0


def line_r2(x: Sequence[float], y: Sequence[float]) -> float:
    """Return the share of the variance of y that its best straight line in x explains.

    >>> line_r2([0.0, 1.0, 2.0], [1.0, 3.0, 5.0])
    1.0
    """
    a, b = (torch.tensor(list(values), dtype=torch.float64) for values in (x, y))
    a, b = a - a.mean(), b - b.mean()
    size = float(a.square().sum() * b.square().sum())
    return float(a @ b) ** 2 / size if size > 0 else 0.0


def with_errors(
    statistic: Callable[[Sequence[float]], float],
    means: Sequence[float],
    errors: Sequence[float],
    *,
    resamples: int = 1000,
    seed: int = 0,
) -> Estimate:
    """Return a statistic of estimates, and its 95 % interval when each moves by its standard error.

    Args:
        statistic: of a list of values.
        means: the estimates.
        errors: their standard errors.
        resamples: how often they are moved.
        seed: of these moves.
    """
    generator = torch.Generator().manual_seed(seed)
    centre, spread = (torch.tensor(list(values), dtype=torch.float64) for values in (means, errors))
    moves = torch.randn(resamples, len(centre), generator=generator, dtype=torch.float64)
    drawn = torch.tensor([statistic(row) for row in (centre + spread * moves).tolist()], dtype=torch.float64)
    low, high = drawn.quantile(torch.tensor([0.025, 0.975], dtype=torch.float64)).tolist()
    return Estimate(statistic(list(means)), low, high)


class Transition(NamedTuple):
    """Where a rising curve crosses 10 %, 50 % and 90 % of the way from its lowest to its highest value."""

    low: float
    middle: float
    high: float

    @property
    def width(self) -> float:
        """From 10 % to 90 %, on the axis."""
        return self.high - self.low


def transition(x: Sequence[float], y: Sequence[float]) -> Transition:
    """Find the first crossings, between points on straight lines.

    Args:
        x: increasing.
        y: the curve.

    Raises:
        OptionError: when the curve does not rise.

    >>> transition([0.0, 1.0, 2.0], [0.0, 0.0, 1.0])
    Transition(low=1.1, middle=1.5, high=1.9)
    """
    bottom, top = min(y), max(y)
    if top <= bottom or y.index(top) == 0:
        raise OptionError("a transition needs a curve that rises")

    def crossing(level: float) -> float:
        k = next(k for k, value in enumerate(y) if value >= level)
        if k == 0:
            return float(x[0])
        share = (level - y[k - 1]) / (y[k] - y[k - 1])
        return x[k - 1] + share * (x[k] - x[k - 1])

    return Transition(*(crossing(bottom + share * (top - bottom)) for share in (0.1, 0.5, 0.9)))


def _ranks(values: Sequence[float]) -> Float[Tensor, " value"]:
    found = torch.tensor(list(values), dtype=torch.float64)
    below = (found.unsqueeze(1) > found).sum(1)
    return below + ((found.unsqueeze(1) == found).sum(1) - 1) / 2
