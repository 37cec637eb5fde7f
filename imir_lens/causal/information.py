"""How much positions of a causal tree tell of each other: mutual and chi-squared information.

The tree's kernel is pi and its root is drawn from the stationary law mu, so mu is every position's law. Two positions
with their last common ancestor i steps above the one and j above the other have the joint law

    P = (pi^i)ᵀ diag(mu) pi^j

From it I = Σ P log(P / mu muᵀ), in nats, and chi² = Σ P² / (mu muᵀ) − 1. For a child and its parent P = diag(mu) pi,
and chi²(pi) = Σ_ij mu_i pi_ij² / mu_j − 1.
"""

import torch
from jaxtyping import Float, Int
from torch import Tensor

from imir_lens.errors import OptionError
from imir_lens.tasks.kernels import stationary

Joint = Float[Tensor, "first second token token"]


def pair_joints(pi: Float[Tensor, "parent child"], parents: Int[Tensor, " position"]) -> Joint:
    """Return the joint law of every pair of positions of one graph, `[h, g, i, j] = P(x_h = i, x_g = j)`.

    Filled in from the root on: given its parent, a position depends on no earlier one, so
    `P(x_h, x_g) = P(x_pa(h), x_g)` carried on by pi for all g < h.

    Args:
        pi: the kernel.
        parents: parent of each position, an earlier one; −1 for a root.

    Raises:
        OptionError: when a parent does not come before its child.
    """
    count, d = len(parents), len(pi)
    mu = stationary(pi)
    joints = pi.new_zeros(count, count, d, d)
    for h, parent in enumerate(parents.tolist()):
        if not -1 <= parent < h:
            raise OptionError(f"the parent of position {h} must be an earlier one, or -1 for none; found {parent}")
        joints[h, h] = mu.diag()
        if h:
            # Of a second root all others are independent.
            before = joints[parent, :h] if parent >= 0 else (mu.unsqueeze(1) * mu).expand(h, -1, -1)
            joints[h, :h] = pi.T @ before if parent >= 0 else before
            joints[:h, h] = joints[h, :h].transpose(1, 2)
    return joints


def mutual_information(joint: Float[Tensor, "*pair token token"]) -> Float[Tensor, "*pair"]:
    """Return `Σ P log(P / (P 1)(1ᵀ P))` in nats; impossible pairs add nothing."""
    product = joint.sum(-1, keepdim=True) * joint.sum(-2, keepdim=True)
    ratio = torch.where(joint > 0, joint / product, 1.0)
    return (joint * ratio.log()).sum((-2, -1))


def chi_squared(joint: Float[Tensor, "*pair token token"]) -> Float[Tensor, "*pair"]:
    """Return `Σ P² / (P 1)(1ᵀ P) − 1`, at most the number of tokens minus one; absent tokens add nothing."""
    product = joint.sum(-1, keepdim=True) * joint.sum(-2, keepdim=True)
    return torch.where(product > 0, joint.square() / product, 0.0).sum((-2, -1)) - 1


def sample_joints(values: Int[Tensor, "sample position"], d: int) -> Joint:
    """Return the relative frequencies of tokens at every pair of positions, over samples of one graph."""
    one_hot = torch.nn.functional.one_hot(values, d).double()
    return torch.einsum("nhi,ngj->hgij", one_hot, one_hot) / len(values)


def estimate_mutual_information(values: Int[Tensor, "sample position"], d: int) -> Float[Tensor, "first second"]:
    """Estimate the mutual information of every pair of positions from samples of one graph, in nats.

    The plug-in estimate is too large by about (d − 1)² / 2n for n samples (Miller 1955), which is taken off; the
    estimate of a small value can be negative.
    """
    return mutual_information(sample_joints(values, d)) - (d - 1) ** 2 / (2 * len(values))


def estimate_chi_squared(values: Int[Tensor, "sample position"], d: int) -> Float[Tensor, "first second"]:
    """Estimate the chi-squared information of every pair of positions from samples of one graph.

    Where positions are independent, n times the plug-in estimate is a chi-squared variable of (d − 1)² degrees of
    freedom; its mean, (d − 1)² / n, is taken off.
    """
    return chi_squared(sample_joints(values, d)) - (d - 1) ** 2 / len(values)
