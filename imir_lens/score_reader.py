"""Attention scores from the queries and keys that a model leaves at `hook_q` and `hook_k`.

TransformerLens 4's native bridge holds the softmaxed pattern at `hook_attn_scores`, so scores are always computed here.
"""

import torch
from jaxtyping import Float
from torch import Tensor

from imir_lens.models.alibi import alibi_slopes
from imir_lens.models.soft_cap import soft_capped
from imir_lens.weights import CircuitWeights


def raw_scores(
    weights: CircuitWeights,
    layer: int,
    head: int,
    q: Float[Tensor, "context position head d_head"],
    k: Float[Tensor, "context position kv_head d_head"],
) -> Float[Tensor, "context query key"]:
    """Return a head's scaled scores before cap, positional bias and mask.

    Args:
        weights: the view of the model's weights: its scale and rotary positions.
        layer: the head's layer.
        head: its index.
        q: at `hook_q`, before rotation.
        k: at `hook_k`, before rotation; grouped keys are matched to their heads.
    """
    dtype = weights.W_E.dtype
    query, key = q[:, :, head].to(dtype), k[:, :, head * k.shape[2] // weights.n_heads].to(dtype)
    form = weights.form
    if form.positions == "rotary":
        cos, sin = (x.to(query) for x in form.rotation(layer, query.shape[1], query.shape[2], device=query.device))
        query, key = (x * cos + form.turned(x) * sin for x in (query, key))
    return query @ key.mT / weights.scale


def finished_scores(
    weights: CircuitWeights, head: int, raw: Float[Tensor, "context query key"]
) -> Float[Tensor, "context query key"]:
    """Return what the mask and the softmax get: the raw scores capped, plus ALiBi's bias."""
    scores = soft_capped(raw, weights.form.score_cap)
    if weights.form.positions != "alibi":
        return scores
    steps = torch.arange(raw.shape[-1], device=raw.device)
    bias = alibi_slopes(weights.n_heads)[head] * (steps - steps.unsqueeze(1)).clamp(max=0)
    return scores + bias.to(scores)
