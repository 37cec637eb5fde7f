"""Selective induction heads: whether they weigh the lags by their posterior, or follow the most likely one.

Both attend to candidates t − k only, and predict alike once the sequence is long. While the lag is in doubt they
differ: Bayesian model averaging hedges, maximum likelihood does not. So a head is told by which of the two its
attention is nearer to in total variation.
"""

from dataclasses import dataclass

from torch import Tensor, nn

from imir_lens.causal.parent_attention import parent_attention
from imir_lens.errors import TaskError
from imir_lens.ids import Head
from imir_lens.lens_model import LensModel
from imir_lens.tasks.episodes import CausalTask, Episodes
from imir_lens.tasks.lag_chain import LagChain


@dataclass(frozen=True)
class LagScore:
    """One head beside both ways to choose a lag. Total variations are means over contexts and asked positions.

    Attributes:
        head: which.
        to_posterior: between its attention and the posterior over lags.
        to_maximum_likelihood: between its attention and all weight on the most likely lag; equal ones share it.
        separation: between the two: how far apart they are on these sequences. By the triangle inequality no attention
            is nearer than half of it to both.
        candidate_mass: attention to the lags before it is scaled to sum to 1 over them.
    """

    head: Head
    to_posterior: float
    to_maximum_likelihood: float
    separation: float
    candidate_mass: float

    @property
    def selection(self) -> float:
        """`to_maximum_likelihood / (to_posterior + to_maximum_likelihood)`: 1 averages, 0 picks the most likely."""
        total = self.to_posterior + self.to_maximum_likelihood
        return self.to_maximum_likelihood / total if total else 0.5

    @property
    def label(self) -> str | None:
        """`bma` or `maximum_likelihood` when it is within half of the separation of one; None when far from both."""
        if self.to_posterior < self.separation / 2:
            return "bma"
        return "maximum_likelihood" if self.to_maximum_likelihood < self.separation / 2 else None


def lag_scores(model: nn.Module | LensModel, task: CausalTask, episodes: Episodes) -> tuple[LagScore, ...]:
    """Score every head: the one of a LagTransformer, or all of an ordinary transformer.

    Args:
        model: a LagTransformer, or an ordinary transformer (see `causal.parent_attention`).
        task: a lag_chain.
        episodes: its sequences.

    Raises:
        TaskError: for another task.
    """
    if not isinstance(task, LagChain):
        raise TaskError(f"lags are chosen in the task lag_chain: found {task.name!r}")
    posterior, likeliest = task.posterior(episodes), task.maximum_likelihood(episodes)

    def variation(first: Tensor, second: Tensor) -> float:
        return float((first - second)[:, episodes.asked].abs().sum(dim=2).mean() / 2)

    return tuple(
        LagScore(
            head=head,
            to_posterior=variation(weights, posterior),
            to_maximum_likelihood=variation(weights, likeliest),
            separation=variation(posterior, likeliest),
            candidate_mass=mass,
        )
        for head, weights, mass in parent_attention(model, task, episodes)
    )
