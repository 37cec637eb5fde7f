"""Episodes: several examples and a query that share one hidden causal graph, and what is asked of them.

An episode has L examples and one query, each with H positions. Every position h has one parent pa(h) among its
candidates, the same in all examples and in the query. Whoever sees the examples can infer it:

    P(pa(h) = h' | examples) ∝ prior(h, h') · Π_l p(x_h^l | x_h'^l)

since, given the graph, positions depend on their parents alone, and parents are independent of one another.
"""

from abc import ABC, abstractmethod
from dataclasses import dataclass, fields
from typing import Any, ClassVar

import torch
from jaxtyping import Bool, Float, Int, Shaped
from torch import Tensor

from imir_lens.errors import TaskError


@dataclass(frozen=True)
class Episodes:
    """A batch of episodes, in two dimensions: examples by positions. The last example is the query.

    Attributes:
        values: tokens `[context example position]`, or vectors `[context example position dim]`.
        parents: true parent of each position; −1 for a position that has none.
        candidates: which positions h' may be the parent of h; a row without any belongs to a root.
    """

    values: Shaped[Tensor, "context example position *dim"]
    parents: Int[Tensor, "context position"]
    candidates: Bool[Tensor, "position position"]

    def __len__(self) -> int:
        return len(self.values)

    @property
    def n_examples(self) -> int:
        """Examples before the query: L."""
        return self.values.shape[1] - 1

    @property
    def n_nodes(self) -> int:
        """Positions of each example: H."""
        return self.values.shape[2]

    @property
    def examples(self) -> Shaped[Tensor, "context example position *dim"]:
        """The L examples."""
        return self.values[:, :-1]

    @property
    def query(self) -> Shaped[Tensor, "context position *dim"]:
        """The query."""
        return self.values[:, -1]

    @property
    def asked(self) -> Bool[Tensor, " position"]:
        """Positions with candidates: whose value is predicted, and whose parent is inferred."""
        return self.candidates.any(dim=1)

    def __getitem__(self, index: slice | Tensor) -> "Episodes":
        """Return the contexts chosen by a slice or an index tensor."""
        return Episodes(self.values[index], self.parents[index], self.candidates)

    def to(self, device: torch.device | str) -> "Episodes":
        """Return the episodes on another device."""
        return Episodes(self.values.to(device), self.parents.to(device), self.candidates.to(device))

    def keep_examples(self, kept: Int[Tensor, " example"]) -> "Episodes":
        """Return the same episodes with some of their examples only, and the query."""
        places = torch.cat([kept, torch.tensor([self.n_examples], device=kept.device)])
        return Episodes(self.values[:, places], self.parents, self.candidates)


