"""A planted model in a wider stream, among random heads, with unrelated directions and noise.

`plant` builds the least width. Here its stream is turned into a random subspace of the asked one, so that nothing but
the width changes; what else the model holds is added afterwards, on the full width.
"""

import math
from collections.abc import Collection
from dataclasses import replace

import torch
from torch import Tensor

from imir_lens.errors import OptionError
from imir_lens.ids import Head
from imir_lens.models.transformer import ImirTransformer

# Random heads are those of a fresh model: N(0, (0.8 / sqrt(d_model))²), TransformerLens' initialisation.
_FRESH = 0.8


def widen(
    model: ImirTransformer,
    d_model: int,
    *,
    random_heads: Collection[Head],
    auxiliary: bool,
    noise: float,
    generator: torch.Generator,
) -> ImirTransformer:
    """Return the model in a stream of `d_model`.

    Args:
        model: attention-only, without norms.
        d_model: at least the model's own.
        random_heads: heads to draw as in a fresh model; what they were is lost.
        auxiliary: give every token and position embedding a random part of its own length in directions that the
            planted circuit does not use.
        noise: Gaussian noise on every weight matrix (of each head), as a fraction of its Frobenius norm.
        generator: source of randomness.

    Raises:
        OptionError: when `d_model` is too small, or leaves no direction for `auxiliary`.
    """
    least = model.cfg.d_model
    if d_model < least + auxiliary:
        raise OptionError(f"d_model={d_model} is too narrow: this circuit needs at least {least + auxiliary}")
    basis = torch.linalg.qr(torch.randn(d_model, d_model, generator=generator, dtype=torch.float64)).Q
    used, spare = basis[:least], basis[least:]
    weights = {name: value.detach().double() for name, value in model.named_parameters()}
    for name, value in weights.items():
        if name.endswith(("W_Q", "W_K", "W_V", "W_U")):
            weights[name] = used.T @ value
        elif name.endswith(("W_E", "W_pos", "W_O", "b_O")):
            weights[name] = value @ used
    if auxiliary:
        for name in ("embed.W_E", "pos_embed.W_pos"):
            extra = torch.randn(len(weights[name]), len(spare), generator=generator, dtype=torch.float64)
            weights[name] += extra / extra.norm(dim=1, keepdim=True) * weights[name].norm(dim=1, keepdim=True) @ spare
    std = _FRESH / math.sqrt(d_model)
    for head in sorted(random_heads):
        for kind in ("W_Q", "W_K", "W_V", "W_O"):
            weight = weights[f"blocks.{head.layer}.attn.{kind}"][head.index]
            weight.copy_(std * torch.randn(weight.shape, generator=generator, dtype=torch.float64))
    for name, weight in weights.items():
        if ".W_" in name and noise:
            _add_noise(weight, noise, heads=".attn." in name, generator=generator)
    wide = ImirTransformer(replace(model.cfg, d_model=d_model), generator=generator)
    wide.load_state_dict({name: value.float() for name, value in weights.items()})
    return wide


def _add_noise(weight: Tensor, fraction: float, *, heads: bool, generator: torch.Generator) -> None:
    for matrix in weight if heads else [weight]:
        drawn = torch.randn(matrix.shape, generator=generator, dtype=torch.float64)
        matrix += fraction * matrix.norm() / math.sqrt(matrix.numel()) * drawn
