"""Taking coordinates out of a real model, through hooks, leaving no trace on it.

Removing coordinates from a head's score changes it by `Δ = Σ c · A_u R A_vᵀ`, with the patterns of that same run, so
that ablations in one layer are seen by the next. At `hook_pattern` this is the tilt `p ∝ p · exp(−Δ)`, exact because a
softmax forgets constants. Where a pattern underflowed to zero its logarithm is gone; there the score is recomputed from
`hook_q` and `hook_k`. At the readout the coordinates' logits are subtracted.
"""

from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from imir_lens.coordinates import Coordinates
from imir_lens.errors import CoordinateError
from imir_lens.evaluation import at_queries
from imir_lens.ids import CoordinateId
from imir_lens.lens_model import LensModel
from imir_lens.tasks.base import Batch
from imir_lens.terms import Contents, ContextRelations, Reads, contexts_in_chunks, readout_terms, score_terms


def ablate(
    model: LensModel,
    coordinates: Coordinates,
    identifiers: list[CoordinateId] | list[str],
    batch: Batch,
) -> Float[Tensor, "context query vocab"]:
    """Return the model's logits at the queries with some coordinates removed.

    Args:
        model: the model the coordinates were projected from.
        coordinates: its coordinates.
        identifiers: what to remove.
        batch: contexts.

    Raises:
        CoordinateError: when an id is unknown, or nothing that is not already zero would be removed.
    """
    removed = torch.zeros(coordinates.space.size, dtype=torch.bool)
    if identifiers:
        removed[coordinates.places(identifiers)] = True
    if not bool((coordinates.values[removed] != 0).any()):
        raise CoordinateError(f"nothing to ablate: {list(map(str, identifiers))} are all zero in this model")
    return ablate_mask(model, coordinates, removed, batch)


def ablate_mask(
    model: LensModel, coordinates: Coordinates, removed: Bool[Tensor, " coordinate"], batch: Batch
) -> Float[Tensor, "context query vocab"]:
    """Return the model's logits at the queries without the coordinates of a mask (possibly none)."""
    removed = removed.to(coordinates.values.device)
    parts = []
    for part in contexts_in_chunks(batch, coordinates.space, n_paths=len(coordinates.space.paths)):
        run = _AblatedRun(coordinates, removed, part, scale=model.weights.scale)
        parts.append(run.at_queries(model.run_with_hooks(part.tokens, run.hooks())))
    return torch.cat(parts)


class _AblatedRun:
    """The hooks of one forward pass: each layer tilts its patterns, then hands them to the layers above."""

    def __init__(
        self, coordinates: Coordinates, removed: Bool[Tensor, " coordinate"], batch: Batch, *, scale: float
    ) -> None:
        self.space = coordinates.space
        self.values = torch.where(removed, coordinates.values, 0.0)
        reads = Reads.of(self.space, self.values != 0)
        self.batch = batch
        self._scale = scale
        self.context = ContextRelations.evaluate(self.space, batch.tokens, dtype=self.values.dtype)
        self.contents = Contents(self.space, reads, len(batch), self.values)
        self._vectors: dict[str, Tensor] = {}

    def hooks(self) -> list[tuple[str, Any]]:
        """Hooks for `run_with_hooks`, only at layers that matter."""
        out: list[tuple[str, Any]] = []
        for layer in range(self.space.paths.n_layers):
            heads = [head for head in self.space.paths.heads if head.layer == layer]
            if any(self.contents.reads.keys[head] for head in heads):
                out += [(f"blocks.{layer}.attn.hook_q", self._remember("q"))]
                out += [(f"blocks.{layer}.attn.hook_k", self._remember("k"))]
            elif not any(self.contents.needs(head) for head in heads):
                continue
            out.append((f"blocks.{layer}.attn.hook_pattern", self._tilt(layer)))
        return out

    def at_queries(self, logits: Float[Tensor, "context position vocab"]) -> Float[Tensor, "context query vocab"]:
        """Pick the queries' logits and subtract the removed readout coordinates."""
        removed = readout_terms(self.contents, self.context, self.values, self.batch.queries)
        return at_queries(logits, self.batch) - removed

    def _remember(self, name: str) -> Any:
        def hook(tensor: Tensor, hook: Any) -> None:
            self._vectors[name] = tensor.to(self.values.dtype)

        return hook

    def _tilt(self, layer: int) -> Any:
        def hook(pattern: Tensor, hook: Any) -> Tensor:
            new = pattern.clone()
            for head in self.space.paths.heads:
                if head.layer != layer:
                    continue
                delta = score_terms(self.contents, self.context, self.values, head)
                if delta is not None:
                    log_pattern = self._log_pattern(pattern[:, head.index], head.index)
                    new[:, head.index] = (log_pattern - delta).softmax(-1)
            for head in self.space.paths.heads:
                if head.layer == layer:
                    self.contents.extend(head, new[:, head.index])
            return new

        return hook

    def _log_pattern(
        self, pattern: Float[Tensor, "context query key"], head: int
    ) -> Float[Tensor, "context query key"]:
        """Logarithm of a pattern, with what underflowed recomputed from queries and keys."""
        n_positions = pattern.shape[-1]
        hidden = torch.ones(n_positions, n_positions, dtype=torch.bool, device=pattern.device).triu(1)
        log_pattern = pattern.to(self.values.dtype).log().masked_fill(hidden, -torch.inf)
        # Below the smallest normal number a float has lost digits, and a zero has lost everything.
        lost = (pattern < torch.finfo(pattern.dtype).tiny) & ~hidden
        if bool(lost.any()):
            scores = torch.einsum("cqd,ckd->cqk", self._vectors["q"][:, :, head], self._vectors["k"][:, :, head])
            scores = (scores / self._scale).masked_fill(hidden, -torch.inf)
            log_pattern = torch.where(lost, scores.log_softmax(-1), log_pattern)
        return log_pattern
