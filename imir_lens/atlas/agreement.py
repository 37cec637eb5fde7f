"""Whether the weights name the heads that captured patterns show: areas under curves and precisions."""

from typing import Any

import torch

from imir_lens.atlas.patterns import PatternMasses
from imir_lens.atlas.scores import WeightScores
from imir_lens.atlas.statistics import auc, precision_at

SHARES = (0.1, 0.3)
COUNT = 5


def agreement(scores: WeightScores, masses: PatternMasses) -> list[dict[str, Any]]:
    """Compare each kind of score with the attention it predicts.

    Returns:
        For each kind and each share of attention that counts as positive: `kind`, `score` (what ranks), `share`,
        `positive` (heads above it), `auc`, `precision_at_5`, and `overlap_at_5`: which share of the five heads with the
        highest scores are among the five with the most such attention. None where no head, or every head, is positive.
    """
    ranked = {
        ("induction", "match with copied tokens"): (scores.induction, masses.induction),
        ("induction", "the same by copying"): (scores.induction_copying, masses.induction),
        ("previous_token", "offset kernel"): (scores.kernels.z, masses.previous_token),
        ("duplicate_token", "match with own tokens"): (scores.matching.direct.z, masses.duplicate_token),
    }
    rows = []
    for (kind, name), (score, mass) in ranked.items():
        flat, seen = score.flatten().cpu(), mass.flatten()
        most = torch.zeros_like(seen, dtype=torch.bool)
        most[seen.argsort(descending=True, stable=True)[:COUNT]] = True
        for share in SHARES:
            positive = seen >= share
            area = auc(flat, positive)
            rows.append(
                {
                    "kind": kind,
                    "score": name,
                    "share": share,
                    "positive": int(positive.sum()),
                    "auc": area,
                    "precision_at_5": None if area is None else precision_at(flat, positive, COUNT),
                    "overlap_at_5": None if area is None else precision_at(flat, most, COUNT),
                }
            )
    return rows
