"""Episodes of tokens, which an ordinary transformer reads flat: example after example, then the query."""

from abc import abstractmethod
from functools import cached_property

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from imir_lens.errors import TaskError
from imir_lens.relations import TokenRelations
from imir_lens.tasks.base import Batch, Task
from imir_lens.tasks.episodes import CausalTask, Episodes, earlier_positions

_NUMBERS = 2**25  # of a posterior held at a time: contexts times pairs of positions


class TokenEpisodes(Task, CausalTask):
    """A task of episodes of tokens, in two layouts.

    Two dimensions (`sample_episodes`): `[context, example, position]`. Flat (`sample`): (L+1)·H tokens, in which
    position h of example l stands at l·H + h and the query is example L; the token before position h of the query, at
    L·H + h − 1, is asked for it, for every h that has candidates. `flatten` and `episodes_of` go from one to the other.
    """

    @property
    @abstractmethod
    def d(self) -> int:
        """Number of tokens."""

    @property
    @abstractmethod
    def positions(self) -> int:
        """Positions of an example: H."""

    @property
    @abstractmethod
    def examples(self) -> int:
        """Examples before the query: L."""

    @property
    def candidates(self) -> Bool[Tensor, "position position"]:
        """Which positions h' may be the parent of h: all earlier ones, unless a task says otherwise."""
        return earlier_positions(self.positions)

    @property
    def d_vocab(self) -> int:
        """Number of tokens: d."""
        return self.d

    @property
    def n_positions(self) -> int:
        """Tokens of a flat context: (L+1)·H."""
        return (self.examples + 1) * self.positions

    @property
    def query_positions(self) -> tuple[int, ...]:
        """The token before each asked position of the query."""
        return tuple(self._asked_at(self.examples).tolist())

    @cached_property
    def relations(self) -> TokenRelations:
        """One class of tokens, and `same`."""
        ids = torch.arange(self.d)
        return TokenRelations({"token": ids}, {"same": ids}, reference="token")

    @property
    def symmetry_generators(self) -> list[Int[Tensor, " vocab"]]:
        """None, unless a task says otherwise: a kernel treats its tokens differently, no relabelling keeps the law."""
        return []

    @property
    def reference_circuit(self) -> tuple[str, ...]:
        """None: scores have to be sums of log pi between tokens, which `same` and class means cannot express."""
        return ()

    def sample(self, contexts: int, generator: torch.Generator) -> Batch:
        """Draw flat contexts.

        `latent`: `parents` [context position], as in `Episodes`.
        """
        return self.flatten(self.sample_episodes(contexts, generator))

    def bayes(self, batch: Batch) -> Float[Tensor, "context query vocab"]:
        """Return the optimal predictions, by Bayesian model averaging: `Σ_h' P(pa(h) = h' | …) p(· | x_h')`."""
        step = max(1, _NUMBERS // self.positions**2)
        laws = []
        for tokens, queries in zip(batch.tokens.split(step), batch.queries.split(step), strict=True):
            values = self._in_two_dimensions(tokens)
            episodes = Episodes(values, torch.full_like(values[:, 0], -1), self.candidates.to(tokens.device))
            places = queries + 1 - episodes.n_examples * self.positions
            laws.append(self.bma(episodes).gather(1, places.unsqueeze(2).expand(-1, -1, self.d)))
        return torch.cat(laws)

    def flatten(self, episodes: Episodes) -> Batch:
        """Return episodes as flat contexts, with as many examples as they have."""
        self._check(episodes.values)
        tokens = episodes.values.flatten(1)
        queries = self._asked_at(episodes.n_examples).to(tokens.device).expand(len(tokens), -1)
        targets = tokens.gather(1, queries + 1)
        return Batch(
            tokens, queries, targets, torch.ones_like(targets, dtype=torch.bool), {"parents": episodes.parents}
        )

    def episodes_of(self, batch: Batch) -> Episodes:
        """Return flat contexts as episodes.

        Raises:
            TaskError: when they are not whole examples of this task's tokens, or do not say who the parents are.
        """
        if "parents" not in batch.latent:
            raise TaskError(f"a batch of {self.name} has `parents` in its latent; found {[*batch.latent]}")
        values = self._in_two_dimensions(batch.tokens)
        return Episodes(values, batch.latent["parents"], self.candidates.to(values.device))

    def decode(self, tokens: Int[Tensor, " position"]) -> list[str]:
        """Return the number of each token."""
        return [str(token) for token in tokens.tolist()]

    def describe(self, batch: Batch, index: int = 0) -> str:
        """Return one context on one line, examples apart, with the parents of the asked positions."""
        episodes = self.episodes_of(batch[index : index + 1])
        examples = (" ".join(self.decode(example)) for example in episodes.values[0])
        asked = episodes.asked.nonzero().squeeze(1).tolist()
        parents = " ".join(str(parent) for parent in episodes.parents[0, asked].tolist())
        return f"{' | '.join(examples)}   [parents of positions {asked[0]} to {asked[-1]}: {parents}]"

    def _asked_at(self, examples: int) -> Int[Tensor, " query"]:
        return examples * self.positions + self.candidates.any(dim=1).nonzero().squeeze(1) - 1

    def _in_two_dimensions(self, tokens: Int[Tensor, "context token"]) -> Int[Tensor, "context example position"]:
        if tokens.shape[1] == 0 or tokens.shape[1] % self.positions:
            raise TaskError(
                f"{self.name} has flat contexts of whole examples of {self.positions} tokens; found {tokens.shape[1]}"
            )
        self._check(tokens)
        return tokens.unflatten(1, (-1, self.positions))

    def _check(self, values: Int[Tensor, "..."]) -> None:
        """Refuse tokens that there are not."""
        if values.numel() and not (int(values.min()) >= 0 and int(values.max()) < self.d):
            found = int(values.min()) if int(values.min()) < 0 else int(values.max())
            raise TaskError(f"{self.name} with d={self.d} has tokens 0 to {self.d - 1}; found {found}")
