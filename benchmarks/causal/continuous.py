"""Vectors: what a bilinear score lacks, and what that costs.

- `continuous, constructed`: L_pa of the construction with L' examples, beside BMA's: open at small L', closed at large.
- `continuous, trained`: the same for trained models, with as many examples as they were trained with.
- `continuous, regression`: the scores of a pair, less their mean over candidates, regressed on those of
  `Σ_l x_h'ᵀ A x_h` and `Σ_l |x_h'|²`. Standard errors allow for dependence within a context.
- `continuous, scaled`: which multiple of the construction's scores has the least squared error, and which the least
  L_pa: what training should come to, where the second term is missing.
"""

from functools import partial
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from benchmarks.causal.figures import behaviour_figures, held_out, loss_figures, matched
from benchmarks.causal.keeping import kept_row
from benchmarks.partial import PartialRows
from imir_lens.causal.construction import construct
from imir_lens.causal.scoring import score_model
from imir_lens.causal.training import train_causal
from imir_lens.causal.transformer import CausalTransformer
from imir_lens.tasks.linear_dynamics import LinearDynamics

CONSTRUCTED, TRAINED, REGRESSION = "continuous, constructed", "continuous, trained", "continuous, regression"
SCALED = "continuous, scaled"
FACTORS = [round(0.1 * tenths, 1) for tenths in range(5, 26)]
OPTIONS: dict[str, Any] = {"steps": 1024, "batch": 128, "decay": 0.5}


def rows(*, small: bool, seed: int, kept: PartialRows) -> list[dict[str, Any]]:
    """All three parts, with and without unit norm."""
    sizes = {"d": 3, "positions": 4} if small else {"d": 5, "positions": 10}
    options = {**OPTIONS, "steps": 50} if small else OPTIONS
    contexts = 64 if small else 4096
    found = []
    for unit_norm in (False, True):
        for count in (1, 2) if small else (1, 2, 3, 5, 10, 20, 40, 80):
            task = LinearDynamics(examples=count, unit_norm=unit_norm, **sizes)
            key = {"unit norm": unit_norm, "d": task.d, "H": task.positions, "L": count}
            found.append(kept_row(kept, CONSTRUCTED, key, partial(_constructed, task, contexts)))
        for count in (1, 2) if small else (1, 3, 10):
            task = LinearDynamics(examples=count, unit_norm=unit_norm, **sizes)
            key = {"unit norm": unit_norm, "d": task.d, "H": task.positions, "L": count, **options, "seed": seed}
            short = {name: value for name, value in key.items() if name not in (*options, "seed")}
            found.append(kept_row(kept, SCALED, short, partial(_scaled, task, contexts)))
            found.append(kept_row(kept, TRAINED, key, partial(_trained, task, options, seed, contexts)))
    return found


def _constructed(task: LinearDynamics, contexts: int) -> dict[str, Any]:
    model = construct(task)
    match = matched(model, task, held_out(task, contexts))
    return {**loss_figures(match), "regression": regress_scores(model, task, contexts=min(contexts, 256))}


def _trained(task: LinearDynamics, options: dict[str, Any], seed: int, contexts: int) -> dict[str, Any]:
    trained = train_causal(task, seed=seed, **options)
    last = trained.curve[-1]
    return {
        **behaviour_figures(trained.model, task, contexts),
        "squared error": last["loss"],
        "squared error, BMA": last["bma_loss"],
        "regression": regress_scores(trained.model, task, contexts=min(contexts, 256)),
    }


def _scaled(task: LinearDynamics, contexts: int) -> dict[str, Any]:
    """Scan multiples of c1."""
    episodes, scores = held_out(task, contexts), {}
    for factor in FACTORS:
        model = construct(task)
        with torch.no_grad():
            model.bma.W_KQ.mul_(factor)
        scores[factor] = score_model(model, episodes)
    best = min(FACTORS, key=lambda factor: scores[factor].loss)
    return {
        "c1": task.c1,
        "best for the squared error": best * task.c1,
        "best for L_pa": min(FACTORS, key=lambda factor: scores[factor].parent_loss) * task.c1,
        "squared error, best": scores[best].loss,
        "at c1": scores[1.0].loss,
        "at 2 c1": scores[2.0].loss,
    }


def regress_scores(model: CausalTransformer, task: LinearDynamics, *, contexts: int) -> dict[str, Any]:
    """Regress the second layer's scores on both terms of the log-likelihood.

    Args:
        model: whose scores, at all pairs of a position and a candidate.
        task: A, c1 and c2.
        contexts: test episodes.
    """
    episodes = held_out(task, contexts)
    with torch.no_grad():
        scores = model.run_with_cache(episodes, names_filter="bma.hook_scores")[1]["bma.hook_scores"].double()
    examples = episodes.examples.double()
    bilinear = task.bilinear(examples).sum(1)
    norms = examples.square().sum(-1).sum(1).unsqueeze(1).expand_as(bilinear)
    coefficients, errors, explained = fit([bilinear, norms], scores, episodes.candidates)
    varies = not task.unit_norm  # with unit norm the second term is constant, and has no coefficient
    return {
        "c1, true": task.c1,
        "c1, found": float(coefficients[0]),
        "c1, standard error": float(errors[0]),
        "c2, true": task.c2,
        "c2, found": float(coefficients[1]) if varies else None,
        "c2, standard error": float(errors[1]) if varies else None,
        "R²": explained,
    }


def fit(
    terms: list[Float[Tensor, "context position candidate"]],
    scores: Float[Tensor, "context position candidate"],
    candidates: Tensor,
) -> tuple[Float[Tensor, " term"], Float[Tensor, " term"], float]:
    """Least squares with a constant of its own for every context and position, as a softmax forgets it.

    Returns:
        The coefficients, their standard errors clustered by context, and R².
    """
    weight = candidates.double()
    count = weight.sum(1, keepdim=True).clamp(min=1)

    def centred(values: Tensor) -> Tensor:
        return (values - (values * weight).sum(2, keepdim=True) / count) * weight

    x, y = torch.stack([centred(term) for term in terms], dim=-1), centred(scores)
    flat, target = x.flatten(0, 2), y.flatten()
    inverse = torch.linalg.pinv(flat.T @ flat, rtol=1e-9, hermitian=True)
    coefficients = inverse @ (flat.T @ target)
    residual = y - x @ coefficients
    by_context = torch.einsum("chgt,chg->ct", x, residual)
    covariance = inverse @ (by_context.T @ by_context) @ inverse
    return coefficients, covariance.diagonal().sqrt(), float(1 - residual.square().sum() / y.square().sum())
