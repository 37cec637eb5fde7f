r"""An MLP as the sum of what it makes of the token, of the position, and (linearly) of all that heads brought.

With `h = act(x̂ W + b)` and `x̂ = x C / σ · w` the mean Jacobian needs no automatic differentiation of matrices:

    J = E[∂MLP/∂x] = Σ_W [ C diag(w) W diag(E[a/σ]) − E[x̂ᵀ ((x̂ diag(w) W) ⊙ a) / (σ d)] ] W_out,

where a is the slope that the activation gives to the projection W: `act'(x̂ W + b)`; in a gated MLP
`h = act(x̂ W_gate) ⊙ (x̂ W_in)` the gate has slope `act'(gate) ⊙ linear`, the other projection `act(gate)`.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn

from imir_lens.models.block import Block
from imir_lens.models.gated_mlp import GatedMLP
from imir_lens.models.mlp import MLP
from imir_lens.models.norms import Norm

_MASSIVE = 4.0  # times the median norm
_SOLU_ROWS = 256  # solu mixes its units: its Jacobian is taken row by row


@dataclass(frozen=True, eq=False)
class MlpParts:
    """What an MLP adds to the stream, split by source.

    Attributes:
        tokens: for each token.
        positions: for each position, the mean over positions taken off; None where the stream holds no positions.
        carry: J, the mean Jacobian: what is brought by heads passes as `z J`.
        explained: share of the variance of its output, over the rows, that the three parts explain; negative where
            they are worse than a constant.
    """

    tokens: Float[Tensor, "vocab d_model"]
    positions: Float[Tensor, "position d_model"] | None
    carry: Float[Tensor, "d_model d_model"]
    explained: float


def split_mlp(
    block: Block,
    entering: Float[Tensor, "row d_model"],
    brought: Float[Tensor, "row d_model"],
    tokens: Int[Tensor, " row"],
    positions: Int[Tensor, " row"],
    embedding: Float[Tensor, "vocab d_model"],
    *,
    n_positions: int,
) -> MlpParts:
    """Split what a block's MLP (behind its norm) adds at some rows.

    Args:
        block: the block.
        entering: the stream that its second norm reads.
        brought: the part of it that neither the token nor the position embedding holds.
        tokens: the token at each row.
        positions: the position of each row.
        embedding: W_E, for tokens that occur in no row: theirs is the output for the token with the mean of the rest.
        n_positions: length of the contexts; 0 when the stream holds no positions.
    """
    added = _apply(block, entering)
    usual = _usual(entering) & _usual(added)
    entering, brought, added, tokens, positions = (x[usual] for x in (entering, brought, added, tokens, positions))
    carry = mean_jacobian(block, entering)
    rest = (entering - embedding[tokens]).mean(0)
    by_token = _apply(block, embedding + rest) - brought.mean(0) @ carry
    left = added - brought @ carry - by_token[tokens]
    by_position = None
    if n_positions:
        places = torch.bincount(positions, minlength=n_positions).to(left).clamp(min=1)
        by_position = left.new_zeros(n_positions, left.shape[1]).index_add_(0, positions, left) / places.unsqueeze(1)
        left = left - by_position[positions]
    total = float((added - added.mean(0)).square().sum())
    return MlpParts(by_token, by_position, carry, 1 - float(left.square().sum()) / total if total > 0 else 1.0)


def _usual(rows: Float[Tensor, "row d_model"]) -> Bool[Tensor, " row"]:
    """Which rows are no massive activations, as language models have at the first token: all means would be theirs."""
    size = rows.norm(dim=1)
    return size <= _MASSIVE * size.median()


def mean_jacobian(block: Block, entering: Float[Tensor, "row d_model"]) -> Float[Tensor, "d_model d_model"]:
    """Return `E[∂ MLP(norm(x)) / ∂x]` over the rows; row m of it is what a unit step along stream entry m adds."""
    mlp: MLP = block.mlp
    if mlp.ln is not None:
        return _mean_jacobian_by_rows(block, entering[:_SOLU_ROWS])
    norm: nn.Module = block.ln2
    if isinstance(norm, Norm):
        x = entering - entering.mean(-1, keepdim=True) if norm.centred else entering
        inverse = 1 / (x.square().mean(-1, keepdim=True) + norm.eps).sqrt()
        unit = x * inverse
        weight = torch.ones(x.shape[1], dtype=x.dtype, device=x.device) if norm.w is None else norm.w
        read = unit * weight if norm.b is None else unit * weight + norm.b
    else:
        inverse, unit, weight, read = torch.ones_like(entering[:, :1]), None, None, entering
    jacobian = mlp.W_out.new_zeros(entering.shape[1], entering.shape[1])
    for projection, slope in _slopes(mlp, read):
        weighted = projection if weight is None else projection * weight.unsqueeze(1)
        direct = weighted * (slope * inverse).mean(0)
        if isinstance(norm, Norm) and norm.centred:
            direct = direct - direct.mean(0, keepdim=True)
        if unit is not None:
            # A step along x itself is undone by the norm.
            turned = (unit * inverse).T @ ((unit @ weighted) * slope) / (unit.shape[1] * len(unit))
            direct = direct - turned
        jacobian = jacobian + direct @ mlp.W_out
    return jacobian


def _slopes(mlp: MLP, read: Float[Tensor, "row d_model"]) -> list[tuple[Tensor, Float[Tensor, "row d_mlp"]]]:
    """Return each projection of an MLP with the slope of the hidden units along it."""
    if isinstance(mlp, GatedMLP):
        gate = read @ mlp.W_gate
        return [
            (mlp.W_gate, _derivative(mlp, gate) * (read @ mlp.W_in)),
            (mlp.W_in, mlp.act_fn(gate)),
        ]
    return [(mlp.W_in, _derivative(mlp, read @ mlp.W_in + mlp.b_in))]


def _derivative(mlp: MLP, x: Float[Tensor, "row d_mlp"]) -> Float[Tensor, "row d_mlp"]:
    with torch.enable_grad():
        at = x.detach().requires_grad_()
        return torch.autograd.grad(mlp.act_fn(at).sum(), at)[0]


def _mean_jacobian_by_rows(block: Block, rows: Float[Tensor, "row d_model"]) -> Float[Tensor, "d_model d_model"]:
    with torch.enable_grad():
        at = rows.detach().requires_grad_()
        out = _apply(block, at)
        columns = [torch.autograd.grad(out[:, k].sum(), at, retain_graph=True)[0].mean(0) for k in range(out.shape[1])]
    return torch.stack(columns, dim=1)


def _apply(block: Block, rows: Float[Tensor, "row d_model"]) -> Float[Tensor, "row d_model"]:
    return block.mlp(block.ln2(rows.unsqueeze(0))).squeeze(0)
