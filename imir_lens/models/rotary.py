"""Rotary positions: q and k are rotated by an angle that grows with the position."""

import torch
from jaxtyping import Float
from torch import Tensor, nn

from imir_lens.models.config import TransformerConfig


def rotary_angles(config: TransformerConfig, layer: int) -> Float[Tensor, "n_ctx rotary_dim"]:
    """Return the angle of each entry at each position: position / base^(2i / rotary_dim) for the i-th pair.

    The two entries of a pair share their angle: entries 2i and 2i + 1 for adjacent pairs, i and i + rotary_dim / 2
    otherwise. Angles are exact in float32 at least, whatever the dtype of the model.
    """
    width = config.rotary_dim or config.d_head
    precision = torch.promote_types(config.dtype, torch.float32)
    pair = torch.arange(width // 2, dtype=precision)
    wavelength = config.rotary_base_of(layer) ** (pair / (width / 2))
    per_entry = wavelength.repeat_interleave(2) if config.rotary_adjacent_pairs else wavelength.repeat(2)
    return torch.arange(config.n_ctx, dtype=precision).unsqueeze(1) / per_entry


class Rotary(nn.Module):
    """Rotates the first `rotary_dim` entries of every head, and leaves the others as they are."""

    sin: Tensor
    cos: Tensor

    def __init__(self, config: TransformerConfig, layer: int) -> None:
        super().__init__()
        self.adjacent = config.rotary_adjacent_pairs
        angles = rotary_angles(config, layer)
        # Not persistent: the tables follow from the config, and a TransformerLens state dict must load strictly.
        self.register_buffer("sin", angles.sin().to(config.dtype), persistent=False)
        self.register_buffer("cos", angles.cos().to(config.dtype), persistent=False)

    def forward(
        self, x: Float[Tensor, "context position head d_head"]
    ) -> Float[Tensor, "context position head d_head"]:
        """Return x · cos + turned(x) · sin, with turned(a, b) = (−b, a) on each pair."""
        sin, cos = (table[: x.shape[1], None, :] for table in (self.sin, self.cos))
        width = sin.shape[-1]
        turned_part, rest = x[..., :width], x[..., width:]
        if self.adjacent:
            turned = torch.stack((-turned_part[..., 1::2], turned_part[..., ::2]), dim=-1).flatten(-2)
        else:
            first, second = turned_part.chunk(2, dim=-1)
            turned = torch.cat((-second, first), dim=-1)
        return torch.cat((turned_part * cos + turned * sin, rest), dim=-1)
