"""Local attention: a query sees a window of keys that ends at itself."""

import torch
from jaxtyping import Bool
from torch import Tensor


def hidden_outside(future: Bool[Tensor, "query key"], window_size: int) -> Bool[Tensor, "query key"]:
    """Return True where a query must not see a key: `key > query` or `key ≤ query − window_size`.

    Args:
        future: True where the key comes after the query.
        window_size: number of keys that a query sees, itself included.
    """
    return future | torch.ones_like(future).tril(-window_size)
