"""Soft caps: a bound on scores or logits that leaves small ones nearly as they are."""

import torch
from jaxtyping import Float
from torch import Tensor


def soft_capped(x: Float[Tensor, "*shape"], cap: float) -> Float[Tensor, "*shape"]:
    """Return `cap · tanh(x / cap)`.

    Args:
        x: scores or logits.
        cap: the bound; 0 or less for none, as in HookedTransformer.
    """
    return cap * torch.tanh(x / cap) if cap > 0 else x
