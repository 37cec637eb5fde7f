"""How well a finding meets the truth."""

from collections.abc import Collection
from itertools import pairwise

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from benchmarks.planted.finding import Finding
from benchmarks.planted.graph import Truth
from benchmarks.planted.patching import EdgePatcher

# Shares of the edges kept, for CMD.
_SIZES = (0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0)


def coordinate_scores(found: Collection[str], truth: Collection[str]) -> dict[str, float]:
    """Return precision, recall and F1 over coordinates; 0 where nothing right was found."""
    right = len(set(found) & set(truth))
    precision, recall = right / max(len(found), 1), right / len(truth)
    return {"precision": precision, "recall": recall, "f1": 2 * right / (len(found) + len(truth))}


def roc_auc(scores: Float[Tensor, " item"], members: Bool[Tensor, " item"]) -> float | None:
    """Return the share of pairs (member, other) that the scores order rightly, ties as half; None without pairs."""
    inside, outside = scores[members].unsqueeze(1), scores[~members]
    if not inside.numel() or not outside.numel():
        return None
    return float(((inside > outside).double() + 0.5 * (inside == outside).double()).mean())


def graph_scores(finding: Finding, truth: Truth, patcher: EdgePatcher) -> dict[str, float | None]:
    """Return the ROC AUC over heads and over edges, and CMD."""
    graph = patcher.graph
    return {
        "head_auc": roc_auc(finding.heads, torch.tensor([head in truth.heads for head in graph.heads])),
        "edge_auc": roc_auc(finding.edges, torch.tensor([edge in truth.edges for edge in graph.edges])),
        "cmd": circuit_model_distance(finding.edges, patcher),
    }


@torch.no_grad()
def circuit_model_distance(edges: Float[Tensor, " edge"], patcher: EdgePatcher) -> float:
    """Return the mean of |1 − faithfulness| over circuit sizes (CMD, Mueller et al. 2025).

    The circuit of a size keeps the best-scored edges and cuts all others. Its faithfulness is the logit difference it
    reaches, from 0 with all edges cut to 1 with none. The mean is over the share of edges kept, by trapezia from 0
    (where the distance is 1) to 1.
    """
    metric = patcher.contexts.difference
    whole = float(metric(patcher.clean_logits))
    nothing = float(metric(patcher.run(torch.zeros_like(edges))[0]))
    order = edges.argsort(descending=True, stable=True)
    points = [(0.0, 1.0)]
    for share in _SIZES:
        kept = torch.zeros_like(edges)
        kept[order[: max(1, round(share * len(edges)))]] = 1
        reached = (float(metric(patcher.run(kept)[0])) - nothing) / (whole - nothing)
        points.append((share, abs(1 - reached)))
    return sum((right - left) * (high + low) / 2 for (left, low), (right, high) in pairwise(points))
