"""How a time grows with a size: a straight line through logarithms, and how sure its slope is."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch

from imir_lens.errors import OptionError


@dataclass(frozen=True)
class PowerLaw:
    """`time = factor · size^exponent`, fitted by least squares on logarithms.

    Attributes:
        exponent: the slope.
        low, high: its 95 % interval over resampled seeds. It holds what seeds do, not whether a straight line is right.
        factor: the time at size 1.
        r2: share of the variance of the log times that the line explains.
        local_low, local_high: least and largest slope between neighbouring sizes, of the mean log times: far apart
            where a straight line is wrong.
    """

    exponent: float
    low: float
    high: float
    factor: float
    r2: float
    local_low: float
    local_high: float


def fit_power_law(
    sizes: Sequence[float], times: Sequence[Sequence[float]], *, resamples: int = 2000, seed: int = 0
) -> PowerLaw:
    """Fit `log time = log factor + exponent · log size`.

    The interval is a bootstrap's: each size's seeds are drawn anew, with replacement, and the line is fitted again.

    Args:
        sizes: increasing.
        times: for each size, the times of its seeds.
        resamples: number of bootstrap samples.
        seed: of the bootstrap.

    Raises:
        OptionError: when there are fewer than two sizes, one has no time, or a number is not positive.

    >>> law = fit_power_law([1, 2, 4], [[3.0], [12.0], [48.0]])
    >>> round(law.exponent, 6), round(law.factor, 6)
    (2.0, 3.0)
    """
    if len(sizes) != len(times) or len(sizes) < 2 or any(not own for own in times):
        raise OptionError(f"expected times for each of at least two sizes, found {[len(own) for own in times]}")
    if list(sizes) != sorted(set(sizes)):
        raise OptionError(f"expected sizes that increase, found {list(sizes)}")
    if min(sizes) <= 0 or min(min(own) for own in times) <= 0:
        raise OptionError("a power law needs positive sizes and times")
    x = torch.tensor(sizes, dtype=torch.float64).log()
    logs = [torch.tensor(own, dtype=torch.float64).log() for own in times]
    exponent, intercept, r2 = _line(x, logs)
    generator = torch.Generator().manual_seed(seed)
    slopes = []
    for _ in range(resamples):
        drawn = [own[torch.randint(len(own), (len(own),), generator=generator)] for own in logs]
        slopes.append(_line(x, drawn)[0])
    ends = torch.tensor(slopes, dtype=torch.float64).quantile(torch.tensor([0.025, 0.975], dtype=torch.float64))
    means = torch.stack([own.mean() for own in logs])
    local = means.diff() / x.diff()
    return PowerLaw(
        exponent=exponent,
        low=float(ends[0]),
        high=float(ends[1]),
        factor=float(torch.tensor(intercept).exp()),
        r2=r2,
        local_low=float(local.min()),
        local_high=float(local.max()),
    )


def _line(x: torch.Tensor, logs: Sequence[torch.Tensor]) -> tuple[float, float, float]:
    """Return slope, intercept and R² of the least-squares line through all seeds of all sizes."""
    at = torch.cat([x[k].expand(len(own)) for k, own in enumerate(logs)])
    y = torch.cat(list(logs))
    centred = at - at.mean()
    slope = float(centred @ (y - y.mean()) / centred.square().sum())
    intercept = float(y.mean() - slope * at.mean())
    residual = float((y - intercept - slope * at).square().sum())
    total = float((y - y.mean()).square().sum())
    return slope, intercept, 1 - residual / total if total > 0 else 1.0
