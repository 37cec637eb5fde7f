"""What the theorems say, on sampled episodes: information, contraction, concentration, the gradient at the start.

- `information`: for graphs drawn at random, the least mutual information of a child with its parent, which is the same
  for all, the largest of a child with another earlier position, the same estimated from samples, and the largest
  quotient of chi-squared informations one step apart beside its bound.
- `concentration`: for one position, the exponent predicted, and the slope of `log E[1 − posterior(parent)]` over L;
  also of `log √L E[…]`, as the factor before the exponential falls like 1/√L.
- `gradient`: of the loss with respect to a model's scores at the start: autograd through the model, closed form, and
  its expectation to first order.
"""

import math
from functools import partial
from typing import Any

import torch
from jaxtyping import Int
from torch import Tensor

from benchmarks.causal.keeping import kept_row
from benchmarks.partial import PartialRows
from imir_lens.causal.concentration import concentration_exponents, posterior_error_bound
from imir_lens.causal.contraction import chi_squared_coefficient, dobrushin_coefficient
from imir_lens.causal.files import config_for
from imir_lens.causal.information import chi_squared, estimate_mutual_information, mutual_information, pair_joints
from imir_lens.causal.score_gradient import expected_score_gradient, score_gradient
from imir_lens.causal.scoring import output_loss
from imir_lens.causal.transformer import CausalTransformer
from imir_lens.tasks.causal_tree import CausalTree
from imir_lens.tasks.episodes import Episodes
from imir_lens.tasks.kernels import grow, stationary

INFORMATION, CONCENTRATION, GRADIENT = "information", "concentration", "gradient"
EPSILON = 1e-3  # of the readout that has hardly learned


def rows(*, small: bool, seed: int, kept: PartialRows) -> list[dict[str, Any]]:
    """All three parts, for several kernels and graphs."""
    found = []
    kernels = ((4, 1.0),) if small else ((5, 0.3), (10, 0.3), (10, 1.0))
    for d, concentration in kernels:
        task = CausalTree(d=d, positions=5 if small else 10, examples=3, concentration=concentration)
        for one in range(seed, seed + (1 if small else 2)):
            parents = random_parents(task, one)
            key = {"d": d, "concentration": concentration, "H": task.positions, "graph seed": one}
            draws = 2_000 if small else 100_000
            found.append(kept_row(kept, INFORMATION, key, partial(_information, task, parents, draws, one)))
            draws = 50 if small else 20_000
            found.append(kept_row(kept, CONCENTRATION, key, partial(_concentration, task, parents, draws, one)))
            draws = 2_000 if small else 200_000
            found.append(kept_row(kept, GRADIENT, key, partial(_gradient, task, parents, draws, one)))
    return found


def random_parents(task: CausalTree, seed: int) -> Int[Tensor, " position"]:
    """Return one graph of the task."""
    return task.sample_episodes(1, torch.Generator().manual_seed(seed)).parents[0]


def samples(task: CausalTree, parents: Int[Tensor, " position"], count: int, seed: int) -> Int[Tensor, "sample node"]:
    """Draw examples of one graph."""
    generator = torch.Generator().manual_seed(seed + 1)
    mu, pi = stationary(task.kernel), task.kernel
    roots = torch.multinomial(mu, count, replacement=True, generator=generator).view(count, 1, 1)
    return grow(roots, parents.expand(count, 1, -1), lambda parent: pi[parent], generator)[:, 0]


def _information(task: CausalTree, parents: Tensor, draws: int, seed: int) -> dict[str, Any]:
    joints = pair_joints(task.kernel, parents)
    exact, chi = mutual_information(joints), chi_squared(joints)
    estimated = estimate_mutual_information(samples(task, parents, draws, seed), task.d)
    nodes = range(1, len(parents))
    others = [(h, g) for h in nodes for g in range(h) if g != parents[h]]
    kept_share = [float(chi[h, g] / chi[parents[h], g]) for h, g in others]
    found = [int(estimated[h, :h].argmax()) == int(parents[h]) for h in nodes]
    return {
        "I(child; parent)": float(exact[1, 0]),
        "I(child; other), largest": max(float(exact[h, g]) for h, g in others),
        "samples": draws,
        "I(child; parent), least estimate": min(float(estimated[h, parents[h]]) for h in nodes),
        "I(child; other), largest estimate": max(float(estimated[h, g]) for h, g in others),
        "parents found by the estimate": f"{sum(found)} of {len(found)}",
        "chi² (child; parent)": float(chi[1, 0]),
        "chi² kept a step, largest": max(kept_share),
        "bound sigma_2²": chi_squared_coefficient(task.kernel),
        "Dobrushin": dobrushin_coefficient(task.kernel),
    }


