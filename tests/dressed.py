"""Hand-built circuits inside models with norms or rotary positions, whose coordinates are known up to their scales."""

import math

import torch
from torch import Tensor

from imir_lens.models.config import TransformerConfig
from imir_lens.models.transformer import ImirTransformer

BASE, FREQUENCIES, SHARPNESS = 10.0, 8, 16.0


def behind_norm(model: ImirTransformer, kind: str) -> ImirTransformer:
    """Put a norm in front of everything an attention-only model reads.

    Every stream vector x becomes (x, −x), so that its mean is zero, and what reads it reads the first half. The first
    layer's root mean square is a constant (embeddings are orthonormal), and the reading weights make up for it: that
    layer computes what it did. Above it, σ depends on the context.
    """
    old = model.state_dict()
    cfg = {**model.cfg.to_dict(), "d_model": 2 * model.cfg.d_model, "normalization_type": kind, "eps": 0.0}
    new = ImirTransformer(TransformerConfig.from_dict(cfg))
    sigma = math.sqrt(float((old["embed.W_E"][0] + old["pos_embed.W_pos"][0]).square().mean()))
    state = dict(new.state_dict())
    for name, value in old.items():
        if name.endswith(("W_E", "W_pos", "W_O")):
            state[name] = torch.cat([value, -value], dim=-1)
        elif name.endswith(("W_Q", "W_K", "W_V", "W_U")):
            state[name] = torch.cat([value * sigma, torch.zeros_like(value)], dim=-2)
        elif name.endswith("b_O"):
            state[name] = torch.cat([value, -value])
        else:
            state[name] = value
    new.load_transformer_lens_state({name: state[name] for name, _ in new.named_parameters()})
    return new.eval()


def kernel(length: int) -> Tensor:
    """What the rotary head below adds to its scores at the offsets 0 … length − 1; it peaks at 1."""
    frequencies = BASE ** (-torch.arange(FREQUENCIES, dtype=torch.float64) / FREQUENCIES)
    steps = torch.arange(length, dtype=torch.float64)
    return SHARPNESS * torch.cos((steps.unsqueeze(1) - 1) * frequencies).sum(1)


def with_rotary(model: ImirTransformer, looks_back: int = 0) -> ImirTransformer:
    """Replace the learned positions of an attention-only model by rotary ones.

    Each head gets entries that rotate, in front of those it had. In the one layer-0 head that looks one back, their
    biases ask for `kernel`; its own scores, which read learned positions, are dropped.
    """
    old, width = model.state_dict(), 2 * FREQUENCIES
    cfg = {
        **model.cfg.to_dict(),
        "d_head": model.cfg.d_head + width,
        "positional_embedding_type": "rotary",
        "rotary_dim": width,
        "rotary_base": BASE,
        "attn_scale": model.cfg.score_scale,
    }
    new = ImirTransformer(TransformerConfig.from_dict(cfg))
    state = {name: torch.zeros_like(value) for name, value in new.named_parameters()}
    for name, value in old.items():
        if name.endswith(("W_Q", "W_K", "W_V", "b_Q", "b_K", "b_V")):
            state[name][..., width:] = value
        elif name.endswith("W_O"):
            state[name][:, width:] = value
        elif name in state:
            state[name] = value
    for name in ("W_Q", "W_K"):
        state[f"blocks.0.attn.{name}"][looks_back].zero_()
    frequencies = BASE ** (-torch.arange(FREQUENCIES) / FREQUENCIES)
    query = torch.cat([frequencies.cos(), -frequencies.sin()]) * SHARPNESS * model.cfg.score_scale
    state["blocks.0.attn.b_Q"][looks_back, :width] = query
    state["blocks.0.attn.b_K"][looks_back, :FREQUENCIES] = 1.0
    new.load_transformer_lens_state(state)
    return new.eval()
