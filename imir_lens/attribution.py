"""Integrated gradients of the surrogate's loss: what every coordinate is worth, all at once.

`attribution_i = −∫₀¹ c_i ∂loss/∂c_i (t·c) dt`: how much of the loss's fall from nothing (t = 0) to the whole projection
(t = 1) coordinate i accounts for; positive means that it helps. They sum to `loss(0) − loss(c)` up to quadrature error.
(Sundararajan, Taly, Yan 2017.)

The points lie at t = s², s uniform: scores are products of sharp coordinates, so most of the fall happens at small t,
and a strong circuit is saturated (no gradient) well before t = 1.
"""

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from imir_lens.evaluation import cross_entropy
from imir_lens.surrogate import Surrogate
from imir_lens.tasks.base import Batch
from imir_lens.terms import Reads


def attribute(
    surrogate: Surrogate,
    values: Float[Tensor, " coordinate"],
    batch: Batch,
    *,
    chosen: Bool[Tensor, " coordinate"] | None = None,
    points: int = 5,
) -> Float[Tensor, " coordinate"]:
    """Attribute the loss to coordinates; `points` gradient passes.

    Args:
        surrogate: of the coordinates' space.
        values: coordinates, flat.
        batch: contexts to average over.
        chosen: which coordinates take part (default: all that are not zero); the others are held at zero.
        points: number of gradient evaluations.
    """
    chosen = values != 0 if chosen is None else chosen & (values != 0)
    kept = torch.where(chosen, values, 0.0)
    reads = Reads.of(surrogate.space, chosen)
    total = torch.zeros_like(values)
    for k in range(points):
        s = (k + 0.5) / points
        with torch.enable_grad():  # many notebooks turn gradients off in their first cell
            scaled = (kept * s**2).requires_grad_()
            loss = cross_entropy(surrogate.logits(scaled, batch, reads=reads), batch)
        (gradient,) = torch.autograd.grad(loss, scaled)
        total += gradient * (2 * s / points)
    return -total * kept
