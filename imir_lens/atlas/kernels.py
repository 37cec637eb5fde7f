"""Offset kernels: how a head's score depends on how far back a key stands, whatever the tokens.

`kappa(k)` is the mean score over pairs of tokens (and over positions k apart): for rotary positions `q̄ R(k) k̄`, for
learned ones the mean of `W_pos W_QK W_posᵀ` along its k-th diagonal, for ALiBi minus the slope times k.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from imir_lens.atlas.moments import Moments
from imir_lens.atlas.statistics import ratio
from imir_lens.models.alibi import alibi_slopes
from imir_lens.weights import CircuitWeights

OFFSETS = 64
PLACES = 256  # learned positions whose attention is averaged: one matrix of them a head


@dataclass(frozen=True, eq=False)
class OffsetKernels:
    """Offset kernels of all heads.

    Attributes:
        kappa: mean score at each offset 0, 1, …; −inf outside a head's window.
        peak: the offset that positions alone give most attention: by `softmax(kappa)`, or for learned positions by the
            mean over queries of their softmax over the keys before them.
        mass: that attention one back.
        preference: `mass` over what even attention would give, at least 0.
        contrast: `kappa(1)` over the mean of the other offsets.
        z: `contrast` in standard deviations of the score over pairs of tokens (and positions): the copyer score.
        chance: `contrast` in standard deviations of what chance gives.
    """

    kappa: Float[Tensor, "layer head offset"]
    peak: Int[Tensor, "layer head"]
    mass: Float[Tensor, "layer head"]
    preference: Float[Tensor, "layer head"]
    contrast: Float[Tensor, "layer head"]
    z: Float[Tensor, "layer head"]
    chance: Float[Tensor, "layer head"]


def offset_kernels(weights: CircuitWeights, moments: Moments, *, n_offsets: int = OFFSETS) -> OffsetKernels:
    """Return the offset kernels of all heads.

    What chance gives: for learned positions, keys in a basis unrelated to the queries; for rotary ones, tokens that
    have no direction in common, so that `q̄` and `k̄` are means of `vocab` independent vectors.

    Args:
        weights: the model's.
        moments: of its tokens and positions.
        n_offsets: offsets 0 … n_offsets − 1, fewer in a shorter context.
    """
    count = min(n_offsets, weights.n_ctx)
    parts = [_layer(weights, moments, layer, count) for layer in range(weights.n_layers)]
    kappa, attention, even, contrast, z, chance = (torch.stack(part) for part in zip(*parts, strict=True))
    mass = attention[..., 1] if count > 1 else torch.zeros_like(z)
    # Below the resolution of the softmax there is no preference, which must not become a direction of its own.
    preference = torch.where(mass > even * (1 + 1e-4), mass - even, 0.0)
    return OffsetKernels(kappa, attention.argmax(-1), mass, preference, contrast, z, chance)


def _layer(weights: CircuitWeights, moments: Moments, layer: int, count: int) -> tuple[Tensor, ...]:
    form, scale = weights.form, weights.scale
    source = moments.source(layer)
    W_Q, W_K = weights.W_Q[layer], weights.W_K[layer]
    mean, covariance = moments.means[source], moments.covariances[source, source]
    q, k = mean @ W_Q + weights.b_Q[layer], mean @ W_K + weights.b_K[layer]
    placed = _placed(weights, moments, layer)
    if placed is not None:
        q, k = (x + place.mean(1) for x, place in zip((q, k), placed, strict=True))
        placed = placed[0] - placed[0].mean(1, keepdim=True), placed[1] - placed[1].mean(1, keepdim=True)
    q_second = W_Q.mT @ covariance @ W_Q + q.unsqueeze(2) * q.unsqueeze(1)
    k_second = W_K.mT @ covariance @ W_K + k.unsqueeze(2) * k.unsqueeze(1)
    both: list[Tensor] | None = None
    if placed is not None:
        kappa, chance = _along_diagonals(*placed, count)
        both = [x.mT @ x / x.shape[1] for x in placed]
    elif form.positions == "rotary":
        kappa = (q * k).sum(-1, keepdim=True).new_zeros(len(q), count)
        for offset in range(count):
            kappa[:, offset] = (_rotated(weights, layer, q, offset) * k).sum(-1)
        q_second = _rotated(weights, layer, _rotated(weights, layer, q_second, 1).mT, 1)
        chance = None
    else:
        kappa, chance = q.new_zeros(len(q), count), None
    square = (q_second * k_second).sum((1, 2))
    if both is not None:  # tokens against positions, either way round; positions against positions are the kernel
        square = square + (both[0] * k_second).sum((1, 2)) + (q_second * both[1]).sum((1, 2))
    level = kappa[:, 1] if form.positions == "rotary" and count > 1 else (q * k).sum(-1)
    deviation = (square - level.square()).clamp(min=0).sqrt() / scale
    kappa = kappa / scale
    if form.positions == "alibi":
        slopes = alibi_slopes(weights.n_heads, device=kappa.device).to(kappa)
        kappa = kappa - slopes.unsqueeze(1) * torch.arange(count, device=kappa.device)
    if form.score_cap > 0:
        kappa = form.score_cap * (kappa / form.score_cap).tanh()
    window = form.windows[layer] if form.windows else None
    seen = count if window is None else min(count, window)
    if seen < 2:
        contrast = torch.zeros_like(deviation)
    else:
        contrast = kappa[:, 1] - (kappa[:, :seen].sum(1) - kappa[:, 1]) / max(1, seen - 1)
    kappa = kappa.index_fill(1, torch.arange(seen, count, device=kappa.device), -torch.inf)
    if placed is None:
        attention, even = kappa.softmax(-1), torch.full_like(contrast, 1 / seen)
    else:
        hidden = form.hidden(layer, min(weights.n_ctx, PLACES), device=kappa.device)
        at_q, at_k = placed[0] + q.unsqueeze(1), placed[1] + k.unsqueeze(1)
        attention = _attention_by_offset(at_q, at_k, hidden, scale, count)
        even = _attention_by_offset(0 * at_q, 0 * at_k, hidden, scale, 2)[:, min(1, count - 1)]
    by = deviation / moments.n_tokens if chance is None else chance / scale
    return kappa, attention, even, contrast, ratio(contrast, deviation), ratio(contrast, by)


def _placed(
    weights: CircuitWeights, moments: Moments, layer: int
) -> tuple[Float[Tensor, "head n_ctx d_head"], Float[Tensor, "head n_ctx d_head"]] | None:
    """Return what learned positions add to a layer's queries and keys; None for other kinds."""
    if moments.positions is not None:
        places = moments.positions[moments.source(layer)]
        return places @ weights.W_Q[layer], places @ weights.W_K[layer]
    if weights.pos_Q is not None and weights.pos_K is not None:
        return weights.pos_Q[layer], weights.pos_K[layer]
    return None


