"""What a model computes besides products of weights: its norm, positions, masks, caps and MLPs."""

from dataclasses import dataclass, replace
from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from imir_lens.models.config import TransformerConfig


@dataclass(frozen=True)
class AttentionForm:
    """The shape of a model's computation around its weights.

    Attributes:
        norm: `LN` or `RMS` when the stream is divided by its (centred) root mean square before it is read; None: not.
        positions: `standard`, `rotary`, `alibi`, `shortformer`, or `none`.
        rotary_dim: leading entries of q and k that are rotated.
        rotary_bases: base of the rotation frequencies in each layer.
        rotary_adjacent_pairs: rotate (0, 1), (2, 3), … instead of (0, n/2), (1, n/2 + 1), …
        windows: for each layer, how many keys a query sees, itself included; None: all before it.
        bidirectional: queries see later keys too.
        score_cap: scaled scores s become cap · tanh(s / cap); 0: no cap.
        logit_cap: the same of the logits.
        mlp: `none`; `after` the attention of its layer, or `beside` it (parallel).
    """

    norm: str | None = None
    positions: str = "standard"
    rotary_dim: int = 0
    rotary_bases: tuple[float, ...] = ()
    rotary_adjacent_pairs: bool = False
    windows: tuple[int | None, ...] = ()
    bidirectional: bool = False
    score_cap: float = 0.0
    logit_cap: float = 0.0
    mlp: str = "none"

    @classmethod
    def of(cls, config: TransformerConfig) -> "AttentionForm":
        """Read the form off a config."""
        layers = range(config.n_layers)
        kind = config.normalization_type
        rotary = config.positional_embedding_type == "rotary"
        # HookedTransformer has no window with bidirectional attention.
        windowed = config.use_local_attn and config.attention_dir == "causal"
        return cls(
            norm=None if kind is None else kind.removesuffix("Pre"),
            positions=config.positional_embedding_type,
            rotary_dim=(config.rotary_dim or config.d_head) if rotary else 0,
            rotary_bases=tuple(config.rotary_base_of(layer) for layer in layers) if rotary else (),
            rotary_adjacent_pairs=config.rotary_adjacent_pairs if rotary else False,
            windows=tuple(config.window_size if windowed and config.is_local(layer) else None for layer in layers),
            bidirectional=config.attention_dir == "bidirectional",
            score_cap=max(config.attn_scores_soft_cap, 0.0),
            logit_cap=max(config.output_logits_soft_cap, 0.0),
            mlp="none" if config.attn_only else "beside" if config.parallel_attn_mlp else "after",
        )

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> "AttentionForm":
        """Read the fields back from JSON."""
        fields: dict[str, Any] = {
            name: tuple(value) if isinstance(value, list) else value for name, value in values.items()
        }
        return cls(**fields)

    @property
    def plain(self) -> bool:
        """Whether the model is nothing but products of weights: attention only, no norm, learned positions, no cap."""
        return self == replace(PLAIN, windows=self.windows) and not any(self.windows)

    @property
    def needs_stream(self) -> bool:
        """Whether the model is linear in its sources only at means that must be measured on contexts."""
        return self.norm is not None or self.mlp != "none" or self.score_cap > 0 or self.logit_cap > 0

    @property
    def moves_positions(self) -> bool:
        """Whether heads move positions along with tokens: only where they are part of the residual stream."""
        return self.positions == "standard"

    def window(self, layer: int) -> int | None:
        """Return how many keys a query of a layer sees, itself included; None: all before it."""
        return self.windows[layer] if self.windows else None

    def hidden(self, layer: int, n_positions: int, *, device: torch.device | None = None) -> Bool[Tensor, "query key"]:
        """Return which keys a query of a layer cannot see."""
        steps = torch.arange(n_positions, device=device)
        back = steps.unsqueeze(1) - steps.unsqueeze(0)
        hidden = torch.zeros_like(back, dtype=torch.bool) if self.bidirectional else back < 0
        window = self.window(layer)
        return hidden if window is None else hidden | (back >= window)

    def rotation(
        self, layer: int, n_offsets: int, d_head: int, *, device: torch.device | None = None
    ) -> tuple[Float[Tensor, "offset d_head"], Float[Tensor, "offset d_head"]]:
        """Return cosine and sine of each entry's angle at offsets 0, 1, …; entries that do not rotate have angle 0."""
        half = self.rotary_dim // 2
        wavelength = self.rotary_bases[layer] ** (torch.arange(half, dtype=torch.float64, device=device) / half)
        per_entry = wavelength.repeat_interleave(2) if self.rotary_adjacent_pairs else wavelength.repeat(2)
        angles = torch.zeros(n_offsets, d_head, dtype=torch.float64, device=device)
        angles[:, : self.rotary_dim] = torch.arange(n_offsets, device=device).unsqueeze(1) / per_entry
        return angles.cos(), angles.sin()

    def turned(self, x: Float[Tensor, "*rows d_head"]) -> Float[Tensor, "*rows d_head"]:
        """Turn x by a right angle: each rotating pair (a, b) becomes (−b, a), and what does not rotate becomes 0.

        A rotation by any angle is `x · cos + turned(x) · sin`.
        """
        out = torch.zeros_like(x)
        width, half = self.rotary_dim, self.rotary_dim // 2
        if self.rotary_adjacent_pairs:
            out[..., 0:width:2], out[..., 1:width:2] = -x[..., 1:width:2], x[..., 0:width:2]
        else:
            out[..., :half], out[..., half:width] = -x[..., half:width], x[..., :half]
        return out


PLAIN = AttentionForm()