def _concentration(task: CausalTree, parents: Tensor, runs: int, seed: int) -> dict[str, Any]:
    """For the position that is slowest to tell, over numbers of examples where the bound falls from e^-2 to e^-5."""
    exponents = concentration_exponents(task.kernel, parents)
    nodes = torch.arange(len(parents))
    exponents[nodes, parents.clamp(min=0)] = torch.inf
    rates = exponents.nan_to_num(nan=torch.inf).amin(1)
    slowest = 2 + int(rates[2:].argmin())
    rate = float(rates[slowest])
    first, last = max(1, round(2 / rate)), max(2, round(5 / rate))
    values = samples(task, parents, runs * last, seed).view(runs, last, -1)
    scores = task.log_kernel[values[..., :slowest], values[..., slowest : slowest + 1]].cumsum(1)
    wrong = (1 - scores.softmax(-1)[..., int(parents[slowest])]).mean(0)
    fall = float((wrong[first - 1] / wrong[last - 1]).log())
    return {
        "position": slowest,
        "predicted exponent": rate,
        "from L": first,
        "to L": last,
        "error, from": float(wrong[first - 1]),
        "error, to": float(wrong[last - 1]),
        "bound, to": float(posterior_error_bound(task.kernel, parents, last)[slowest]),
        "fitted exponent": fall / (last - first),
        "fitted, with 1/√L": (fall - math.log(last / first) / 2) / (last - first),
    }


def _gradient(task: CausalTree, parents: Tensor, draws: int, seed: int) -> dict[str, Any]:
    """A model that attends alike, with a readout `log mu + ε (pi / mu − 1)`, on examples of one graph."""
    model = CausalTransformer(config_for(task)).double()
    mu = stationary(task.kernel)
    law = mu.log() + EPSILON * (task.kernel / mu - 1)
    with torch.no_grad():
        model.bma.W_OV.copy_(law)
    values = samples(task, parents, draws, seed)
    query = values.unsqueeze(1).expand(-1, task.examples + 1, -1)  # the scores are 0, whatever the examples are
    episodes = Episodes(query, parents.expand(draws, -1), task.candidates)
    some = episodes[: min(draws, 512)]
    kept: list[Tensor] = []

    def keep(scores: Tensor, hook: Any) -> Tensor:
        kept.append(scores.detach().clone().requires_grad_())
        return kept[0]

    logits = model.run_with_hooks(some, fwd_hooks=[("bma.hook_scores", keep)])
    positions = len(parents) - 1
    (found,) = torch.autograd.grad(output_loss(logits, some) * len(some) * positions, kept)
    expected = expected_score_gradient(task.kernel, parents, epsilon=EPSILON)
    worst, far, least, largest = 0.0, 0.0, [], 0.0
    for h in range(2, len(parents)):
        uniform = torch.full((draws, h), 1 / h, dtype=torch.float64)
        each = score_gradient(uniform, law[values[:, :h]], values[:, h], readout="logits")
        worst = max(worst, float((each[: len(some)] - found[:, h, :h]).abs().max()))
        mean, error = each.mean(0), each.std(0) / draws**0.5
        far = max(far, float(((mean - expected[h, :h]).abs() / error).max()))
        least.append(int(mean.argmin()) == int(parents[h]))
        largest = max(largest, float(mean.abs().max()))
    return {
        "autograd less closed form, largest": worst,
        "gradient, largest": float(found.abs().max()),
        "samples": draws,
        "mean gradient, largest": largest,
        "mean less expectation, in standard errors, largest": far,
        "parent's score rises most": f"{sum(least)} of {len(least)}",
    }
