"""Fixed graph: one graph for all of training, and a kernel that is new in every context."""

from dataclasses import dataclass
from functools import cached_property

import torch
from jaxtyping import Float, Int
from torch import Tensor

from imir_lens.tasks.episodes import Episodes
from imir_lens.tasks.kernels import draw_parents, grow
from imir_lens.tasks.registry import register
from imir_lens.tasks.symmetry import free_exchanges
from imir_lens.tasks.token_episodes import TokenEpisodes
from imir_lens.tasks.variates import dirichlet, seeded

_MOST_TOKENS = 256  # each context has a kernel of its own, and counts of its transitions


@register
@dataclass(frozen=True)
class FixedGraph(TokenEpisodes):
    """The graph can be memorised, the kernel has to be learned in context: causal_tree with the roles exchanged.

    Parents are drawn once, by `graph_seed`, as in causal_tree. For every context the kernel's rows are drawn from
    Dirichlet(a, …, a), a the concentration; then the L examples and the query from it. What the literature leaves open
    and we chose: roots are uniform, so that they say nothing about the kernel, and rows are not mixed with the uniform
    law, so that the optimal prediction is in closed form:

        P(x_h = j | all before) = (n[i, j] + a) / (Σ_j' n[i, j'] + d a),   i = x_pa(h),

    where n counts the transitions of that graph in the examples and so far in the query. Whoever trusts other parents
    by weights w averages this over h' with them; the graph, and so the transitions that are counted, is known.

    Attributes:
        d: number of tokens.
        positions: positions of an example, H.
        examples: examples before the query, L.
        concentration: of the Dirichlet law of the kernel's rows; small is sharp.
        graph_seed: which graph.

    Raises:
        TaskError: when a knob is out of its range; the message names the inequality.
    """

    d: int = 10
    positions: int = 15
    examples: int = 3
    concentration: float = 0.3
    graph_seed: int = 0

    name = "fixed_graph"
    summary = "one graph for all of training, to be memorised; the kernel is new in every context"

    def __post_init__(self) -> None:
        self._require(2 <= self.d <= _MOST_TOKENS, f"2 <= d <= {_MOST_TOKENS}", "d")
        self._require(self.positions >= 2, "positions >= 2", "positions")
        self._require(self.examples >= 0, "examples >= 0", "examples")
        self._require(1e-3 <= self.concentration <= 1e6, "0.001 <= concentration <= 1e6", "concentration")

    @cached_property
    def graph(self) -> Int[Tensor, " position"]:
        """The parents of all contexts; −1 for position 0."""
        return draw_parents((self.positions,), seeded("graph", self.graph_seed))

    @property
    def symmetry_generators(self) -> list[Int[Tensor, " vocab"]]:
        """Exchanges of neighbouring tokens: kernels are new in every context, so any relabelling keeps the law."""
        return free_exchanges(self.d, range(self.d))

    @property
    def reference_circuit(self) -> tuple[str, ...]:
        """None: parents stand at fixed places, not at fixed distances, and places have no coordinates."""
        return ()

    def sample_kernels(self, contexts: int, generator: torch.Generator) -> Float[Tensor, "context parent child"]:
        """Draw a kernel for each context."""
        return dirichlet((contexts, self.d, self.d), self.concentration, generator)

    def sample_given(
        self,
        kernels: Float[Tensor, "context parent child"],
        generator: torch.Generator,
        *,
        n_examples: int | None = None,
    ) -> Episodes:
        """Draw one episode from each kernel; `n_examples` replaces L."""
        contexts, device = len(kernels), generator.device
        count = (self.examples if n_examples is None else n_examples) + 1
        parents = self.graph.to(device).expand(contexts, count, -1)
        roots = torch.randint(self.d, (contexts, count, 1), generator=generator, device=device)
        which = torch.arange(contexts, device=device).unsqueeze(1)
        values = grow(roots, parents, lambda parent: kernels[which, parent], generator)
        return Episodes(values, parents[:, 0].contiguous(), self.candidates.to(device))

    def sample_episodes(self, contexts: int, generator: torch.Generator, *, n_examples: int | None = None) -> Episodes:
        """Draw episodes; `n_examples` replaces L."""
        return self.sample_given(self.sample_kernels(contexts, generator), generator, n_examples=n_examples)

    def pair_log_likelihood(self, values: Int[Tensor, "*batch position"]) -> Float[Tensor, "*batch position position"]:
        """Return `log p(x_h | x_h') = −log d` for all pairs: without the kernel, a pair says nothing."""
        self._check(values)
        shape = (*values.shape, values.shape[-1])
        return torch.full(shape, 1 / self.d, dtype=torch.float64, device=values.device).log()

    def posterior(self, episodes: Episodes) -> Float[Tensor, "context position position"]:
        """Return the graph, which is known: 1 at the parent of each position."""
        graph = self.graph.to(episodes.values.device)
        weights = torch.nn.functional.one_hot(graph.clamp(min=0), self.positions) * (graph >= 0).unsqueeze(1)
        return weights.double().expand(len(episodes), -1, -1)

    def predict(
        self, weights: Float[Tensor, "context position position"], episodes: Episodes
    ) -> Float[Tensor, "context position out"]:
        """Return `Σ_h' weights[h, h'] (n[x_h', ·] + a) / (Σ_j n[x_h', j] + d a)`, n counted before h."""
        self._check(episodes.values)
        counts = self._transitions(episodes.examples)
        query, rows = episodes.query, torch.arange(len(episodes), device=episodes.values.device)
        laws = []
        for h, parent in enumerate(self.graph.tolist()):
            seen = counts[rows.unsqueeze(1), query] + self.concentration
            laws.append(torch.einsum("ch,chj->cj", weights[:, h].double(), seen / seen.sum(2, keepdim=True)))
            if parent >= 0:
                counts[rows, query[:, parent], query[:, h]] += 1
        return torch.stack(laws, dim=1).to(weights.dtype)

    def predictive(
        self, weights: Float[Tensor, "context position position"], query: Int[Tensor, "context position"]
    ) -> Float[Tensor, "context position out"]:
        """Return the prediction of one who has the query alone; `predict` counts in the examples too."""
        return self.predict(weights, Episodes(query.unsqueeze(1), self.graph.expand(len(query), -1), self.candidates))

    def chance(self) -> Float[Tensor, " vocab"]:
        """Return the uniform law: every token has it, over kernels."""
        return torch.full((self.d,), 1 / self.d)

    def _transitions(self, examples: Int[Tensor, "context example position"]) -> Float[Tensor, "context parent child"]:
        """Count the transitions from parents to children of this graph, over all examples."""
        counts = torch.zeros(len(examples), self.d**2, dtype=torch.float64, device=examples.device)
        parents = self.graph.to(examples.device)
        pairs = (examples[:, :, parents[1:]] * self.d + examples[:, :, 1:]).flatten(1)
        counts.scatter_add_(1, pairs, torch.ones_like(pairs, dtype=torch.float64))
        return counts.unflatten(1, (self.d, self.d))
