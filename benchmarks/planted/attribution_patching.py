"""Edge attribution patching by gradients: our implementations of published formulas, on any TransformerLens.

- EAP (Syed, Rager, Conmy 2023, "Attribution patching outperforms automated circuit discovery"): an edge scores
  `|(out_u(corrupt) − out_u(clean)) · ∂m/∂in_v|`, the gradient taken in the clean run;
- EAP-IG (Hanna, Pezzelle, Belinkov 2024, "Have faith in faithfulness"): the same with the mean of the gradients along
  the line from the corrupted to the clean token embeddings.

m is the logit difference between the right and the partner's answer; products are summed over positions, averaged over
contexts, and then taken by size.
"""

import torch
from jaxtyping import Float
from torch import Tensor

from benchmarks.planted.finding import GRADIENT_PASS, Case, Finding, from_edges
from benchmarks.planted.patching import EdgePatcher

_STEPS = 5  # as Hanna et al. use


def eap(case: Case) -> Finding:
    """EAP, one gradient pass."""
    patcher = EdgePatcher(case.lens.weights, case.planted.graph, case.contexts)
    scores = _gradient(patcher, case, 1.0)
    return from_edges(case.planted.graph, scores.abs(), 2 + GRADIENT_PASS)


def eap_ig(case: Case) -> Finding:
    """EAP-IG on the inputs, five gradient passes, at k/5 of the way for k = 1 … 5."""
    patcher = EdgePatcher(case.lens.weights, case.planted.graph, case.contexts)
    scores = sum(_gradient(patcher, case, step / _STEPS) for step in range(1, _STEPS + 1))
    return from_edges(case.planted.graph, scores.abs(), 2 + _STEPS * GRADIENT_PASS)


def _gradient(patcher: EdgePatcher, case: Case, share: float) -> Float[Tensor, " edge"]:
    """Return ∂m/∂kept with the tokens a share of the way from corrupt to clean: all edges at once."""
    difference = patcher.clean - patcher.corrupt
    kept = patcher.everything.clone().requires_grad_()
    tokens = patcher.corrupt[:, :, 0] + share * difference[:, :, 0]
    logits, _ = patcher.run(kept, tokens, difference=difference)
    (gradient,) = torch.autograd.grad(case.contexts.difference(logits), kept)
    return gradient
