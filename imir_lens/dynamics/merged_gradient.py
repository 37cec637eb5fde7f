"""What the gradient of an ordinary model says of its merged matrices `W_QK = W_Q W_Kᵀ / scale`, which it does not have.

With `S = ∂L/∂s` the gradient at a head's scores, two matrices can stand for "the gradient of W_QK":

    free     G = Σ_contexts xᵀ S x                                  as if W_QK were a parameter of its own
    induced  Δ = (G W_K W_Kᵀ + W_Q W_Qᵀ G) / scale²                 how W_QK moves when W_Q and W_K take a small step

The second is what training does; it is along the first only where W_Q and W_K are orthogonal and alike in size.
Embeddings, values and outputs have gradients too. They move the very basis that these two are compared with, and no
projection of W_QK or W_U shows it: `left_out` says how much of the gradient's squared norm lies there.
"""

from copy import deepcopy
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor, nn

from imir_lens.dynamics.exact_contexts import WeightedContexts
from imir_lens.dynamics.population_gradient import in_chunks, numbers_a_context, weighted_loss
from imir_lens.dynamics.span import READOUT
from imir_lens.errors import UnsupportedModelError
from imir_lens.evaluation import at_queries
from imir_lens.hooking import attached
from imir_lens.lens_model import open_model
from imir_lens.weights import CircuitWeights


@dataclass(frozen=True)
class MergedGradient:
    """The gradient of an ordinary model, by head.

    Attributes:
        free: `L0H0` … and `readout` → ∂L/∂W_QK as if it were free, and ∂L/∂W_U.
        induced: the same, with the change of W_QK under a step on W_Q and W_K.
        left_out: share of the whole gradient's squared norm in parameters other than W_Q, W_K and W_U.
        weights: the weights it was taken at, in float64.
    """

    free: dict[str, Tensor]
    induced: dict[str, Tensor]
    left_out: float
    weights: CircuitWeights


def merged_gradient(model: nn.Module, contexts: WeightedContexts) -> MergedGradient:
    """Take the gradient of the weighted loss at the scores of every head, and at the readout.

    Args:
        model: an attention-only model without norms, whose positions are in the stream: an `ImirTransformer` or a
            HookedTransformer. It is copied and run in float64.
        contexts: what the loss is the mean over.

    Raises:
        UnsupportedModelError: for a model of another form.
    """
    model = deepcopy(model).double()
    weights = open_model(model).weights
    if not weights.form.moves_positions or weights.form.needs_stream:
        raise UnsupportedModelError(
            "merged gradients need an attention-only model without norms and caps, with learned positions: "
            f"found {weights.form}"
        )
    names = [f"L{layer}H{head}" for layer in range(weights.n_layers) for head in range(weights.n_heads)]
    free = {name: torch.zeros(weights.d_model, weights.d_model, dtype=torch.float64) for name in names}
    parameters = dict(model.named_parameters())
    total = {name: torch.zeros_like(p) for name, p in parameters.items()}
    for part in in_chunks(contexts, numbers_a_context(model, contexts.batch.tokens.shape[1])):
        at_scores, streams, gradients = _run(model, part, list(parameters.values()), weights.n_layers)
        for layer, (scores, x) in enumerate(zip(at_scores, streams, strict=True)):
            found = torch.einsum("cid,chij,cje->hde", x, scores, x)
            for head in range(weights.n_heads):
                free[f"L{layer}H{head}"] += found[head]
        for name, gradient in zip(total, gradients, strict=True):
            total[name] += gradient
    free[READOUT] = total["unembed.W_U"]
    squares = {name: float(value.square().sum()) for name, value in total.items()}
    shown = sum(square for name, square in squares.items() if name.rpartition(".")[2] in ("W_Q", "W_K", "W_U"))
    return MergedGradient(free, _induced(free, weights), 1 - shown / max(sum(squares.values()), 1e-300), weights)


def _run(
    model: nn.Module, part: WeightedContexts, parameters: list[nn.Parameter], n_layers: int
) -> tuple[list[Tensor], list[Tensor], list[Tensor]]:
    scores: list[Tensor] = []
    streams: list[Tensor] = []
    hooks = [
        (f"blocks.{layer}.{name}", lambda tensor, hook, kept=kept: kept.append(tensor))
        for layer in range(n_layers)
        for name, kept in (("hook_resid_pre", streams), ("attn.hook_attn_scores", scores))
    ]
    with attached(model, hooks):
        loss = weighted_loss(at_queries(model(part.batch.tokens), part.batch), part)
    gradients = torch.autograd.grad(loss, [*scores, *parameters], allow_unused=True, materialize_grads=True)
    return list(gradients[:n_layers]), [x.detach() for x in streams], list(gradients[n_layers:])


def _induced(free: dict[str, Float[Tensor, "d_model _"]], weights: CircuitWeights) -> dict[str, Tensor]:
    out = {READOUT: free[READOUT]}
    for layer in range(weights.n_layers):
        for head in range(weights.n_heads):
            name, q, k = f"L{layer}H{head}", weights.W_Q[layer, head], weights.W_K[layer, head]
            out[name] = (free[name] @ k @ k.T + q @ q.T @ free[name]) / weights.scale**2
    return out
