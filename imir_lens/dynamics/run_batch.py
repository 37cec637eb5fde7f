"""Contexts for many runs at once: one batch for all of them, or one for each, drawn from a seed of its own."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float, Int
from torch import Tensor

from imir_lens.errors import OptionError
from imir_lens.tasks.base import Batch, Task

# Contexts drawn in one call of a task's sampler: a call costs the same for one context as for hundreds.
_DRAWN_AT_ONCE = 4096
_TIED = 1e-3  # as in `evaluation`


@dataclass(frozen=True)
class RunBatch:
    """A batch for each run; the leading axis has size 1 when all runs see the same contexts.

    Attributes:
        tokens: the contexts.
        queries: positions whose next-token prediction is scored.
        targets: the right answer at each query.
        mask: which queries count.
        fixed_queries: the queries' positions, when they are the same in all contexts; else None.
    """

    tokens: Int[Tensor, "run context position"]
    queries: Int[Tensor, "run context query"]
    targets: Int[Tensor, "run context query"]
    mask: Bool[Tensor, "run context query"]
    fixed_queries: Int[Tensor, " query"] | None

    @classmethod
    def of(cls, batch: "Batch | Sequence[Batch] | RunBatch") -> "RunBatch":
        """Return one batch as a batch for all runs, or several as one for each.

        Raises:
            OptionError: when the batches differ in shape.
        """
        if isinstance(batch, RunBatch):
            return batch
        batches = [batch] if isinstance(batch, Batch) else list(batch)
        shapes = {(tuple(b.tokens.shape), tuple(b.queries.shape)) for b in batches}
        if len(shapes) != 1:
            raise OptionError(f"the batches of all runs must have one shape: found {sorted(shapes) or 'none'}")
        parts = [torch.stack([getattr(b, name) for b in batches]) for name in ("tokens", "queries", "targets", "mask")]
        return cls(parts[0], parts[1], parts[2], parts[3], _fixed(parts[1]))

    @property
    def n_runs(self) -> int:
        """Number of runs with contexts of their own; 1: the contexts are for all."""
        return len(self.tokens)

    def slice(self, start: int, stop: int) -> "RunBatch":
        """Return some contexts of every run."""
        tokens, queries, targets, mask = self.tokens, self.queries, self.targets, self.mask
        parts = [tensor[:, start:stop] for tensor in (tokens, queries, targets, mask)]
        return RunBatch(parts[0], parts[1], parts[2], parts[3], self.fixed_queries)

    def taken(self, index: Int[Tensor, "run context"]) -> "RunBatch":
        """Return, for every run, contexts of its own among those that are for all runs."""
        parts = [tensor[0][index] for tensor in (self.tokens, self.queries, self.targets, self.mask)]
        return RunBatch(parts[0], parts[1], parts[2], parts[3], self.fixed_queries)

    def losses(self, logits: Float[Tensor, "run context query vocab"]) -> Float[Tensor, " run"]:
        """Mean cross-entropy of every run over its queries that count."""
        targets = self.targets.expand(logits.shape[:-1]).unsqueeze(-1)
        nats = logits.logsumexp(-1) - logits.gather(-1, targets).squeeze(-1)
        return self._mean(nats)

    def accuracies(self, logits: Float[Tensor, "run context query vocab"]) -> Float[Tensor, " run"]:
        """Share of queries whose most likely token is the answer, ties shared, for every run."""
        best = logits >= logits.amax(-1, keepdim=True) - _TIED
        targets = self.targets.expand(logits.shape[:-1]).unsqueeze(-1)
        return self._mean(best.gather(-1, targets).squeeze(-1).to(logits.dtype) / best.sum(-1))

    def _mean(self, values: Float[Tensor, "run context query"]) -> Float[Tensor, " run"]:
        if bool(self.mask.all()):
            return values.mean((1, 2))
        mask = self.mask.to(values.dtype)
        return (values * mask).sum((1, 2)) / mask.sum((1, 2))


def drawn_batches(
    task: Task, seeds: Sequence[int], *, batch: int, steps: int, pool: Batch | None = None
) -> Iterator[RunBatch]:
    """Draw a batch for every step: one stream of contexts for each seed, independent of the other seeds.

    A stream is drawn in blocks of many steps, so it equals the stream of the same seed alone whatever runs beside it.

    Args:
        task: what to draw from.
        seeds: one for all runs, or one for each.
        batch: contexts a step.
        steps: number of batches.
        pool: contexts from which every stream draws its own, with replacement, in place of fresh ones: sampling fresh
            contexts for many runs can cost more than the training.
    """
    generators = [torch.Generator().manual_seed(seed) for seed in seeds]
    common = None if pool is None else RunBatch.of(pool)
    block = max(1, min(steps, _DRAWN_AT_ONCE // batch))
    for start in range(0, steps, block):
        if pool is None or common is None:
            drawn = RunBatch.of([task.sample(batch * block, generator) for generator in generators])
        else:
            chosen = torch.stack([torch.randint(len(pool), (batch * block,), generator=g) for g in generators])
            drawn = common.taken(chosen)
        for step in range(min(block, steps - start)):
            yield drawn.slice(step * batch, (step + 1) * batch)


def _fixed(queries: Int[Tensor, "run context query"]) -> Int[Tensor, " query"] | None:
    first = queries[0, 0]
    return first if bool((queries == first).all()) else None
