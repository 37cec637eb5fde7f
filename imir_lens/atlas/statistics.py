"""Contrasts between marked pairs of tokens and all others, from moments alone, and how far chance would get.

With queries `q_t` and keys `k_t` of a vocabulary, both centred, the score matrix `q kᵀ` is vocab × vocab and never
formed: the mean of its diagonal is the trace of `C = mean_t q_tᵀ k_t`, and the mean square of all its entries is
`⟨mean qᵀq, mean kᵀk⟩`. All three are d_head × d_head.
"""

from statistics import NormalDist
from typing import NamedTuple

import torch
from jaxtyping import Bool, Float
from torch import Tensor


class Contrast(NamedTuple):
    """How much the marked entries of score matrices stand out, for a batch of heads.

    Attributes:
        mean: mean of the marked entries over that of all entries.
        z: the same in standard deviations of all entries: the size of the effect.
        chance: the same in standard deviations of what chance gives: its significance. Chance turns a head's keys by a
            random orthogonal matrix, as if they were written in a basis unrelated to its queries; then
            `tr(C O) ~ (0, ‖C‖² / d_head)`.
    """

    mean: Float[Tensor, " *heads"]
    z: Float[Tensor, " *heads"]
    chance: Float[Tensor, " *heads"]


def contrast(
    cross: Float[Tensor, "*heads d_head d_head"],
    queries: Float[Tensor, "*heads d_head d_head"],
    keys: Float[Tensor, "*heads d_head d_head"],
    *,
    spread: Float[Tensor, "*heads d_head d_head"] | None = None,
) -> Contrast:
    """Compare marked entries with all entries.

    Args:
        cross: `C`, the mean of `qᵀ k` over the marked pairs, of centred queries and keys.
        queries: second moments of the queries.
        keys: second moments of the keys.
        spread: whose norm chance is measured by; default `cross`.

    Returns:
        The contrasts; zero where the scores are all equal.
    """
    mean = cross.diagonal(dim1=-2, dim2=-1).sum(-1)
    deviation = (queries * keys.mT).sum((-2, -1)).clamp(min=0).sqrt()
    chance = (cross if spread is None else spread).square().sum((-2, -1)).sqrt() / cross.shape[-1] ** 0.5
    return Contrast(mean, ratio(mean, deviation), ratio(mean, chance))


def ratio(value: Float[Tensor, " *heads"], by: Float[Tensor, " *heads"]) -> Float[Tensor, " *heads"]:
    """Return value / by, and 0 where there is nothing to divide by."""
    # Below the resolution of the numbers there is no contrast at all: a head without weights has none.
    return torch.where(by > torch.finfo(by.dtype).tiny ** 0.5, value / by.clamp(min=1e-30), 0.0)


def corrected_threshold(n_tests: int, *, error: float) -> float:
    """Return the z-score that chance exceeds with probability `error` in any of `n_tests` tests (Bonferroni).

    >>> round(corrected_threshold(1, error=0.05), 3), round(corrected_threshold(1000, error=0.01), 3)
    (1.645, 4.265)
    """
    return NormalDist().inv_cdf(1 - error / max(1, n_tests))


def auc(scores: Float[Tensor, " item"], positive: Bool[Tensor, " item"]) -> float | None:
    """Return the probability that a positive item has the higher score, ties counting half; None with one class only.

    >>> auc(torch.tensor([3.0, 2.0, 1.0]), torch.tensor([True, False, True]))
    0.5
    """
    high, low = scores[positive], scores[~positive]
    if not len(high) or not len(low):
        return None
    above = high[:, None] - low[None]
    return float((above.sign() + 1).mean()) / 2


def precision_at(scores: Float[Tensor, " item"], positive: Bool[Tensor, " item"], count: int) -> float:
    """Return which share of the `count` highest scores are positive."""
    best = scores.argsort(descending=True, stable=True)[:count]
    return float(positive[best].double().mean())
