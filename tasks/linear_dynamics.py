"""Linear dynamics: causal trees of vectors, each a rotated and noisy copy of its parent."""

import math
from dataclasses import dataclass
from functools import cached_property

import torch
from jaxtyping import Float
from torch import Tensor

from imir_lens.tasks.episodes import CausalTask, Episodes, earlier_positions
from imir_lens.tasks.kernels import draw_parents
from imir_lens.tasks.variates import seeded, von_mises_fisher

_MOST_DIMENSIONS = 4096
_TERMS = 256  # of the continued fraction


@dataclass(frozen=True)
class LinearDynamics(CausalTask):
    """The causal tree for vectors: `x_h = rho Aᵀ x_pa(h) + sqrt(1 − rho²) η`, with A orthogonal and η ~ N(0, I).

    `x_0 ~ N(0, I)`, so every position has that law. Up to a constant over h', the log-likelihood of a pair is

        log p(x_h | x_h') = c1 x_h'ᵀ A x_h + c2 |x_h'|²,   c1 = rho / (1 − rho²),   c2 = −rho² / (2 (1 − rho²)).

    A bilinear score has the first term and cannot have the second. With `unit_norm` vectors lie on the sphere and there
    is no second term: x_0 is uniform and `x_h ~ von Mises–Fisher(Aᵀ x_pa(h), kappa)`, with density ∝ exp(kappa x_h'ᵀ A
    x_h) and kappa = d rho / (1 − rho²), which is c1 for vectors whose squared norm is 1 where it was d. Then c1 = kappa
    and c2 = 0. As rows, `Aᵀ x` is `x A`.

    Attributes:
        d: dimension of the vectors.
        positions: positions of an example, H.
        examples: examples before the query, L.
        rho: correlation of a child with its rotated parent.
        unit_norm: vectors of norm 1.
        matrix_seed: which A.

    Raises:
        TaskError: when a knob is out of its range; the message names the inequality.
    """

    d: int = 10
    positions: int = 15
    examples: int = 3
    rho: float = 0.5
    unit_norm: bool = False
    matrix_seed: int = 0

    name = "linear_dynamics"
    summary = "causal trees of vectors: infer a hidden graph from rotated and noisy copies"

    def __post_init__(self) -> None:
        self._require(2 <= self.d <= _MOST_DIMENSIONS, f"2 <= d <= {_MOST_DIMENSIONS}", "d")
        self._require(self.positions >= 3, "positions >= 3 (with fewer there is no parent to infer)", "positions")
        self._require(self.examples >= 0, "examples >= 0", "examples")
        self._require(0 < self.rho < 1, "0 < rho < 1", "rho")

    @cached_property
    def matrix(self) -> Float[Tensor, "dim dim"]:
        """The orthogonal matrix A, in float64, uniform over all of them (Haar)."""
        generator = seeded("matrix", self.matrix_seed)
        q, r = torch.linalg.qr(torch.randn(self.d, self.d, generator=generator, dtype=torch.float64))
        return q * r.diagonal().sign()  # else Q would not be uniform

    @property
    def kappa(self) -> float:
        """Concentration of the children around their rotated parents, with `unit_norm`: d rho / (1 − rho²)."""
        return self.d * self.rho / (1 - self.rho**2)

    @property
    def c1(self) -> float:
        """Coefficient of `x_h'ᵀ A x_h` in the log-likelihood."""
        return self.kappa if self.unit_norm else self.rho / (1 - self.rho**2)

    @property
    def c2(self) -> float:
        """Coefficient of `|x_h'|²` in the log-likelihood."""
        return 0.0 if self.unit_norm else -(self.rho**2) / (2 * (1 - self.rho**2))

    @property
    def shrinkage(self) -> float:
        """`E[x_h | x_pa] = shrinkage · Aᵀ x_pa`: rho, or `I_{d/2}(kappa) / I_{d/2−1}(kappa)` with `unit_norm`."""
        return bessel_ratio(self.d / 2, self.kappa) if self.unit_norm else self.rho

    def sample_episodes(self, contexts: int, generator: torch.Generator, *, n_examples: int | None = None) -> Episodes:
        """Draw episodes of float32 vectors; `n_examples` replaces L."""
        device = generator.device
        count = (self.examples if n_examples is None else n_examples) + 1
        parents = draw_parents((contexts, self.positions), generator)
        shape = (contexts, count, self.positions, self.d)
        values = torch.randn(shape, generator=generator, device=device)  # what is new at each position
        if self.unit_norm:
            values = torch.nn.functional.normalize(values, dim=-1)
        matrix, rows = self.matrix.to(device).float(), torch.arange(contexts, device=device)
        for h in range(1, self.positions):
            means = values[rows, :, parents[:, h]] @ matrix
            if self.unit_norm:
                values[:, :, h] = von_mises_fisher(means, self.kappa, generator).float()
            else:
                values[:, :, h] = self.rho * means + math.sqrt(1 - self.rho**2) * values[:, :, h]
        return Episodes(values, parents, earlier_positions(self.positions).to(device))

    def bilinear(self, values: Float[Tensor, "*batch position dim"]) -> Float[Tensor, "*batch position position"]:
        """Return `x_h'ᵀ A x_h` at `[…, h, h']`, in float64."""
        rotated = values.double() @ self.matrix.to(values.device)
        return values.double() @ rotated.transpose(-1, -2)

    def pair_log_likelihood(
        self, values: Float[Tensor, "*batch position dim"]
    ) -> Float[Tensor, "*batch position position"]:
        """Return `c1 x_h'ᵀ A x_h + c2 |x_h'|²` at `[…, h, h']`."""
        return self.c1 * self.bilinear(values) + self.c2 * values.double().square().sum(-1).unsqueeze(-2)

    def predictive(
        self, weights: Float[Tensor, "context position position"], query: Float[Tensor, "context position dim"]
    ) -> Float[Tensor, "context position out"]:
        """Return the mean vector `Σ_h' weights[h, h'] · shrinkage · Aᵀ x_h'`."""
        return self.shrinkage * weights @ (query.to(weights) @ self.matrix.to(weights))


def bessel_ratio(order: float, x: float) -> float:
    """Return `I_order(x) / I_{order−1}(x)` of the modified Bessel functions, for order ≥ 1/2 and x > 0.

    By the recurrence `r_v = 1 / (2 v / x + r_{v+1})` from above, where a bound of Amos (1974) starts it: each step
    multiplies the error, which is small to begin with, by a factor below 1, `r_v²`.
    """
    top = order + _TERMS
    ratio = x / (top - 0.5 + math.sqrt((top + 0.5) ** 2 + x * x))
    for step in range(1, _TERMS + 1):
        ratio = 1 / (2 * (top - step) / x + ratio)
    return ratio
