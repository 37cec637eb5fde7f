"""How much of the model's scores and logits the coordinates explain, on data."""

from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from imir_lens.coordinates import Coordinates
from imir_lens.evaluation import at_queries
from imir_lens.ids import Head
from imir_lens.lens_model import LensModel
from imir_lens.score_reader import finished_scores, raw_scores
from imir_lens.tasks.base import Batch
from imir_lens.terms import Contents, ContextRelations, Reads, readout_terms, score_terms


@dataclass(frozen=True)
class Capture:
    """What a run of the model left behind, per head.

    Attributes:
        patterns: attention patterns.
        scores: `q·k / scale` as the softmax gets them, before the mask.
        logits: at the queries.
    """

    patterns: dict[Head, Float[Tensor, "context position position"]]
    scores: dict[Head, Float[Tensor, "context position position"]]
    logits: Float[Tensor, "context query vocab"]


@dataclass(frozen=True)
class Explained:
    """Shares of variance explained (R²) by the coordinates, with the model's own patterns as contents.

    Attributes:
        heads: of each head's scores, centred over the keys each query sees (queries: all rows; in the last layer, the
            rows that are read).
        scores: of all heads' scores together.
        readout: of the logits, centred over the vocabulary.
    """

    heads: dict[Head, float]
    scores: float
    readout: float


def capture(model: LensModel, heads: tuple[Head, ...], batch: Batch) -> Capture:
    """Run the model once and keep patterns and scores."""
    layers = sorted({head.layer for head in heads})
    names = [f"blocks.{layer}.attn.hook_{what}" for layer in layers for what in ("q", "k", "pattern")]
    logits, cache = model.run_with_cache(batch.tokens, names)
    patterns, scores = {}, {}
    for head in heads:
        prefix = f"blocks.{head.layer}.attn.hook_"
        raw = raw_scores(model.weights, head.layer, head.index, cache[prefix + "q"], cache[prefix + "k"])
        patterns[head] = cache[prefix + "pattern"][:, head.index]
        scores[head] = finished_scores(model.weights, head.index, raw)
    return Capture(patterns, scores, at_queries(logits, batch))


def explain(captured: Capture, coordinates: Coordinates, batch: Batch) -> Explained:
    """Compare the coordinates' terms with a model's scores and logits."""
    space, values = coordinates.space, coordinates.values
    context = ContextRelations.evaluate(space, batch.tokens, dtype=values.dtype)
    contents = Contents(space, Reads.of(space, values != 0), len(batch), values)
    n_positions = space.n_positions
    heads, residual, total = {}, 0.0, 0.0
    for head in space.paths.heads:
        last = head.layer == space.paths.n_layers - 1
        rows = batch.queries if last else torch.arange(n_positions, device=values.device).expand(len(batch), -1)
        seen = ~space.form.hidden(head.layer, n_positions, device=values.device)[rows]  # [context, row, key]
        actual = captured.scores[head].gather(1, rows.unsqueeze(2).expand(-1, -1, n_positions))
        predicted = score_terms(contents, context, values, head, rows)
        predicted = torch.zeros_like(actual) if predicted is None else predicted
        head_total = _energy(_centre(actual, seen))
        head_residual = _energy(_centre(actual - predicted, seen))
        heads[head] = _r2(head_residual, head_total)
        residual, total = residual + head_residual, total + head_total
        contents.extend(head, captured.patterns[head])
    everywhere = torch.ones_like(captured.logits, dtype=torch.bool)
    logits = readout_terms(contents, context, values, batch.queries)
    readout = _r2(_energy(_centre(captured.logits - logits, everywhere)), _energy(_centre(captured.logits, everywhere)))
    return Explained(heads, _r2(residual, total), readout)


def _centre(x: Float[Tensor, "*rows key"], seen: Bool[Tensor, "*rows key"]) -> Float[Tensor, "*rows key"]:
    mean = (x * seen).sum(-1, keepdim=True) / seen.sum(-1, keepdim=True)
    return (x - mean) * seen


def _energy(x: Float[Tensor, "..."]) -> float:
    return float(x.double().square().sum())


def _r2(residual: float, total: float) -> float:
    return 1 - residual / total if total > 0 else 1.0
