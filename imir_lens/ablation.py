"""Taking coordinates out of a real model, through hooks, leaving no trace on it.

Removing coordinates from a head's score changes it by `Δ = Σ c · A_u R A_vᵀ`, with the patterns of that same run, so
that ablations in one layer are seen by the next. At `hook_pattern` this is the tilt `p ∝ p · exp(−Δ)`, exact because a
softmax forgets constants. Where a pattern underflowed to zero its logarithm is gone; there the score is recomputed from
`hook_q` and `hook_k`, and so are all scores that pass a soft cap: Δ is taken off before it. At the readout the
coordinates' logits are subtracted. In a model with norms all terms are taken at the actual scales of that run, read at
`hook_scale`.
"""

from typing import Any

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from imir_lens.coordinates import Coordinates
from imir_lens.errors import CoordinateError
from imir_lens.evaluation import at_queries
from imir_lens.ids import CoordinateId, Head
from imir_lens.lens_model import LensModel
from imir_lens.models.soft_cap import soft_capped
from imir_lens.score_reader import finished_scores, raw_scores
from imir_lens.stream_scales import StreamScales
from imir_lens.tasks.base import Batch
from imir_lens.terms import (
    Contents,
    ContextRelations,
    Reads,
    contexts_in_chunks,
    position_terms,
    readout_terms,
    score_terms,
)
from imir_lens.weights import CircuitWeights


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
        CoordinateError: when an id is unknown, or nothing that is not already zero would be removed
            (`LensModel.query_logits` gives the logits of the model as it is).
        UnsupportedModelError: when editing the model's patterns does not change its logits.
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
    """Return the model's logits at the queries without the coordinates of a mask (possibly none).

    Args:
        model: the model the coordinates were projected from.
        coordinates: its coordinates.
        removed: what to remove.
        batch: contexts.

    Raises:
        UnsupportedModelError: when editing the model's patterns does not change its logits.
    """
    removed = removed.to(coordinates.values.device)
    if not model.hooks_proved:
        model.check_hook_effect(batch.tokens[:4])  # an edit that goes nowhere would make everything look harmless
    parts = []
    for part in contexts_in_chunks(batch, coordinates.space, n_paths=len(coordinates.space.paths)):
        run = _AblatedRun(coordinates, removed, part, model.weights)
        parts.append(run.at_queries(model.run_with_hooks(part.tokens, run.hooks())))
    return torch.cat(parts)


class _AblatedRun:
    """The hooks of one forward pass: each layer tilts its patterns, then hands them to the layers above."""

    def __init__(
        self, coordinates: Coordinates, removed: Bool[Tensor, " coordinate"], batch: Batch, weights: CircuitWeights
    ) -> None:
        self.space = coordinates.space
        self.values = torch.where(removed, coordinates.values, 0.0)
        reads = Reads.of(self.space, self.values != 0)
        self.batch = batch
        self.weights = weights
        self.scales = self.space.scales or StreamScales.ones(weights.n_layers, weights.n_heads)
        self.context = ContextRelations.evaluate(self.space, batch.tokens, dtype=self.values.dtype)
        self.contents = Contents(self.space, reads, len(batch), self.values)
        self._vectors: dict[str, Tensor] = {}

    def hooks(self) -> list[tuple[str, Any]]:
        """Hooks for `run_with_hooks`, only at layers that matter."""
        out: list[tuple[str, Any]] = []
        normalised = self.weights.form.norm is not None
        for layer in range(self.space.paths.n_layers):
            heads = [head for head in self.space.paths.heads if head.layer == layer]
            if any(self.contents.reads.keys[head] for head in heads):
                out += [(f"blocks.{layer}.attn.hook_q", self._remember("q"))]
                out += [(f"blocks.{layer}.attn.hook_k", self._remember("k"))]
            elif not any(self.contents.needs(head) for head in heads):
                continue
            if normalised:
                out.append((f"blocks.{layer}.ln1.hook_scale", self._rescale(layer)))
            out.append((f"blocks.{layer}.attn.hook_pattern", self._tilt(layer)))
        if normalised:
            out.append(("ln_final.hook_scale", self._rescale_readout))
        return out

    def at_queries(self, logits: Float[Tensor, "context position vocab"]) -> Float[Tensor, "context query vocab"]:
        """Pick the queries' logits and subtract the removed readout coordinates."""
        removed = readout_terms(self.contents, self.context, self.values, self.batch.queries)
        logits, cap = at_queries(logits, self.batch), self.weights.form.logit_cap
        if not cap:
            return logits - removed
        # Just inside the cap, where float32 can still tell a logit from it.
        uncapped = cap * torch.atanh((logits / cap).clamp(-1 + 1e-6, 1 - 1e-6))
        return soft_capped(uncapped - removed / self.scales.logit_slope, cap)

    def _rescale(self, layer: int) -> Any:
        def hook(scale: Tensor, hook: Any) -> None:
            self.contents.rescale(layer, 1 / scale.squeeze(-1))

        return hook

    def _rescale_readout(self, scale: Tensor, hook: Any) -> None:
        self.contents.rescale_readout((1 / scale.squeeze(-1)).gather(1, self.batch.queries))

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
                    new[:, head.index] = self._without(delta, pattern[:, head.index], head)
            for head in self.space.paths.heads:
                if head.layer == layer:
                    self.contents.extend(head, new[:, head.index])
            return new

        return hook

    def _without(
        self,
        delta: Float[Tensor, "context query key"],
        pattern: Float[Tensor, "context query key"],
        head: Head,
    ) -> Float[Tensor, "context query key"]:
        """Return a head's pattern with a term taken off its scores."""
        if not self.weights.form.score_cap:
            return (self._log_pattern(pattern, head) - delta).softmax(-1)
        slope = self.scales.score_slopes[head.layer][head.index]
        # ALiBi's bias is added after the cap.
        beside = position_terms(self.space, self.values, head) if self.weights.form.positions == "alibi" else 0.0
        return (self._finished(head, self._raw_scores(head) - (delta - beside) / slope) - beside).softmax(-1)

    def _log_pattern(
        self, pattern: Float[Tensor, "context query key"], head: Head
    ) -> Float[Tensor, "context query key"]:
        """Logarithm of a pattern, with what underflowed recomputed from queries and keys."""
        hidden = self.space.form.hidden(head.layer, pattern.shape[-1], device=pattern.device)
        log_pattern = pattern.to(self.values.dtype).log().masked_fill(hidden, -torch.inf)
        # Below the smallest normal number a float has lost digits, and a zero has lost everything.
        lost = (pattern < torch.finfo(pattern.dtype).tiny) & ~hidden
        if bool(lost.any()):
            log_pattern = torch.where(lost, self._finished(head, self._raw_scores(head)).log_softmax(-1), log_pattern)
        return log_pattern

    def _raw_scores(self, head: Head) -> Float[Tensor, "context query key"]:
        return raw_scores(self.weights, head.layer, head.index, self._vectors["q"], self._vectors["k"])

    def _finished(self, head: Head, raw: Float[Tensor, "context query key"]) -> Float[Tensor, "context query key"]:
        hidden = self.space.form.hidden(head.layer, raw.shape[-1], device=raw.device)
        return finished_scores(self.weights, head.index, raw).masked_fill(hidden, -torch.inf)
