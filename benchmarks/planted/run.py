"""Run every detector on every planted model."""

import time
from collections.abc import Callable, Sequence
from typing import Any

import torch
from rich.console import Console
from rich.progress import track

from benchmarks.partial import PartialRows
from benchmarks.planted import published_peers, transformer_lens_eap
from benchmarks.planted.acdc import acdc
from benchmarks.planted.attribution_patching import eap, eap_ig
from benchmarks.planted.design import full_design, size_sweep, small_design
from benchmarks.planted.finding import Case, Finding
from benchmarks.planted.models import Spec, build
from benchmarks.planted.ours import magnitude, ours, random_guess
from benchmarks.planted.patching import EdgePatcher
from benchmarks.planted.scores import coordinate_scores, graph_scores
from imir_lens.evaluation import bayes_score, score_logits

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
    **published_peers.PUBLISHED,
}


def run(*, small: bool = False, seed: int = 0) -> list[dict[str, Any]]:
    """Return one row for each model and detector; for a model that is left out, one row that says so.

    The full run keeps its rows as they come: started again after an interruption it goes on.
    """
    if small:
        return measure(small_design(seed))
    kept = PartialRows.of("planted")
    return measure(full_design(seed), kept=kept) + measure(size_sweep(seed), part="sizes", kept=kept)


def measure(specs: Sequence[Spec], *, part: str = "design", kept: PartialRows | None = None) -> list[dict[str, Any]]:
    """Build each model, run the detectors on it, and score them.

    Args:
        specs: the models.
        part: what to call them in the rows.
        kept: rows measured before, which are not measured again.
    """
    kept = kept or PartialRows()
    detectors = _present()
    rows: list[dict[str, Any]] = []
    warm = False
    for spec in track(specs, f"planted models, {part}", console=Console(stderr=True), disable=kept.path is None):
        keys = {name: {"part": part, **spec.as_dict(), "detector": name} for name in (None, *detectors)}
        about = kept.get(keys[None])
        missing = [name for name in detectors if kept.get(keys[name]) is None]
        if about is None or (missing and not about["excluded"]):
            case = Case.of(build(spec))
            patcher = EdgePatcher(case.lens.weights, case.planted.graph, case.contexts)
            about = kept.add(keys[None], {**keys[None], **_about(case, patcher)})
            if not warm:  # what is imported or set up on first use is not what a detector costs
                for name in missing:
                    detectors[name](case)
                warm = True
            if not about["excluded"]:
                for name in missing:
                    kept.add(keys[name], {**about, "detector": name, **_scored(detectors[name], case, patcher)})
        rows += [about] if about["excluded"] else [kept.get(keys[name]) or {} for name in detectors]
    return rows


def _present() -> dict[str, Callable[[Case], Finding]]:
    absent = set() if transformer_lens_eap.available() else {"EAP (TransformerLens)"}
    # Our ACDC cuts the same edges as the published one, in about the same time: one is enough.
    absent |= {"ACDC (our implementation)"} if published_peers.available() else set(published_peers.PUBLISHED)
    return {name: detector for name, detector in DETECTORS.items() if name not in absent}


def _about(case: Case, patcher: EdgePatcher) -> dict[str, Any]:
    score = score_logits(patcher.clean_logits, case.contexts.clean)
    return {
        "vocab": case.planted.task.d_vocab,
        "positions": case.planted.task.n_positions,
        "edges": len(case.planted.graph.edges),
        "contexts": len(case.contexts.clean),
        "accuracy": score.accuracy,
        "loss": score.loss,
        "bayes_loss": bayes_score(case.planted.task, case.contexts.clean).loss,
        "excluded": score.accuracy < LEAST_ACCURACY,
    }


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
