"""Random variates that torch does not draw from a generator: categorical by inversion, Dirichlet, von Mises–Fisher.

All are drawn in float64 on the generator's device, without a loop over draws.
"""

import math
from hashlib import sha256

import torch
from jaxtyping import Float, Int
from torch import Tensor


def seeded(purpose: str, seed: int) -> torch.Generator:
    """Return a generator for one purpose: contexts drawn from the same seed share nothing with it."""
    return torch.Generator().manual_seed(int.from_bytes(sha256(f"{purpose} {seed}".encode()).digest()[:7], "big"))


def categorical(laws: Float[Tensor, "*batch value"], generator: torch.Generator) -> Int[Tensor, "*batch"]:
    """Draw one value from each law, by inversion of its distribution function."""
    steps = laws.cumsum(-1)
    level = torch.rand(laws.shape[:-1], generator=generator, device=laws.device, dtype=laws.dtype) * steps[..., -1]
    return (steps <= level.unsqueeze(-1)).sum(-1).clamp(max=laws.shape[-1] - 1)


def log_gamma_variates(
    shape: tuple[int, ...], concentration: float, generator: torch.Generator
) -> Float[Tensor, "*shape"]:
    """Draw logarithms of Gamma(concentration) variates.

    By Marsaglia and Tsang (2000) at concentration + 1, then `G_a = G_{a+1} U^{1/a}`: in logarithms nothing underflows,
    however small the concentration.
    """
    count, centre = math.prod(shape), concentration + 2 / 3
    drawn, missing = torch.empty(count, **_place(generator)), torch.arange(count, device=generator.device)
    while len(missing):
        x = torch.randn(len(missing), generator=generator, **_place(generator))
        v = (1 + x / math.sqrt(9 * centre)) ** 3
        log_v = v.clamp(min=1e-300).log()
        accepted = (v > 0) & (_log_uniform(len(missing), generator) < x.square() / 2 + centre * (1 - v + log_v))
        drawn[missing[accepted]] = math.log(centre) + log_v[accepted]
        missing = missing[~accepted]
    return (drawn + _log_uniform(count, generator) / concentration).reshape(shape)


def dirichlet(shape: tuple[int, ...], concentration: float, generator: torch.Generator) -> Float[Tensor, "*shape"]:
    """Draw laws along the last axis from Dirichlet(concentration, …, concentration)."""
    return log_gamma_variates(shape, concentration, generator).softmax(-1)


def von_mises_fisher(
    directions: Float[Tensor, "*batch dim"], concentration: float, generator: torch.Generator
) -> Float[Tensor, "*batch dim"]:
    """Draw unit vectors with density ∝ exp(concentration · direction·x), one for each (unit) direction.

    By Wood (1994): the component w along the direction by rejection from a transformed Beta law, the rest uniform on
    the sphere around it. With `b` as there, `1 − x0 w = 2b / ((1 + b)(1 − (1 − b) z))` and `1 − w² = 4 b z (1 − z) /
    (1 − (1 − b) z)²`, which lose no digits at large concentrations.
    """
    dim, count = directions.shape[-1], directions.shape[:-1].numel()
    b = (dim - 1) / (2 * concentration + math.sqrt(4 * concentration**2 + (dim - 1) ** 2))
    x0 = (1 - b) / (1 + b)
    along, across = (torch.empty(count, **_place(generator)) for _ in range(2))
    missing = torch.arange(count, device=generator.device)
    while len(missing):
        first, second = log_gamma_variates((2, len(missing)), (dim - 1) / 2, generator)
        z = (first - second).sigmoid()
        scale = 1 - (1 - b) * z
        w = (1 - (1 + b) * z) / scale
        # log of (1 − x0 w) / (1 − x0²)
        log_ratio = math.log1p(b) - math.log(2) - scale.log()
        bound = concentration * (w - x0) + (dim - 1) * log_ratio
        accepted = _log_uniform(len(missing), generator) <= bound
        along[missing[accepted]] = w[accepted]
        across[missing[accepted]] = (2 * (b * z * (1 - z)).sqrt() / scale)[accepted]
        missing = missing[~accepted]
    axes = directions.reshape(count, dim).double()
    other = torch.randn(count, dim, generator=generator, **_place(generator))
    other = torch.nn.functional.normalize(other - (other * axes).sum(1, keepdim=True) * axes, dim=1)
    return (along.unsqueeze(1) * axes + across.unsqueeze(1) * other).reshape(directions.shape)


def _log_uniform(count: int, generator: torch.Generator) -> Tensor:
    # `rand` may be 0 and is never 1
    return torch.log1p(-torch.rand(count, generator=generator, **_place(generator)))


def _place(generator: torch.Generator) -> dict:
    return {"device": generator.device, "dtype": torch.float64}
