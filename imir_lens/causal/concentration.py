"""How fast the posterior finds the parents as examples are added (Lemma 4 and Theorem 2, derived here).

Let p be the parent of h and g another candidate. In each example, independently, the log likelihood ratio

    Z = log pi(x_h | x_p) − log pi(x_h | x_g)

has the mean Δ_g = Σ_ij P(x_p = i, x_g = j) · KL(pi_i ‖ pi_j) ≥ 0 (the expected gap; given x_p, x_h does not depend on
x_g). It is 0 only where the rows agree for all pairs that occur.

The posterior weight of g is at most min(1, e^{−Σ Z}) ≤ e^{−s Σ Z} for every s in [0, 1]. In the mean over L examples
that is ρ_g(s)^L with ρ_g(s) = Σ_ij P(i, j) Σ_y pi_i(y)^{1−s} pi_j(y)^s, hence

    E[1 − posterior(p)] ≤ Σ_g exp(−L C_g),      C_g = −min_s log ρ_g(s),

C_g being the Chernoff information between the two laws of (x_h, x_p, x_g). By Chernoff's theorem no smaller rate
holds for the pair, so for large L the posterior converges at the rate of the candidate with the smallest C_g.
"""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from imir_lens.causal.information import pair_joints

_SEARCH_STEPS = 60  # golden section: the interval shrinks by .618 each time


def expected_gaps(pi: Float[Tensor, "parent child"], parents: Int[Tensor, " position"]) -> Float[Tensor, "h g"]:
    """Return Δ at `[h, g]`, in nats for each example: 0 for the parent itself, NaN where g ≥ h or h is a root."""
    divergence = (pi.unsqueeze(1) * (pi.unsqueeze(1).log() - pi.log())).sum(-1)  # KL(pi_i ‖ pi_j)
    return _over_candidates(parents, torch.einsum("hgij,ij->hg", _parent_joints(pi, parents), divergence))


def concentration_exponents(
    pi: Float[Tensor, "parent child"], parents: Int[Tensor, " position"]
) -> Float[Tensor, "h g"]:
    """Return C at `[h, g]`, in nats for each example: 0 for the parent itself, NaN where g ≥ h or h is a root.

    `log ρ_g` is convex in s, so golden section finds its minimum.
    """
    joints, log_pi = _parent_joints(pi, parents), pi.log()

    def rho(s: Tensor) -> Tensor:
        """[h g] → [h g]: each pair at an s of its own."""
        mixed = (1 - s)[..., None, None, None] * log_pi.unsqueeze(1) + s[..., None, None, None] * log_pi
        return torch.einsum("hgij,hgij->hg", joints, mixed.exp().sum(-1))

    ratio = (5**0.5 - 1) / 2
    low, high = pi.new_zeros(joints.shape[:2]), pi.new_ones(joints.shape[:2])
    for _ in range(_SEARCH_STEPS):
        left, right = high - ratio * (high - low), low + ratio * (high - low)
        falls = rho(left) > rho(right)
        low, high = torch.where(falls, left, low), torch.where(falls, high, right)
    exponents = -rho((low + high) / 2).log()
    return _over_candidates(parents, exponents.clamp(min=0))


def posterior_error_bound(
    pi: Float[Tensor, "parent child"], parents: Int[Tensor, " position"], n_examples: int
) -> Float[Tensor, " h"]:
    """Return the bound `min(1, Σ_g exp(−L C_g))` on E[1 − posterior(parent)] after L examples; NaN for roots."""
    others = concentration_exponents(pi, parents)
    rows = torch.arange(len(parents), device=pi.device)
    others[rows, parents.clamp(min=0)] = torch.nan  # the parent itself is no error
    bound = torch.where(others.isnan(), 0.0, (-n_examples * others).exp()).sum(1).clamp(max=1)
    return bound.masked_fill(parents < 0, torch.nan)


def _parent_joints(
    pi: Float[Tensor, "parent child"], parents: Int[Tensor, " position"]
) -> Float[Tensor, "h g token token"]:
    """Joint law of (x_pa(h), x_g); for a root, of itself and x_g."""
    rows = torch.where(parents >= 0, parents, torch.arange(len(parents), device=parents.device))
    return pair_joints(pi, parents)[rows]


def _over_candidates(parents: Int[Tensor, " position"], values: Float[Tensor, "h g"]) -> Float[Tensor, "h g"]:
    hidden = torch.ones_like(values, dtype=torch.bool).triu() | (parents < 0).unsqueeze(1)
    return values.masked_fill(hidden, torch.nan)
