"""Transition kernels `pi[i, j] = P(child j | parent i)`: drawn, checked, and what follows from one.

Stationary means `mu pi = mu`. A kernel whose entries are all positive has one such law, and a chain, or a tree, whose
root is drawn from it has it at every position.
"""

from collections.abc import Callable

import torch
from jaxtyping import Float, Int, Shaped
from torch import Tensor

from imir_lens.errors import TaskError
from imir_lens.tasks.variates import categorical, dirichlet, seeded

MOST_TOKENS = 4096  # a kernel has d² entries
_ROUNDING = 1e-5  # of row sums: a kernel may come in float32


def dirichlet_kernel(d: int, concentration: float, gamma: float, seed: int) -> Float[Tensor, "parent child"]:
    """Return `(1 − gamma) · Dirichlet(concentration, …) rows + gamma / d`, in float64: no entry is below gamma/d.

    Args:
        d: number of tokens.
        concentration: of the Dirichlet law: rows are sharp when it is small, flat when it is large.
        gamma: minorisation, the share of the uniform law in every row.
        seed: of the rows.
    """
    rows = dirichlet((d, d), concentration, seeded("kernel", seed))
    return (1 - gamma) * rows + gamma / d


def check_kernel(pi: Shaped[Tensor, "..."]) -> Float[Tensor, "parent child"]:
    """Return a kernel in float64, its rows scaled to sum to 1 beyond rounding.

    Raises:
        TaskError: when it is not square, not positive or not stochastic; the line names the worst entry or row.
    """
    if pi.ndim != 2 or pi.shape[0] != pi.shape[1] or len(pi) < 2:
        raise TaskError(f"a kernel is a square matrix pi[parent, child] of size 2 or more; found shape {[*pi.shape]}")
    pi = pi.detach().double()
    flat = pi.flatten()
    worst = int(torch.where(flat.isfinite(), flat, -torch.inf).argmin())
    if not (flat[worst] > 0 and flat.isfinite().all()):
        i, j = divmod(worst, len(pi))
        raise TaskError(
            f"a kernel has positive entries only; found pi[{i}, {j}] = {flat[worst]:.3g}: "
            "mix in the uniform law, (1 - gamma) * pi + gamma / d"
        )
    sums = pi.sum(1)
    row = int((sums - 1).abs().argmax())
    if abs(float(sums[row]) - 1) > _ROUNDING:
        raise TaskError(
            f"rows of a kernel sum to 1; found {sums[row]:.6g} in row {row}: pi[parent, child], children across"
        )
    return pi / sums.unsqueeze(1)


def stationary(pi: Float[Tensor, "parent child"]) -> Float[Tensor, " token"]:
    """Return the law mu with `mu pi = mu`."""
    system = pi.T - torch.eye(len(pi), dtype=pi.dtype, device=pi.device)
    system[-1] = 1  # the equations are dependent: one makes room for Σ mu = 1
    right = torch.zeros(len(pi), dtype=pi.dtype, device=pi.device)
    right[-1] = 1
    return torch.linalg.solve(system, right)


def pair_scores(
    log_pi: Float[Tensor, "parent child"], values: Int[Tensor, "*batch position"]
) -> Float[Tensor, "*batch position position"]:
    """Return `log pi[x_h', x_h]` at `[…, h, h']`."""
    return log_pi[values.unsqueeze(-2), values.unsqueeze(-1)]


def grow(
    roots: Int[Tensor, "context example root"],
    parents: Int[Tensor, "context example position"],
    rows: Callable[[Int[Tensor, "context example"]], Float[Tensor, "context example token"]],
    generator: torch.Generator,
) -> Int[Tensor, "context example position"]:
    """Draw the positions of trees one after another, each from its parent's value.

    Args:
        roots: values of the first positions, which have no parent.
        parents: parent of each position, an earlier one; what it says about the roots is not read.
        rows: the laws of a child, given its parent's value.
        generator: of the draws.
    """
    values = torch.zeros_like(parents)
    values[:, :, : roots.shape[2]] = roots
    for h in range(roots.shape[2], parents.shape[2]):
        values[:, :, h] = categorical(rows(values.gather(2, parents[:, :, h : h + 1]).squeeze(2)), generator)
    return values


def draw_parents(shape: tuple[int, ...], generator: torch.Generator) -> Int[Tensor, "*shape"]:
    """Draw parents along the last axis: `pa(h) ~ Unif{0 … h−1}`, and −1 for position 0, which has none."""
    place = torch.arange(shape[-1], device=generator.device)
    share = torch.rand(shape, generator=generator, device=generator.device, dtype=torch.float64)
    return (share * place).long().clamp(max=place - 1)
