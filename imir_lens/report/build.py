"""From an analysis to the report's data, field by field as the schema has them."""

import math
from typing import Any

import torch

from imir_lens.analysis import Analysis
from imir_lens.created_with import created_with
from imir_lens.evidence import Removal
from imir_lens.model_vocabulary import ModelInVocabulary
from imir_lens.redundancy import Sufficiency
from imir_lens.report.circuit_rows import coordinate_rows, unit_row
from imir_lens.verdict import suffices

_MOST_EXAMPLES, _MOST_HEADS = 4, 8
_MASS_CONTEXTS = 128
_ABLATION = (
    "a coordinate's own term is taken out of the score (a tilt of hook_pattern) or out of the logits, "
    "in the same forward pass; everything no coordinate explains stays"
)


def report_data(analysis: Analysis, *, command: str) -> dict[str, Any]:
    """Return the report of an analysis as plain data.

    Args:
        analysis: what was found.
        command: the command line, or call, that asked for it.
    """
    circuit, evidence, explained = analysis.circuit, analysis.evidence, analysis.explained
    space = analysis.projector.space_
    found = bool(circuit.units)
    return {
        "schema": "imir-lens/report/1",
        "created_with": created_with(),
        "command": command,
        "seed": analysis.seed,
        "model": analysis.model.info,
        "task": {"name": analysis.task.name, "knobs": analysis.task.knobs},
        "evaluation": {
            "contexts": len(analysis.test_batch),
            "search_contexts": len(analysis.search_batch),
            "search_seed": analysis.seed,
            "test_seed": analysis.seed + 1,
            "model": evidence.model.as_dict(),
            "projection": evidence.projection.as_dict(),
            "surrogate": evidence.surrogate.as_dict() if found else None,
            "circuit": evidence.circuit.as_dict() if found else None,
            "without_circuit": evidence.without_circuit.as_dict() if found else None,
            "chance_ablated": evidence.without_all.as_dict(),
            "bayes": analysis.bayes.as_dict(),
            "chance": analysis.chance.as_dict(),
            **_mass(analysis),
        },
        "search": {
            "paths": len(space.paths),
            "paths_cut": analysis.projector.n_cut_,
            "bound": analysis.projector.cut_,
            "coordinates_total": space.n_active,
        },
        "ablation": _ABLATION,
        "coordinates": coordinate_rows(analysis.circuit),
        "circuit": {
            "budget": circuit.budget,
            "evaluations": circuit.evaluations,
            "gradient_passes": circuit.gradient_passes,
            "seconds": circuit.seconds,
            "units": [{**unit_row(unit), **_removal(evidence.units[str(unit.id)])} for unit in circuit.units],
            "roles": [
                {"role": role, "units": [str(unit.id) for unit in units], **_removal(evidence.roles[role])}
                for role, units in circuit.by_role().items()
            ],
            "backups": list(circuit.backups),
            "separate": [_separate(one, analysis) for one in analysis.separate],
            "kinds": [
                {
                    "kind": one.kind,
                    "coordinates": one.coordinates,
                    "removed": one.model.as_dict(),
                    "shuffled": one.shuffled.as_dict(),
                }
                for one in analysis.kinds
            ],
            "faithfulness": evidence.faithfulness if found else None,
            "completeness": evidence.completeness if found else None,
            "minimal": circuit.minimal,
            "stability": {
                "bootstrap_jaccard": analysis.stability,
                "n": analysis.bootstraps if found else 0,
            },
        },
        "heads": [
            {
                "layer": row.head.layer,
                "head": row.head.index,
                "score_r2": row.score_r2,
                "offset": row.offset,
                "copy_mass": row.copy_mass,
                "match": row.match,
                "copying": row.copying,
                "labels": list(row.labels),
            }
            for row in analysis.heads
        ],
        "unexplained": {
            "score_variance": 1 - explained.scores,
            "readout_variance": 1 - explained.readout,
            "per_head": {str(head): 1 - share for head, share in explained.heads.items()},
        },
        "verdict": {
            "mechanism": analysis.verdict.mechanism,
            "evidence_level": analysis.verdict.evidence_level,
            "text": analysis.verdict.text,
            "caveats": list(analysis.verdict.caveats),
        },
        "examples": _examples(analysis),
    }


def _removal(removal: Removal) -> dict[str, Any]:
    return {
        "loss_if_removed": {"surrogate": removal.surrogate.loss, "model": removal.model.loss},
        "accuracy_if_removed": {"surrogate": removal.surrogate.accuracy, "model": removal.model.accuracy},
    }


def _mass(analysis: Analysis) -> dict[str, Any]:
    """How much of its probability the whole model puts on the vocabulary in which it was asked."""
    if not isinstance(analysis.model, ModelInVocabulary):
        return {}
    return {"vocabulary_mass": analysis.model.mass(analysis.test_batch[:_MASS_CONTEXTS])}


def _separate(alone: Sufficiency, analysis: Analysis) -> dict[str, Any]:
    return {
        "units": [str(unit.id) for unit in alone.circuit.units],
        "loss": {"surrogate": alone.surrogate.loss, "model": alone.model.loss},
        "accuracy": {"surrogate": alone.surrogate.accuracy, "model": alone.model.accuracy},
        "sufficient": suffices(alone.model, analysis.evidence.model, analysis.chance),
    }


def _examples(analysis: Analysis) -> list[dict[str, Any]]:
    """A few decoded test contexts with the patterns of the circuit's heads."""
    batch, captured = analysis.test_batch, analysis.captured
    heads = sorted(
        {
            head
            for unit in analysis.circuit.units
            for head in ((unit.id.head,) if unit.id.head else ())
            + tuple(h for path in unit.id.paths for h in path.heads)
        }
    )[:_MOST_HEADS]
    if not heads:
        return []
    # The texts of the model's own tokens, where it was asked in some of them.
    spoken = analysis.model.vocabulary if isinstance(analysis.model, ModelInVocabulary) else analysis.task
    out = []
    for index in range(min(_MOST_EXAMPLES, len(captured.logits))):
        law = captured.logits[index, 0].softmax(-1)
        best = int(law.argmax())
        target = int(batch.targets[index, 0])
        out.append(
            {
                "tokens": spoken.decode(batch.tokens[index].cpu()),
                "query": int(batch.queries[index, 0]),
                "target": spoken.decode(torch.tensor([target]))[0],
                "prediction": spoken.decode(torch.tensor([best]))[0],
                "probability": round(float(law[best]), 6),
                "attention": {str(head): _rounded(captured.patterns[head][index]) for head in heads},
            }
        )
    return out


def _rounded(pattern: torch.Tensor) -> list[list[float]]:
    # In float64, so that three decimals stay three decimals in JSON.
    rows = pattern.double().round(decimals=3).tolist()
    return [[0.0 if math.isclose(value, 0.0, abs_tol=5e-4) else value for value in row] for row in rows]
