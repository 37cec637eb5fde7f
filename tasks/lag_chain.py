"""Lag chain: one sequence of interleaved Markov chains, whose number is hidden; selective induction heads solve it."""

from dataclasses import InitVar, dataclass
from functools import cached_property
from typing import Any

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from imir_lens.errors import TaskError
from imir_lens.tasks.base import Batch
from imir_lens.tasks.episodes import Episodes
from imir_lens.tasks.fixed_kernel import FixedKernel
from imir_lens.tasks.kernels import grow
from imir_lens.tasks.registry import register

_TIED = 1e-9  # log-likelihoods this close, in nats, are equal up to rounding


@register
@dataclass(frozen=True, eq=False)
class LagChain(FixedKernel):
    """Every token follows the token `lag` before it: `x_t ~ pi[x_{t−lag}, ·]`, one lag for the whole sequence.

    The lag is uniform over a set. The first m tokens, m the largest lag, are independent draws from pi's stationary
    law, whatever the lag (our choice): they tell nothing about it, and all tokens have that law. From then on

        P(lag = k | x_0 … x_{t−1}) = softmax over k of Σ_{t' = m}^{t−1} log pi[x_{t'−k}, x_t'],

    which sharpens as t grows. There are no examples: an episode is its query, and the candidates of t are t − k.
    Parents are not independent of one another here, since all share the lag.

    Attributes:
        d: number of tokens.
        positions: tokens in a context.
        lags: the possible lags, in increasing order, as in `1,2,3`.
        concentration: of the Dirichlet law of the kernel's rows; small is sharp.
        gamma: share of the uniform law in every row, so that no entry is below gamma/d.
        kernel_seed: which kernel; None when it was given (`LagChain.with_kernel(pi)`).

    Raises:
        TaskError: when a knob is out of its range; the message names the inequality.
    """

    d: int = 10
    positions: int = 32
    lags: str = "1,2,3"
    concentration: float = 0.3
    gamma: float = 0.1
    kernel_seed: int | None = 0
    given_kernel: InitVar[Any] = None

    name = "lag_chain"
    summary = "interleaved Markov chains: infer the lag from the sequence so far, continue by it"

    def __post_init__(self, given_kernel: Any) -> None:
        lags = self.lag_values.tolist()
        ordered = all(a < b for a, b in zip([0, *lags], lags, strict=False))
        self._require(ordered, "positive lags in increasing order", "lags")
        self._require(lags[-1] + 2 <= self.positions, "max(lags) + 2 <= positions", "lags", "positions")
        self._take_kernel(given_kernel)

    @cached_property
    def lag_values(self) -> Int[Tensor, " lag"]:
        """The possible lags."""
        try:
            return torch.tensor([int(word) for word in self.lags.split(",")])
        except (ValueError, RuntimeError, OverflowError):
            raise TaskError(f"{self.name} takes lags as numbers like '1,2,3': lags={self.lags!r}") from None

    @property
    def examples(self) -> int:
        """None: there is only the query."""
        return 0

    @property
    def candidates(self) -> Bool[Tensor, "position position"]:
        """Position t may have the parents t − k, from the largest lag on."""
        place = torch.arange(self.positions)
        apart = place.unsqueeze(1) - place
        return torch.isin(apart, self.lag_values) & (place >= self._first).unsqueeze(1)

    def sample_episodes(self, contexts: int, generator: torch.Generator, *, n_examples: int | None = None) -> Episodes:
        """Draw sequences, as episodes without examples.

        Raises:
            TaskError: when `n_examples` is neither None nor 0.
        """
        if n_examples:
            raise TaskError(f"{self.name} has no examples, the sequence itself is the evidence; found {n_examples=}")
        device, m = generator.device, self._first
        chosen = torch.randint(len(self.lag_values), (contexts,), generator=generator, device=device)
        place = torch.arange(self.positions, device=device)
        parents = place - self.lag_values.to(device)[chosen].unsqueeze(1)
        pi = self.kernel.to(device)
        roots = self._stationary_draws((contexts, 1, m), generator)
        values = grow(roots, parents.unsqueeze(1), lambda parent: pi[parent], generator)
        return Episodes(values, torch.where(place < m, -1, parents), self.candidates.to(device))

    def lag_scores(self, values: Int[Tensor, "context position"]) -> Float[Tensor, "context position lag"]:
        """Return `Σ_{t' = m}^{t−1} log pi[x_{t'−k}, x_t']` at `[context, t, k]`: the evidence before t for each lag."""
        self._check(values)
        log_pi, m = self.log_kernel.to(values.device), self._first
        terms = [log_pi[values[:, m - k : values.shape[1] - k], values[:, m:]] for k in self.lag_values.tolist()]
        scores = log_pi.new_zeros(*values.shape, len(terms))
        scores[:, m + 1 :] = torch.stack(terms, dim=2).cumsum(1)[:, :-1]
        return scores

    def lag_posterior(self, values: Int[Tensor, "context position"]) -> Float[Tensor, "context position lag"]:
        """Return `P(lag = k | x_0 … x_{t−1})` at `[context, t, k]`, in the order of `lag_values`; exact for every t."""
        return self.lag_scores(values).softmax(2)

    def posterior(self, episodes: Episodes) -> Float[Tensor, "context position position"]:
        """Return the posterior over lags at `[context, t, t − k]`; rows of the first tokens are zero."""
        return self._as_parents(self.lag_posterior(episodes.query))

    def maximum_likelihood(self, episodes: Episodes) -> Float[Tensor, "context position position"]:
        """Return, in the form of `posterior`, all weight on the most likely lag; equally likely ones share it."""
        scores = self.lag_scores(episodes.query)
        best = (scores >= scores.amax(2, keepdim=True) - _TIED).double()
        return self._as_parents(best / best.sum(2, keepdim=True))

    def bayes(self, batch: Batch) -> Float[Tensor, "context query vocab"]:
        """Return the optimal predictions `Σ_k P(lag = k | x_0 … x_{t−1}) pi[x_{t−k}, ·]`."""
        weights = self.lag_posterior(batch.tokens)
        places = batch.queries + 1
        pi = self.kernel.to(batch.tokens.device)
        law = torch.zeros(*places.shape, self.d, dtype=pi.dtype, device=pi.device)
        for i, k in enumerate(self.lag_values.tolist()):
            law += weights[:, :, i].gather(1, places).unsqueeze(2) * pi[batch.tokens.gather(1, places - k)]
        return law

    @property
    def _first(self) -> int:
        """The first token with a parent: m."""
        return int(self.lag_values[-1])

    def _as_parents(self, weights: Float[Tensor, "context position lag"]) -> Float[Tensor, "context position position"]:
        place = torch.arange(self._first, weights.shape[1], device=weights.device)
        out = weights.new_zeros(len(weights), weights.shape[1], weights.shape[1])
        for i, k in enumerate(self.lag_values.tolist()):
            out[:, place, place - k] = weights[:, place, i]
        return out
