"""Folding norms into the weights that read them, and expanding grouped heads.

A layer norm hands `x C / σ · w + b` to what reads it, with C the projection that takes the mean off (the identity for
an RMS norm) and σ the root mean square of x C. A weight W that reads it with bias c computes the same from `x / σ` as
`C diag(w) W` with bias `c + b W`. Only the division by σ is left to do.
"""

from collections.abc import Mapping

import torch
from jaxtyping import Float
from torch import Tensor


def fold_norm(
    weight: Float[Tensor, "*head d_model out"],
    bias: Float[Tensor, "*head out"],
    norm: tuple[Tensor | None, Tensor | None],
    *,
    centred: bool,
) -> tuple[Float[Tensor, "*head d_model out"], Float[Tensor, "*head out"]]:
    """Return the weight and bias that read `x / σ` instead of the norm's output.

    Args:
        weight: reads the norm's output.
        bias: added to what it reads.
        norm: the norm's own weight and bias (None: it has none).
        centred: whether the norm takes the mean off (layer norms do, RMS norms do not).
    """
    w, b = norm
    if b is not None:
        bias = bias + torch.einsum("m,...mo->...o", b, weight)
    if w is not None:
        weight = weight * w.unsqueeze(-1)
    if centred:
        weight = weight - weight.mean(-2, keepdim=True)
    return weight, bias


def norm_parameters(
    state_dict: Mapping[str, Tensor], name: str, like: Float[Tensor, "..."]
) -> tuple[Tensor | None, Tensor | None]:
    """Return a norm's weight and bias from a state dict; None where the norm has none.

    Args:
        state_dict: of the model.
        name: of the norm, like `blocks.0.ln1`.
        like: a tensor of the wanted dtype and device.
    """
    found = (state_dict.get(f"{name}.{kind}") for kind in "wb")
    w, b = (None if value is None else value.detach().to(like) for value in found)
    return w, b


def expanded(grouped: Float[Tensor, "layer group *rest"], n_heads: int) -> Float[Tensor, "layer head *rest"]:
    """Return grouped keys or values with one slice per head: head h belongs to group h · groups // heads."""
    return grouped.repeat_interleave(n_heads // grouped.shape[1], dim=1)
