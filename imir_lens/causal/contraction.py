"""Contraction: how much of the information about a position is left one step further down.

Data processing says that a position's parent tells more of it than any other candidate does, by a factor that depends
on the kernel pi alone. With K = diag(mu)^{1/2} pi diag(mu)^{−1/2} (its largest singular value is 1) the law of a pair
is P = diag(mu)^{1/2} B diag(mu)^{1/2}, chi² = ‖B‖_F² − 1, and one step on is B K, so that

    chi²(x_h; x_g) ≤ σ_2(K)² · chi²(x_pa(h); x_g)        for every g that is no descendant of h.

For mutual information and every other f-divergence the same holds with Dobrushin's coefficient
`max_{i,i'} TV(pi_i, pi_i')` in place of σ_2(K)².
"""

import torch
from jaxtyping import Float
from torch import Tensor

from imir_lens.tasks.kernels import stationary


def dobrushin_coefficient(pi: Float[Tensor, "parent child"]) -> float:
    """Return `max_{i,i'} ½ Σ_j |pi_ij − pi_i'j|`: 0 for a kernel whose rows agree, 1 for one with disjoint rows."""
    return float(0.5 * (pi.unsqueeze(1) - pi).abs().sum(-1).max())


def chi_squared_coefficient(pi: Float[Tensor, "parent child"]) -> float:
    """Return σ_2² of `diag(mu)^{1/2} pi diag(mu)^{−1/2}`: the contraction of chi-squared information, at most 1."""
    root = stationary(pi).sqrt()
    return float(torch.linalg.svdvals(root.unsqueeze(1) * pi / root)[1].square())
