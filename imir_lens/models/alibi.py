"""ALiBi positions: each head's scores fall linearly with the distance of the key."""

import torch
from jaxtyping import Float
from torch import Tensor


def alibi_slopes(n_heads: int, *, device: torch.device | None = None) -> Float[Tensor, " head"]:
    """Return how fast the scores of each head fall: s, s², s³, … with s = 2^(−8 / n_heads).

    HookedTransformer has this rule for every number of heads, and not only for powers of two.
    """
    first = 2 ** (-8 / n_heads)
    return first * first ** torch.arange(n_heads, dtype=torch.float32, device=device)


def alibi_bias(n_heads: int, length: int, *, device: torch.device | None = None) -> Float[Tensor, "head query key"]:
    """Return what ALiBi adds to the scaled scores: −slope · (query − key), and 0 for keys after the query.

    Args:
        n_heads: number of heads, which gives their slopes.
        length: number of positions.
        device: where the bias is needed. It is float32 whatever the dtype of the model, as in HookedTransformer.
    """
    position = torch.arange(length, device=device)
    return alibi_slopes(n_heads, device=device)[:, None, None] * (position - position[:, None]).clamp(max=0)