class CausalTask(ABC):
    """A task of episodes with an exact posterior over parents. Subclasses are frozen dataclasses: fields are knobs."""

    name: ClassVar[str]
    summary: ClassVar[str]

    @property
    def knobs(self) -> dict[str, Any]:
        """The knobs and their values."""
        return {f.name: getattr(self, f.name) for f in fields(self)}  # type: ignore[arg-type]

    @abstractmethod
    def sample_episodes(self, contexts: int, generator: torch.Generator, *, n_examples: int | None = None) -> Episodes:
        """Draw episodes; `n_examples` replaces the task's own number of examples L (0 leaves the query alone)."""

    @abstractmethod
    def pair_log_likelihood(self, values: Shaped[Tensor, "..."]) -> Float[Tensor, "*batch position position"]:
        """Return `log p(x_h | x_h')` at `[…, h, h']` for all pairs, up to a constant over h'."""

    @abstractmethod
    def predictive(
        self, weights: Float[Tensor, "context position position"], query: Shaped[Tensor, "context position *dim"]
    ) -> Float[Tensor, "context position out"]:
        """Return `Σ_h' weights[h, h'] p(· | x_h')`: probabilities over tokens, or the mean of vectors."""

    def posterior(self, episodes: Episodes) -> Float[Tensor, "context position position"]:
        """Return P(pa(h) = h' | examples) at `[context, h, h']`, exactly; rows of roots are zero.

        The prior is uniform over candidates. Logarithms are added in float64, one example after another: memory does
        not grow with their number.
        """
        nodes, device = episodes.n_nodes, episodes.values.device
        scores = torch.zeros(len(episodes), nodes, nodes, dtype=torch.float64, device=device)
        for example in episodes.examples.unbind(1):
            scores += self.pair_log_likelihood(example)
        return masked_softmax(scores, episodes.candidates)

    def predict(
        self, weights: Float[Tensor, "context position position"], episodes: Episodes
    ) -> Float[Tensor, "context position out"]:
        """Return the prediction that trusts parents by these weights, knowing all that stands before each position."""
        return self.predictive(weights, episodes.query)

    def bma(self, episodes: Episodes) -> Float[Tensor, "context position out"]:
        """Return the optimal prediction: Bayesian model averaging over parents."""
        return self.predict(self.posterior(episodes), episodes)

    def known_graph(self, episodes: Episodes) -> Float[Tensor, "context position out"]:
        """Return the prediction of one who knows the parents: no prediction is better."""
        weights = torch.nn.functional.one_hot(episodes.parents.clamp(min=0), episodes.n_nodes).double()
        return self.predict(weights * (episodes.parents >= 0).unsqueeze(-1), episodes)

    def uniform(self, episodes: Episodes) -> Float[Tensor, "context position out"]:
        """Return the prediction of one who learned nothing about the graph: all candidates alike."""
        return self.predict(uniform_weights(episodes), episodes)

    def _require(self, holds: bool, inequality: str, *knobs: str) -> None:
        """Raise the one line that names the inequality and the values of its knobs."""
        if not holds:
            values = ", ".join(f"{knob}={getattr(self, knob)}" for knob in knobs)
            raise TaskError(f"{self.name} needs {inequality}: {values}")


def earlier_positions(count: int) -> Bool[Tensor, "position position"]:
    """Return the candidates of a tree: every earlier position."""
    return torch.ones(count, count, dtype=torch.bool).tril(-1)


def uniform_weights(episodes: Episodes) -> Float[Tensor, "context position position"]:
    """Return equal weights for all candidates of a position: the prior."""
    scores = torch.zeros(episodes.candidates.shape, dtype=torch.float64, device=episodes.values.device)
    return masked_softmax(scores, episodes.candidates).expand(len(episodes), -1, -1)


def masked_softmax(
    scores: Float[Tensor, "*batch position position"], candidates: Bool[Tensor, "position position"]
) -> Float[Tensor, "*batch position position"]:
    """Return the softmax over candidates; all zeros in a row that has none."""
    some = candidates.any(dim=-1, keepdim=True)
    return scores.masked_fill(~candidates & some, -torch.inf).softmax(-1) * some


def parent_loss(weights: Float[Tensor, "context position position"], episodes: Episodes) -> Float[Tensor, ""]:
    """Return L_pa: the mean over contexts and asked positions of `−log weights[h, pa(h)]`, in nats.

    Weights below the smallest normal number of their type count as that number.
    """
    asked = episodes.asked
    chosen = weights.gather(2, episodes.parents.clamp(min=0).unsqueeze(2)).squeeze(2)[:, asked]
    return 0 - chosen.clamp(min=torch.finfo(weights.dtype).tiny).log().mean()  # no −0


def prediction_loss(predicted: Float[Tensor, "context position out"], episodes: Episodes) -> Float[Tensor, ""]:
    """Return the mean loss of predictions at asked positions of the query.

    That is `−log predicted[h, x_h]` in nats for tokens, and the squared error `|predicted[h] − x_h|²` for vectors.
    """
    asked, query = episodes.asked, episodes.query
    if query.is_floating_point():
        return (predicted - query).square().sum(2)[:, asked].mean()
    chosen = predicted.gather(2, query.unsqueeze(2)).squeeze(2)[:, asked]
    return -chosen.clamp(min=torch.finfo(predicted.dtype).tiny).log().mean()
