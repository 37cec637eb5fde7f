"""How much of a head's scores the coordinates explain, and how large its match coordinate is in the running model.

On repeated random tokens, the scores of a query over its keys (the logarithm of its pattern) are fitted by three terms
of the weights: the offset kernel, `same` directly, and the match with copied tokens. All are centred over keys, since a
constant over keys changes no attention. The first position is left out: attention to it is a class of its own. Each
term has one free size, for the norms and the MLPs on the way.
"""

from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from imir_lens.atlas.coordinate import MatchTerms, by_offset, places_of
from imir_lens.atlas.kernels import offset_kernels
from imir_lens.atlas.runs import visit_patterns
from imir_lens.atlas.scores import WeightScores
from imir_lens.lens_model import LensModel
from imir_lens.weights import CircuitWeights

TERMS = 3
_FROM = 4  # queries before this one have too few keys


@dataclass(frozen=True, eq=False)
class ScoreFit:
    """How the coordinates explain the scores of every head.

    Attributes:
        r2: share of the variance of the scores, centred over keys, that the three terms explain.
        r2_kernel: the same of the offset kernel alone.
        match_size: size of the match coordinate in the model, as a multiple of what the weights alone give.
    """

    r2: Float[Tensor, "layer head"]
    r2_kernel: Float[Tensor, "layer head"]
    match_size: Float[Tensor, "layer head"]


def fit_scores(
    lens: LensModel,
    scores: WeightScores,
    tokens: Int[Tensor, "context position"],
    *,
    progress: Callable[[str, float], None] = lambda step, done: None,
) -> ScoreFit:
    """Fit every head's scores; one context at a time.

    Args:
        lens: the model.
        scores: what its weights say.
        tokens: contexts.
        progress: told the step and the share of it that is done.
    """
    weights, length = lens.weights, tokens.shape[1]
    places = [(layer, head) for layer in range(weights.n_layers) for head in range(weights.n_heads)]
    with torch.no_grad():
        kernels = offset_kernels(weights, scores.moments, n_offsets=length).kappa
        direct = [_direct(weights, scores, layer, length) for layer in range(weights.n_layers)]
    steps = torch.arange(length, device=tokens.device)
    offsets = (steps.unsqueeze(1) - steps).clamp(min=0)
    products = torch.zeros(weights.n_layers, weights.n_heads, TERMS + 1, TERMS + 1, dtype=torch.float64)
    terms: MatchTerms | None = None
    for k, context in enumerate(tokens):
        context = context.unsqueeze(0)
        if terms is None:
            terms = MatchTerms(weights, scores.moments, places_of(scores.paths.chosen), context, places)
        else:
            terms = terms.on(context)

        def visit(layer: int, pattern: Tensor, scales: Tensor | None, terms: MatchTerms = terms) -> None:
            terms.extend(layer, pattern)
            for head in range(weights.n_heads):
                kappa = kernels[layer, head].clamp(min=-1e4)[offsets]
                same = direct[layer][head][offsets] * terms.same[0]
                match = terms.term((layer, head), scales)[0]
                columns = torch.stack((kappa, same, match)).double()
                products[layer, head] += _products(columns, pattern[0, head]).cpu()

        visit_patterns(lens, context, visit)
        progress("scores", (k + 1) / len(tokens))
    return _solved(products)


def _direct(weights: CircuitWeights, scores: WeightScores, layer: int, length: int) -> Float[Tensor, "head offset"]:
    source = scores.moments.source(layer)
    W_Q = weights.W_Q[layer] / weights.scale
    cross = W_Q.mT @ scores.moments.covariances[source, source] @ weights.W_K[layer]
    return by_offset(weights, layer, cross, length)


def _products(
    columns: Float[Tensor, "term query key"], pattern: Float[Tensor, "query key"]
) -> Float[Tensor, "column column"]:
    """Return the products of the terms and the scores, centred over each query's keys."""
    length = pattern.shape[-1]
    seen = torch.ones(length, length, dtype=torch.bool, device=pattern.device).tril()
    seen[:_FROM], seen[:, 0] = False, False
    seen &= pattern > torch.finfo(torch.float32).tiny  # an underflowed score is unknown
    score = pattern.double().clamp(min=1e-300).log().unsqueeze(0)
    rows = torch.cat((columns, score)).masked_fill(~seen, 0.0)
    count = seen.sum(-1, keepdim=True).clamp(min=1)
    centred = (rows - rows.sum(-1, keepdim=True) / count).masked_fill(~seen, 0.0).flatten(1)
    return centred @ centred.T


def _solved(products: Float[Tensor, "layer head column column"]) -> ScoreFit:
    """Solve the normal equations of every head; terms that never vary have size 0."""
    gram, aim, total = products[..., :-1, :-1], products[..., :-1, -1], products[..., -1, -1]
    norms = gram.diagonal(dim1=-2, dim2=-1).sqrt()
    known = norms > 1e-9 * total.sqrt().unsqueeze(-1).clamp(min=1e-12)
    by = torch.where(known, norms, 1.0)
    scaled = torch.where(known, aim / by, 0.0)
    matrix = torch.where(known.unsqueeze(-1) & known.unsqueeze(-2), gram / (by.unsqueeze(-1) * by.unsqueeze(-2)), 0.0)
    fitted = (torch.linalg.pinv(matrix, hermitian=True, rtol=1e-8) @ scaled.unsqueeze(-1)).squeeze(-1)
    safe = total.clamp(min=1e-300)
    r2 = torch.where(total > 1e-12, (fitted * scaled).sum(-1) / safe, 0.0).clamp(0, 1)
    kernel = torch.where(total > 1e-12, scaled[..., 0].square() / safe, 0.0).clamp(0, 1)
    return ScoreFit(r2.float(), kernel.float(), (fitted / by)[..., 2].float())
