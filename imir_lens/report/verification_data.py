"""From a verification to its report's data, field by field as the schema has them."""

from collections.abc import Sequence
from typing import Any, Final

from jaxtyping import Float
from torch import Tensor

from imir_lens.causal.agreement import kind_of
from imir_lens.causal.attention_match import AttentionMatch
from imir_lens.causal.capture import CopyerHead
from imir_lens.causal.kernel_evidence import KernelErrors, KernelEvidence
from imir_lens.causal.leave_out import LeaveOut
from imir_lens.causal.parameters import own_blocks
from imir_lens.causal.transformer import CausalTransformer
from imir_lens.causal.verification import Verification
from imir_lens.causal.verification_verdict import LEVELS
from imir_lens.created_with import created_with
from imir_lens.report.verification_drawn import drawn_data, example_data

SCHEMA: Final = "imir-lens/verification/1"


def verification_data(found: Verification, *, command: str) -> dict[str, Any]:
    """Return the report of a verification as plain data.

    Args:
        found: what was found.
        command: the command line, or call, that asked for it.
    """
    verdict = found.verdict
    return {
        "schema": SCHEMA,
        "created_with": created_with(),
        "command": command,
        "seed": found.seed,
        "model": found.opened.info,
        "task": {"name": found.task.name, "knobs": found.task.knobs},
        "evaluation": {
            "contexts": len(found.episodes),
            "positions": found.episodes.n_nodes,
            "examples": found.episodes.n_examples,
            "test_seed": found.seed,
            "curve_seed": found.seed + 1,
            "ablation_contexts": found.ablation_contexts,
        },
        "behaviour": _behaviour(found),
        "parameters": None if found.kernel is None else _parameters(found.kernel),
        "mechanism": _mechanism(found),
        "verdict": {
            "mechanism": verdict.mechanism,
            "evidence_level": verdict.evidence_level,
            "levels": list(LEVELS),
            "text": verdict.text,
            "caveats": list(verdict.caveats),
            "checks": [
                {
                    "level": check.level,
                    "asked": check.asked,
                    "found": check.found,
                    "threshold": check.threshold,
                    "at_least": check.at_least,
                    "holds": check.holds,
                }
                for check in verdict.checks
            ],
        },
        "drawn": drawn_data(found),
        "examples": example_data(found),
    }


def _behaviour(found: Verification) -> dict[str, Any]:
    vectors = found.episodes.values.is_floating_point()
    return {
        "loss_unit": "squared error" if vectors else "nats",
        "losses": {
            "model": found.losses.model,
            "bma": found.losses.bma,
            "known_graph": found.losses.known_graph,
            "uniform": found.losses.uniform,
        },
        "share": found.losses.share,
        "reader": str(found.reader.head),
        "attention": {
            **_match(found.match.match),
            "candidate_mass": found.match.candidate_mass,
            "uniform_kl": found.candidate_kl,
            "share": found.posterior_share,
            "follows": found.follows,
            "calibration": _calibration(found.match.match),
        },
        "heads": [
            {"head": str(one.head), "candidate_mass": one.candidate_mass, **_match(one.match)} for one in found.matches
        ],
        "built_for": found.episodes.n_examples,
        "curve": [
            {
                "examples": point.examples,
                "model": point.model,
                "bma": point.bma,
                "bma_seen": point.bma_seen,
                "uniform": point.uniform,
                "kl": point.kl,
            }
            for point in found.curve
        ],
    }


def _match(match: AttentionMatch) -> dict[str, Any]:
    return {
        "total_variation": match.total_variation,
        "kl": match.kl,
        "parent_loss": match.parent_loss,
        "bma_parent_loss": match.bma_parent_loss,
        "uniform_parent_loss": match.uniform_parent_loss,
    }


def _calibration(match: AttentionMatch) -> dict[str, Any]:
    calibration, counts = match.calibration, match.calibration.count.tolist()

    def present(values: Float[Tensor, " bin"]) -> list[float | None]:
        return [value if count else None for value, count in zip(values.tolist(), counts, strict=True)]

    return {
        "attention": present(calibration.attention),
        "frequency": present(calibration.frequency),
        "count": counts,
        "error": calibration.error,
    }


def _parameters(kernel: KernelEvidence) -> dict[str, Any]:
    return {
        "kind": kernel.kind,
        "exact": kernel.exact,
        "column": _errors(kernel.column),
        "row": _errors(kernel.row),
        "scales": list(kernel.scales),
        "scale": kernel.scale,
        "alignments": list(kernel.alignments),
        "alignment": kernel.alignment,
        "block_diagonality": kernel.block_diagonality,
        "block_diagonality_by_chance": 1 / len(own_blocks(kernel.blocks)),
        "readout": kernel.readout,
        "readout_uniform": kernel.readout_uniform,
    }


def _errors(errors: KernelErrors | None) -> dict[str, Any] | None:
    if errors is None:
        return None
    return {
        "per_example": list(errors.per_example),
        "mean": errors.mean,
        "averaged": errors.averaged,
        "uniform": errors.uniform,
        "shuffled": errors.shuffled,
    }


def _mechanism(found: Verification) -> dict[str, Any]:
    agreed = found.agreement
    return {
        "copyers": [_copyer(copyer) for copyer in _shown(found.copyers, found.opened.model)],
        "ablations": [_ablation(one) for one in found.ablations],
        "agreement": None
        if agreed is None
        else {
            "explained": agreed.explained,
            "by_kind": agreed.by_kind,
            "correlation": agreed.correlation,
            "largest_error": agreed.largest_error,
        },
    }


def _shown(copyers: Sequence[CopyerHead], model: object) -> list[CopyerHead]:
    """Return the heads worth a row: all copyers of a CausalTransformer, those of an ordinary one that copy."""
    return [copyer for copyer in copyers if copyer.label or isinstance(model, CausalTransformer)]


def _copyer(copyer: CopyerHead) -> dict[str, Any]:
    return {
        "head": str(copyer.head),
        "label": copyer.label,
        "example": None if copyer.example is None else copyer.example + 1,
        "copy_mass": copyer.copy_mass.tolist(),
        "next_mass": copyer.next_mass.tolist(),
        "entropy": copyer.entropy,
    }


def _ablation(one: LeaveOut) -> dict[str, Any]:
    kind, place = kind_of(one), one.what.partition(" ")[2]
    what = f"example {int(place) + 1}" if kind == "example" else one.what  # the report counts examples from 1
    return {"kind": kind, "what": what, "predicted": one.predicted, "measured": one.measured}
