"""What a token brings into the residual stream: its embedding, and what the first MLP makes of it alone.

In models with MLPs the embedding hardly matters above layer 0: the first MLP rewrites it. The effective embedding is
`e_t + MLP_0(e_t + Attn_0(t, t))`, attention looking at the token itself only. A context of a single token computes just
that, so it is read off such contexts, at `blocks.0.hook_mlp_out`; learned positions are set to their mean. Nothing of
this depends on a prompt. Later MLPs count as unexplained.
"""

from contextlib import suppress
from typing import Any

from jaxtyping import Float, Int
from torch import Tensor

from imir_lens.lens_model import LensModel

MLP_OUT = "blocks.0.hook_mlp_out"
POSITIONS = "hook_pos_embed"


class _EnoughError(Exception):
    """Ends a forward pass whose first block is all that was wanted."""


def written_by_first_mlp(lens: LensModel, tokens: Int[Tensor, " token"]) -> Float[Tensor, "token d_model"]:
    """Return what the first MLP adds for some tokens, each alone.

    Raises:
        OptionError: when the model has no such hook.
    """
    found: list[Tensor] = []

    def keep(tensor: Tensor, hook: Any) -> None:
        found.append(tensor[:, 0].detach().to(lens.weights.W_E.dtype, copy=True))
        raise _EnoughError

    hooks: list[Any] = [(MLP_OUT, keep)]
    if lens.weights.form.positions in ("standard", "shortformer") and POSITIONS in lens.model.hook_dict:
        mean = lens.weights.W_pos.mean(0)
        hooks.append((POSITIONS, lambda tensor, hook: mean.to(tensor).expand_as(tensor).clone()))
    with suppress(_EnoughError):
        lens.run_with_hooks(tokens.unsqueeze(1), hooks)
    return found[0]
