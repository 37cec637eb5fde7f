"""The norms of HookedTransformer, with its hooks and its order of operations."""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from imir_lens.compat import HookPoint


class Norm(nn.Module):
    """Layer norm or RMS norm over the last axis, with or without its own weights.

    `hook_normalized( (x − mean) / hook_scale(√(var + eps)) ) · w + b`, where RMS kinds do not subtract the mean and
    have no b, and `Pre` kinds have neither w nor b (they were folded into the weights that read the result).

    Args:
        kind: LN, LNPre, RMS or RMSPre.
        width: size of the last axis.
        eps: added to the variance before the root.
        dtype: of w and b.
    """

    def __init__(self, kind: str, width: int, *, eps: float, dtype: torch.dtype) -> None:
        super().__init__()
        self.centred = kind.startswith("LN")
        self.eps = eps
        weighted = not kind.endswith("Pre")
        self.w = nn.Parameter(torch.ones(width, dtype=dtype)) if weighted else None
        self.b = nn.Parameter(torch.zeros(width, dtype=dtype)) if weighted and self.centred else None
        self.hook_scale = HookPoint()  # [context position 1]
        self.hook_normalized = HookPoint()  # [context position width]

    def forward(
        self, x: Float[Tensor, "context position *head width"]
    ) -> Float[Tensor, "context position *head width"]:
        """Return the normalised activations; half-precision input is normalised in float32."""
        dtype = x.dtype
        x = x.to(torch.promote_types(dtype, torch.float32))
        if self.centred:
            x = x - x.mean(-1, keepdim=True)
        scale = self.hook_scale((x.pow(2).mean(-1, keepdim=True) + self.eps).sqrt())
        x = self.hook_normalized(x / scale).to(dtype)
        if self.w is not None:
            x = x * self.w
        return x if self.b is None else x + self.b


def make_norm(kind: str | None, width: int, *, eps: float, dtype: torch.dtype) -> nn.Module:
    """Return the norm of a `normalization_type`; None stands for the identity."""
    return nn.Identity() if kind is None else Norm(kind, width, eps=eps, dtype=dtype)