def _attention_by_offset(
    q: Float[Tensor, "head n_ctx d_head"],
    k: Float[Tensor, "head n_ctx d_head"],
    hidden: Bool[Tensor, "position position"],
    scale: float,
    count: int,
) -> Float[Tensor, "head offset"]:
    """Return the mean attention from positions to those each offset back, when every token is the mean token."""
    length = len(hidden)
    pattern = (q[:, :length] @ k[:, :length].mT / scale).masked_fill(hidden, -torch.inf).softmax(-1)
    means = [pattern.diagonal(-offset, 1, 2).mean(-1) for offset in range(min(count, length))]
    return torch.stack([*means, *[torch.zeros_like(means[0])] * (count - len(means))], 1)


def _along_diagonals(
    q: Float[Tensor, "head n_ctx d_head"], k: Float[Tensor, "head n_ctx d_head"], count: int
) -> tuple[Float[Tensor, "head offset"], Float[Tensor, " head"]]:
    """Return the means along the diagonals of `q kᵀ`, and what chance makes of the first one's contrast."""
    n_ctx = q.shape[1]
    crosses = [q[:, offset:].mT @ k[:, : n_ctx - offset] / (n_ctx - offset) for offset in range(count)]
    kappa = torch.stack([cross.diagonal(dim1=1, dim2=2).sum(-1) for cross in crosses], 1)
    if count < 2:
        return kappa, kappa.new_zeros(len(q))
    others = (sum(crosses) - crosses[1]) / (count - 1)
    return kappa, (crosses[1] - others).square().sum((1, 2)).sqrt() / q.shape[2] ** 0.5


def _rotated(
    weights: CircuitWeights, layer: int, x: Float[Tensor, "*rows d_head"], offset: int
) -> Float[Tensor, "*rows d_head"]:
    """Return vectors turned by the angles of one offset."""
    cos, sin = (table[-1].to(x) for table in weights.form.rotation(layer, offset + 1, weights.d_head, device=x.device))
    return x * cos + weights.form.turned(x) * sin
