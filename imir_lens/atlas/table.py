"""An atlas as JSON values; `report/atlas_schema.json` says what each of them is."""

import math
from collections.abc import Mapping
from typing import Any

from jaxtyping import Float, Int
from torch import Tensor

from imir_lens.atlas.agreement import agreement
from imir_lens.atlas.check import CausalCheck, Gain
from imir_lens.atlas.coordinate import Place
from imir_lens.atlas.explained import ScoreFit
from imir_lens.atlas.labels import Thresholds, labels_of
from imir_lens.atlas.matching import OFFSETS as MATCH_OFFSETS
from imir_lens.atlas.patterns import PatternMasses
from imir_lens.atlas.scores import WeightScores
from imir_lens.atlas.statistics import Contrast
from imir_lens.created_with import created_with
from imir_lens.ids import Head
from imir_lens.lens_model import LensModel

SCHEMA = "imir-lens/atlas/1"
THROUGH = 5  # upstream heads listed for each head


def atlas_data(
    lens: LensModel,
    scores: WeightScores,
    needed: Thresholds,
    *,
    seed: int,
    command: str,
    relation: Int[Tensor, "pair 2"] | None = None,
    masses: PatternMasses | None = None,
    fit: ScoreFit | None = None,
    check: CausalCheck | None = None,
    tokens: Int[Tensor, "context position"] | None = None,
) -> dict[str, Any]:
    """Put together what was found."""
    weights, paths = lens.weights, scores.paths
    places = [(layer, head) for layer in range(weights.n_layers) for head in range(weights.n_heads)]
    return {
        "schema": SCHEMA,
        "created_with": created_with(),
        "command": command,
        "seed": seed,
        "model": lens.info,
        "settings": {
            "token_source": "embedding and first MLP" if len(scores.moments.means) == 2 else "embedding",
            "kernel_offsets": scores.kernels.kappa.shape[-1],
            "match_offsets": MATCH_OFFSETS if weights.form.positions == "rotary" else None,
            "relation_pairs": None if relation is None else len(relation),
        },
        "thresholds": {name: getattr(needed, name) for name in needed.__dataclass_fields__},
        "paths": {
            "bound": paths.bound,
            "chosen": paths.n_chosen,
            "skipped": paths.n_skipped,
            "largest_skipped": paths.largest_skipped,
        },
        "data": None if masses is None or tokens is None else _data(scores, masses, tokens),
        "check": None if check is None else _check(check),
        "heads": [_head(scores, place, needed, masses, fit, check) for place in places],
    }


def _head(
    scores: WeightScores,
    place: Place,
    needed: Thresholds,
    masses: PatternMasses | None,
    fit: ScoreFit | None,
    check: CausalCheck | None,
) -> dict[str, Any]:
    kernels, matching = scores.kernels, scores.matching
    labels = labels_of(scores, masses, needed, *place)
    removed = None
    if check is not None and place in check.coordinate:
        removed = {"coordinate": check.coordinate[place], "head": check.head[place]}
    return {
        "head": _name(place),
        "layer": place[0],
        "index": place[1],
        "labels": [{"name": label.name, "source": label.source, "evidence": label.evidence} for label in labels],
        "previous_token": {
            "z": float(kernels.z[place]),
            "chance": float(kernels.chance[place]),
            "mass": float(kernels.mass[place]),
            "peak": int(kernels.peak[place]),
            "kernel": [round(x, 6) if math.isfinite(x) else None for x in kernels.kappa[place].tolist()],
        },
        "same": _contrast(matching.direct, place),
        "same_copied": _contrast(matching.copied, place),
        "same_through": _through(matching.through[place]),
        "copying": _contrast(scores.copying, place),
        "induction": float(scores.induction[place]),
        "induction_copying": float(scores.induction_copying[place]),
        "assoc_score": None if matching.assoc is None else _contrast(matching.assoc, place),
        "assoc_readout": None if scores.assoc is None else _contrast(scores.assoc, place),
        "patterns": None if masses is None else masses.of(*place),
        "explained": None
        if fit is None
        else {
            "r2": float(fit.r2[place]),
            "r2_kernel": float(fit.r2_kernel[place]),
            "match_size": float(fit.match_size[place]),
        },
        "removed": removed,
    }


def _name(place: Place) -> str:
    return str(Head(*place))


def _contrast(found: Contrast, place: Place) -> dict[str, float]:
    return {"mean": float(found.mean[place]), "z": float(found.z[place]), "chance": float(found.chance[place])}


def _through(z: Float[Tensor, "upstream_layer upstream_head"]) -> list[dict[str, Any]]:
    """The upstream heads with the largest z, of those looked through."""
    order = z.flatten().argsort(descending=True, stable=True)[:THROUGH].tolist()
    places = [divmod(k, z.shape[1]) for k in order]
    return [{"head": _name(p), "z": float(z[p])} for p in places if math.isfinite(float(z[p]))]


def _data(scores: WeightScores, masses: PatternMasses, tokens: Tensor) -> dict[str, Any]:
    return {
        "contexts": len(tokens),
        "length": tokens.shape[1] // 2,
        "loss_first": masses.loss[0],
        "loss_second": masses.loss[1],
        "agreement": agreement(scores, masses),
    }


def _check(check: CausalCheck) -> dict[str, Any]:
    gains: Mapping[str, Gain] = {"model": check.model, **check.joint}
    return {
        "top": [_name(place) for place in check.top],
        "random": [_name(place) for place in check.random],
        "gains": [
            {"removed": name, "loss_first": gain.first, "loss_second": gain.second, "gain": gain.value}
            for name, gain in gains.items()
        ],
        "auc_coordinate": check.auc["coordinate"],
        "auc_head": check.auc["head"],
        "heads_removed": len(check.coordinate),
    }
