"""Selective induction heads: the construction weighs lags by their posterior; sharpened it follows the likeliest."""

from functools import partial
from typing import Any

import torch

from benchmarks.causal.figures import held_out
from benchmarks.causal.keeping import kept_row
from benchmarks.partial import PartialRows
from imir_lens.causal.lag_scores import lag_scores
from imir_lens.causal.lag_transformer import construct_lags
from imir_lens.causal.parent_attention import parent_attention
from imir_lens.tasks.lag_chain import LagChain

PART = "selective induction"
SHARPEN = (1.0, 2.0, 5.0, 100.0)


def rows(*, small: bool, seed: int, kept: PartialRows) -> list[dict[str, Any]]:
    """The construction as it is, and with its scores sharpened; and one that knows another kernel."""
    task = LagChain(d=4, positions=12) if small else LagChain(d=5, positions=24, concentration=1.0)
    contexts = 64 if small else 1024
    other = type(task)(**{**task.knobs, "kernel_seed": 1})
    cases = [*((f"construction, scores times {factor:g}", task, factor) for factor in SHARPEN)]
    cases += [("construction for another kernel", other, 1.0), ("all lags alike", task, 0.0)]
    found = []
    for name, built, factor in cases:
        key = {"model": name, "d": task.d, "T": task.positions, "lags": task.lags}
        found.append(kept_row(kept, PART, key, partial(measure, task, built, factor, contexts)))
    return found


def measure(task: LagChain, built: LagChain, factor: float, contexts: int) -> dict[str, Any]:
    """Build for one task, sharpen, and score on another."""
    model = construct_lags(built)
    with torch.no_grad():
        model.bma.W_KQ.mul_(factor)
    episodes = held_out(task, contexts)
    (attention,) = parent_attention(model, task, episodes)
    (score,) = lag_scores(model, task, episodes)
    return {
        "largest deviation from the posterior": float((attention.weights - task.posterior(episodes)).abs().max()),
        "to the posterior": score.to_posterior,
        "to maximum likelihood": score.to_maximum_likelihood,
        "separation": score.separation,
        "selection": score.selection,
        "label": score.label or "neither",
    }
