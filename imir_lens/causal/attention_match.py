"""How close attention to candidates comes to the posterior over parents, and what it tells about the true parent."""

from dataclasses import dataclass

import torch
from jaxtyping import Float, Int
from torch import Tensor

from imir_lens.errors import OptionError
from imir_lens.tasks.episodes import CausalTask, Episodes, masked_softmax, parent_loss, uniform_weights

_TIED = 1e-9  # probabilities that differ by less than this share of the largest are equal up to rounding
Weights = Float[Tensor, "context position candidate"]


@dataclass(frozen=True, eq=False)
class Calibration:
    """How often a candidate is the true parent, given the attention it gets.

    All candidates of all asked positions are sorted into bins of equal width by their attention. Uniform attention is
    calibrated too: it says little, but nothing false.

    Attributes:
        attention: mean attention in each bin; not a number where it is empty.
        frequency: share of true parents in each bin; not a number where it is empty.
        count: candidates in each bin.
        error: the expected calibration error, `Σ_b (count_b / count) |attention_b − frequency_b|`.
    """

    attention: Float[Tensor, " bin"]
    frequency: Float[Tensor, " bin"]
    count: Int[Tensor, " bin"]
    error: float


@dataclass(frozen=True, eq=False)
class AttentionMatch:
    """Attention beside the posterior. All means are over contexts and asked positions, all losses in nats.

    Attributes:
        total_variation: mean of `½ Σ_h' |attention − posterior|`.
        kl: mean of `KL(posterior ‖ attention)`; attention below the smallest normal number counts as that number.
        parent_loss: L_pa, the cross-entropy of the attention to the true parent.
        bma_parent_loss: that of the posterior, the least that can be expected.
        uniform_parent_loss: that of equal attention to all candidates. That of the known graph is 0.
        information_share: `(L_uniform − L_pa) / (L_uniform − L_bma)`, clipped to [0, 1]: the share that attention
            conveys of the information on the parent in the examples. 0 where the examples hold none.
        calibration: attention against the frequency of true parents.
    """

    total_variation: float
    kl: float
    parent_loss: float
    bma_parent_loss: float
    uniform_parent_loss: float
    information_share: float
    calibration: Calibration

    @property
    def known_graph_parent_loss(self) -> float:
        """L_pa of one who knows the graph: 0."""
        return 0.0


def match_attention(weights: Weights, posterior: Weights, episodes: Episodes, *, bins: int = 10) -> AttentionMatch:
    """Compare attention over candidates, rows that sum to 1, with the posterior.

    Args:
        weights: the attention; its rows of positions that are not asked are not read.
        posterior: P(pa(h) = h' | examples).
        episodes: who the parents are.
        bins: of the calibration.
    """
    asked = episodes.asked
    found, expected = weights[:, asked], posterior[:, asked]
    tiny = torch.finfo(weights.dtype).tiny
    logs = found.clamp(min=tiny).double().log()
    kl = (torch.xlogy(expected, expected) - expected * logs).sum(dim=2).mean()
    loss, best = float(parent_loss(weights, episodes)), float(parent_loss(posterior, episodes))
    even = float(parent_loss(uniform_weights(episodes), episodes))
    gain = even - best
    return AttentionMatch(
        total_variation=float((found - expected).abs().sum(dim=2).mean() / 2),
        kl=float(kl),
        parent_loss=loss,
        bma_parent_loss=best,
        uniform_parent_loss=even,
        information_share=min(1.0, max(0.0, (even - loss) / gain)) if gain > 1e-9 else 0.0,
        calibration=calibrate(weights, episodes, bins=bins),
    )


def calibrate(weights: Weights, episodes: Episodes, *, bins: int = 10) -> Calibration:
    """Return how often candidates are the true parent, given the attention they get.

    Raises:
        OptionError: when `bins` is not positive.
    """
    if bins < 1:
        raise OptionError(f"calibration needs at least one bin: found bins={bins}")
    attention = weights[:, episodes.candidates].double().flatten()
    place = torch.arange(episodes.n_nodes, device=episodes.parents.device)
    is_parent = (episodes.parents.unsqueeze(2) == place)[:, episodes.candidates].flatten().double()
    bin_of = (attention * bins).long().clamp(0, bins - 1)
    zeros = attention.new_zeros(bins)
    count = zeros.index_add(0, bin_of, torch.ones_like(attention))
    mean = zeros.index_add(0, bin_of, attention) / count
    frequency = zeros.index_add(0, bin_of, is_parent) / count
    error = (count / count.sum() * (mean - frequency).abs()).nansum()
    return Calibration(mean, frequency, count.long(), float(error))


def maximum_likelihood(posterior: Weights, episodes: Episodes) -> Weights:
    """Return all weight on the most likely candidate; equally likely ones share it.

    The prior over candidates is uniform, so the posterior's largest entry is the most likely candidate.
    """
    best = (posterior >= posterior.amax(dim=2, keepdim=True) * (1 - _TIED)) & episodes.candidates
    return best / best.sum(dim=2, keepdim=True).clamp(min=1).to(posterior)


@dataclass(frozen=True, eq=False)
class MatchBaselines:
    """What heads are compared with: attention by the posterior, by maximum likelihood, and to all candidates alike."""

    bma: AttentionMatch
    maximum_likelihood: AttentionMatch
    uniform: AttentionMatch


def match_baselines(task: CausalTask, episodes: Episodes, *, bins: int = 10) -> MatchBaselines:
    """Return what heads are compared with, on the same episodes."""
    posterior = task.posterior(episodes)
    likeliest, even = maximum_likelihood(posterior, episodes), uniform_weights(episodes)
    bma, best, uniform = (match_attention(w, posterior, episodes, bins=bins) for w in (posterior, likeliest, even))
    return MatchBaselines(bma, best, uniform)


def tempered_posterior(
    task: CausalTask, episodes: Episodes, shares: Float[Tensor, " example"]
) -> Float[Tensor, "context position candidate"]:
    """Return `softmax over candidates of Σ_l shares_l log p(x_h^l | x_h'^l)`.

    Shares of 1 give the posterior, a share of 0 leaves an example out.
    """
    examples = episodes.examples.unbind(1)
    size = (len(episodes), episodes.n_nodes, episodes.n_nodes)
    scores = torch.zeros(size, dtype=torch.float64, device=episodes.values.device)
    for share, example in zip(shares.tolist(), examples, strict=True):
        scores += share * task.pair_log_likelihood(example)
    return masked_softmax(scores, episodes.candidates)
