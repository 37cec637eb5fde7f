"""What a task is: a sampler with its optimal predictor, its symmetry and its reference circuit."""

from abc import ABC, abstractmethod
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from imir_lens.relations import TokenRelations


@dataclass(frozen=True)
class Batch:
    """Contexts with what is asked of them.

    Attributes:
        tokens: the contexts.
        queries: positions whose next-token prediction is scored.
        targets: the right answer at each query.
        mask: which queries count (ragged batches pad with False).
        latent: hidden structure, by name; the leading axis is the context.
    """

    tokens: Int[Tensor, "context position"]
    queries: Int[Tensor, "context query"]
    targets: Int[Tensor, "context query"]
    mask: Bool[Tensor, "context query"]
    latent: dict[str, Tensor] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.tokens)

    def __getitem__(self, index: slice | Tensor) -> "Batch":
        """Return the contexts chosen by a slice or an index tensor."""
        return Batch(
            self.tokens[index],
            self.queries[index],
            self.targets[index],
            self.mask[index],
            {name: value[index] for name, value in self.latent.items()},
        )

    def to(self, device: torch.device | str) -> "Batch":
        """Return the batch on another device."""
        return Batch(
            self.tokens.to(device),
            self.queries.to(device),
            self.targets.to(device),
            self.mask.to(device),
            {name: value.to(device) for name, value in self.latent.items()},
        )


class Task(ABC):
    """A task with a known optimal answer. Subclasses are frozen dataclasses whose fields are the knobs."""

    name: ClassVar[str]
    summary: ClassVar[str]

    @property
    def knobs(self) -> dict[str, Any]:
        """The knobs and their values."""
        return {f.name: getattr(self, f.name) for f in fields(self)}  # type: ignore[arg-type]

    @property
    @abstractmethod
    def d_vocab(self) -> int:
        """Number of tokens."""

    @property
    @abstractmethod
    def n_positions(self) -> int:
        """Length of a context."""

    @property
    def query_positions(self) -> tuple[int, ...]:
        """Where predictions are asked for, over all contexts: at the last position, unless a task says otherwise."""
        return (self.n_positions - 1,)

    @property
    @abstractmethod
    def relations(self) -> TokenRelations:
        """Token relations: classes, `same`, and `assoc` where the task has a fixed association."""

    @property
    @abstractmethod
    def symmetry_generators(self) -> list[Int[Tensor, " vocab"]]:
        """Token relabellings that leave the task's law unchanged; they generate its symmetry group."""

    @property
    @abstractmethod
    def reference_circuit(self) -> tuple[str, ...]:
        """Coordinate ids of the least circuit that solves the task: fewest layers, a head for each job.

        It holds the auxiliary coordinates without which the others cannot come within 1e-3 of the optimal loss.
        """

    @abstractmethod
    def sample(self, contexts: int, generator: torch.Generator) -> Batch:
        """Draw contexts. The same generator state gives the same batch; it lives on the generator's device."""

    @abstractmethod
    def bayes(self, batch: Batch) -> Float[Tensor, "context query vocab"]:
        """Return the optimal predictive distribution at each query, given only the tokens up to it."""

    @abstractmethod
    def chance(self) -> Float[Tensor, " vocab"]:
        """Return the best prediction that ignores the context: the answer's marginal law."""

    @abstractmethod
    def decode(self, tokens: Int[Tensor, " position"]) -> list[str]:
        """Return a short readable name for each token of one context."""

    def describe(self, batch: Batch, index: int = 0) -> str:
        """Return one context on one line, ending in its query and answer."""
        words = self.decode(batch.tokens[index])
        asked = zip(
            batch.queries[index].tolist(), batch.targets[index].tolist(), batch.mask[index].tolist(), strict=True
        )
        answers = [
            f"{words[position]}@{position} → {self.decode(torch.tensor([target]))[0]}"
            for position, target, counts in asked
            if counts
        ]
        return f"{' '.join(words)}   [{', '.join(answers)}]"
