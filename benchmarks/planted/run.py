"""Run every detector on every planted model."""

import logging
import time
from collections.abc import Callable, Iterable
from typing import Any

import torch

from benchmarks.planted import transformer_lens_eap
from benchmarks.planted.acdc import acdc
from benchmarks.planted.attribution_patching import eap, eap_ig
from benchmarks.planted.design import full_design, size_sweep, small_design
from benchmarks.planted.finding import Case, Finding
from benchmarks.planted.models import Spec, build
from benchmarks.planted.ours import magnitude, ours, random_guess
from benchmarks.planted.patching import EdgePatcher
from benchmarks.planted.scores import coordinate_scores, graph_scores
from imir_lens.evaluation import bayes_score, score_logits

_log = logging.getLogger(__name__)

# A model that does not do its task has no circuit to be found. This is measured on the model, before any detection.
LEAST_ACCURACY = 0.9

DETECTORS: dict[str, Callable[[Case], Finding]] = {
    "ours": ours,
    "magnitude (true k)": magnitude,
    "random": random_guess,
    "EAP (TransformerLens)": transformer_lens_eap.transformer_lens_eap,
    "EAP (our implementation)": eap,
    "EAP-IG (our implementation)": eap_ig,
    "ACDC (our implementation)": acdc,
}


def run(*, small: bool = False, seed: int = 0) -> list[dict[str, Any]]:
    """Return one row for each model and detector; for a model that is left out, one row that says so."""
    if small:
        return measure(small_design(seed))
    return measure(full_design(seed)) + measure(size_sweep(seed), part="sizes")


def measure(specs: Iterable[Spec], *, part: str = "design") -> list[dict[str, Any]]:
    """Build each model, run the detectors on it, and score them."""
    detectors = dict(DETECTORS)
    if not transformer_lens_eap.available():
        del detectors["EAP (TransformerLens)"]
    rows: list[dict[str, Any]] = []
    for number, spec in enumerate(specs):
        case = Case.of(build(spec))
        patcher = EdgePatcher(case.lens.weights, case.planted.graph, case.contexts)
        score = score_logits(patcher.clean_logits, case.contexts.clean)
        about = {
            "part": part,
            **spec.as_dict(),
            "vocab": case.planted.task.d_vocab,
            "positions": case.planted.task.n_positions,
            "edges": len(case.planted.graph.edges),
            "contexts": len(case.contexts.clean),
            "accuracy": score.accuracy,
            "loss": score.loss,
            "bayes_loss": bayes_score(case.planted.task, case.contexts.clean).loss,
            "excluded": score.accuracy < LEAST_ACCURACY,
        }
        if about["excluded"]:
            rows.append({**about, "detector": None})
            continue
        if not rows:  # what is imported or set up on first use is not what a detector costs
            for detector in detectors.values():
                detector(case)
        rows += [
            {**about, "detector": name, **_scored(detector, case, patcher)} for name, detector in detectors.items()
        ]
        _log.info("%d %s", number, spec)
    return rows


def _scored(detector: Callable[[Case], Finding], case: Case, patcher: EdgePatcher) -> dict[str, Any]:
    torch.manual_seed(case.seed)
    started = time.process_time()  # of the one thread: the same as on a wall clock, but for what else the machine does
    finding = detector(case)
    seconds = time.process_time() - started
    truth = case.planted.truth
    known = finding.coordinates
    coordinates = (
        dict.fromkeys(("precision", "recall", "f1")) if known is None else coordinate_scores(known, truth.coordinates)
    )
    missed = None if known is None else sorted(truth.coordinates - known)
    wrong = None if known is None else sorted(known - truth.coordinates)
    listed = {"missed": missed, "wrong": wrong} if detector is ours else {}
    return {
        **coordinates,
        **graph_scores(finding, truth, patcher),
        "evaluations": finding.evaluations,
        "seconds": seconds,
        **listed,
    }
