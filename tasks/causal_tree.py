"""Causal tree: random-parent Markov chains, whose graph is hidden and shared by the examples and the query."""

from dataclasses import InitVar, dataclass
from typing import Any

import torch
from jaxtyping import Float
from torch import Tensor

from imir_lens.tasks.episodes import Episodes, uniform_weights
from imir_lens.tasks.fixed_kernel import FixedKernel
from imir_lens.tasks.kernels import draw_parents, grow
from imir_lens.tasks.registry import register


@register
@dataclass(frozen=True, eq=False)
class CausalTree(FixedKernel):
    """Every position h copies, through a known noisy channel, from one earlier position that the examples reveal.

    For each context `pa(h) ~ Unif{0 … h−1}` for h ≥ 1. In each of the L examples and in the query, independently,
    x_0 is drawn and then `x_h ~ pi[x_pa(h), ·]` in order. The kernel pi is the same in all contexts: rows from a
    Dirichlet law mixed with the uniform law. What the literature leaves open and we chose: x_0 is drawn from pi's
    stationary law, so every position has that law and a single token says nothing about where it stands.

    The posterior over parents is

        P(pa(h) = h' | examples) = softmax over h' < h of Σ_l log pi[x_h'^l, x_h^l].

    It comes from the examples alone, and yet is the posterior given *all* tokens before x_h of the query: parents are
    independent a priori, the root's law does not depend on the graph, and the likelihood of all these tokens is a
    product over positions g of factors that contain pa(g) only. The query's tokens before h enter the factors of
    g < h. So the predictions of `bayes` are exact.

    Attributes:
        d: number of tokens.
        positions: positions of an example, H.
        examples: examples before the query, L.
        concentration: of the Dirichlet law of the kernel's rows; small is sharp.
        gamma: share of the uniform law in every row, so that no entry is below gamma/d.
        kernel_seed: which kernel; None when it was given (`CausalTree.with_kernel(pi)`).
        shuffle: give each example a graph of its own, a control: the examples say nothing about the query.

    Raises:
        TaskError: when a knob is out of its range; the message names the inequality.
    """

    d: int = 10
    positions: int = 15
    examples: int = 3
    concentration: float = 0.3
    gamma: float = 0.1
    kernel_seed: int | None = 0
    shuffle: bool = False
    given_kernel: InitVar[Any] = None

    name = "causal_tree"
    summary = "random-parent Markov chains: infer a hidden graph from examples, continue the query by it"

    def __post_init__(self, given_kernel: Any) -> None:
        self._require(self.positions >= 3, "positions >= 3 (with fewer there is no parent to infer)", "positions")
        self._require(self.examples >= 0, "examples >= 0", "examples")
        self._take_kernel(given_kernel)

    def sample_episodes(self, contexts: int, generator: torch.Generator, *, n_examples: int | None = None) -> Episodes:
        """Draw episodes; `n_examples` replaces L. With `shuffle`, `parents` are those of the query."""
        count = (self.examples if n_examples is None else n_examples) + 1
        if self.shuffle:
            parents = draw_parents((contexts, count, self.positions), generator)
        else:
            parents = draw_parents((contexts, 1, self.positions), generator).expand(-1, count, -1)
        pi = self.kernel.to(generator.device)
        roots = self._stationary_draws((contexts, count, 1), generator)
        values = grow(roots, parents, lambda parent: pi[parent], generator)
        return Episodes(values, parents[:, -1].contiguous(), self.candidates.to(generator.device))

    def posterior(self, episodes: Episodes) -> Float[Tensor, "context position position"]:
        """Return P(pa(h) = h' | examples); uniform over candidates with `shuffle`."""
        return uniform_weights(episodes) if self.shuffle else super().posterior(episodes)
