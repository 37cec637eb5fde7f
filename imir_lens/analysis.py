"""The whole line for one model and one task: project, detect, verify, judge."""

from collections.abc import Callable
from dataclasses import dataclass

import torch

from imir_lens.detection import Circuit, bootstrap_jaccard, detect, path_stay
from imir_lens.errors import CheckpointError, OptionError
from imir_lens.evaluation import Score, bayes_score, chance_score
from imir_lens.evidence import Evidence, gather_evidence
from imir_lens.explained import Capture, Explained, capture, explain
from imir_lens.heads import HeadSummary, summarise_heads
from imir_lens.kinds import KindRemoval, remove_by_kind
from imir_lens.lens_model import LensModel
from imir_lens.linear_stream import measure_stream
from imir_lens.projector import ImirProjector
from imir_lens.redundancy import Sufficiency, separate_circuits, verify_separate
from imir_lens.tasks.base import Batch, Task
from imir_lens.verdict import Verdict, does_task, judge

SEARCH_CONTEXTS = 256
BOOTSTRAPS = 10
_KIND_CONTEXTS = 128
_MOST_CONTEXTS = 1_000_000
# Paths whose coordinates are float32 rounding are not worth a note when they are cut.
_ROUNDING = 1e-4


@dataclass(frozen=True)
class Analysis:
    """Everything an analysis found; the report is made of it.

    Attributes:
        model: the model.
        task: the task.
        seed: contexts: the search uses generator seed `seed`, the test `seed + 1`, the bootstrap `seed + 2`.
        projector: fitted to the model.
        circuit: detected on the search contexts.
        evidence: ablations on the test contexts.
        separate: circuits without a common unit that each do the task alone, with the test of each; empty below two.
        kinds: where no circuit was found in a model that does the task: what removing all coordinates of a kind costs.
        explained: variance explained on the test contexts.
        captured: patterns, scores and logits of the model on the first 128 test contexts.
        heads: one row a head.
        bayes, chance: scores of the optimal and of the context-free predictor on the test contexts.
        stability: mean Jaccard index over `bootstraps` bootstrap samples of the search contexts (None: not measured).
        verdict: the mechanism and its evidence level.
        search_batch, test_batch: the contexts.
    """

    model: LensModel
    task: Task
    seed: int
    projector: ImirProjector
    circuit: Circuit
    evidence: Evidence
    separate: tuple[Sufficiency, ...]
    kinds: tuple[KindRemoval, ...]
    explained: Explained
    captured: Capture
    heads: list[HeadSummary]
    bayes: Score
    chance: Score
    stability: float | None
    bootstraps: int
    verdict: Verdict
    search_batch: Batch
    test_batch: Batch


def run_analysis(
    model: LensModel,
    task: Task,
    *,
    contexts: int = 512,
    budget: float = 0.01,
    seed: int = 0,
    bootstraps: int = BOOTSTRAPS,
    progress: Callable[[str], None] = lambda step: None,
) -> Analysis:
    """Analyse a model on a task.

    Args:
        model: opened with `open_model`.
        task: the task whose mechanism is asked for.
        contexts: number of test contexts (the search uses at most 256 others).
        budget: share of the loss gap the circuit may give up.
        seed: of the contexts.
        bootstraps: number of bootstrap searches for the stability figure.
        progress: called with the name of each step as it starts.

    Raises:
        OptionError: when contexts, budget or bootstraps are out of range.
        CoordinateError: when the task's vocabulary or length does not fit the model.
        UnsupportedModelError: when edits at the model's hooks have no effect.
    """
    check_options(contexts=contexts, budget=budget, bootstraps=bootstraps)
    search_batch = _sample(task, min(contexts, SEARCH_CONTEXTS), seed, model.device)
    progress("project the weights")
    projector = ImirProjector.for_task(task)
    projector.fit(model.weights, measure_stream(model, search_batch))
    coordinates = projector.coordinates_

    test_batch = _sample(task, contexts, seed + 1, model.device)
    model.check_hook_effect(search_batch.tokens[:4])

    progress("search for the circuit")
    heads = projector.space_.paths.heads
    seen = capture(model, heads, search_batch[:128])
    if not bool(seen.logits.isfinite().all()):
        raise CheckpointError(
            f"{model.info['source']}: its logits on the task's contexts overflow, though its weights are finite (the "
            f"largest in W_E is {float(model.weights.W_E.abs().max()):.3g}): there is nothing to analyse"
        )
    stay = path_stay(seen.patterns, search_batch[:128])
    circuit = detect(coordinates, search_batch, budget=budget, stay=stay)

    progress("ablate it in the model")
    evidence = gather_evidence(model, circuit, test_batch)
    apart = separate_circuits(circuit, search_batch, stay=stay)
    separate = verify_separate(model, apart, test_batch) if len(apart) > 1 else ()
    captured = capture(model, heads, test_batch[:128])
    explained = explain(captured, coordinates, test_batch[:128])

    progress("search again on resampled contexts")
    generator = torch.Generator().manual_seed(seed + 2)
    stability = None
    if bootstraps and circuit.units:
        stability = bootstrap_jaccard(circuit, search_batch, n=bootstraps, generator=generator, stay=stay)

    bayes, chance = bayes_score(task, test_batch), chance_score(task, test_batch)
    kinds: tuple[KindRemoval, ...] = ()
    if not circuit.units and does_task(evidence.model, bayes, chance):
        kinds = remove_by_kind(model, coordinates, test_batch[:_KIND_CONTEXTS], seed=seed)
    notes = []
    if projector.cut_ > _ROUNDING:
        notes.append(
            f"{projector.n_cut_} of {projector.n_cut_ + len(projector.space_.paths)} paths were cut; "
            f"no coordinate that reads through them exceeds {projector.cut_:.3g}."
        )
    if not projector.looked_at_all_:
        notes.append("The model has too many paths to look at: those of two heads were grown from the best of one.")
    if separate:
        notes.append(
            f"{len(separate)} circuits without a common unit each do the task alone in the surrogate; what is called "
            "the circuit here is all of them together."
        )
    verdict = judge(
        circuit,
        evidence,
        task=task.name,
        contexts=len(search_batch),
        bayes=bayes,
        chance=chance,
        stability=stability,
        kinds=kinds,
        notes=notes,
    )
    return Analysis(
        model=model,
        task=task,
        seed=seed,
        projector=projector,
        circuit=circuit,
        evidence=evidence,
        separate=separate,
        kinds=kinds,
        explained=explained,
        captured=captured,
        heads=summarise_heads(coordinates, circuit, explained, captured.patterns, test_batch[:128]),
        bayes=bayes,
        chance=chance,
        stability=stability,
        bootstraps=bootstraps,
        verdict=verdict,
        search_batch=search_batch,
        test_batch=test_batch,
    )


def check_options(*, contexts: int, budget: float, bootstraps: int) -> None:
    """Check options of `run_analysis`, without an analysis.

    Raises:
        OptionError: when one is out of range.
    """
    if not 1 <= contexts <= _MOST_CONTEXTS:
        raise OptionError(f"contexts must lie between 1 and {_MOST_CONTEXTS}, got {contexts}")
    if not 0 < budget < 1:
        raise OptionError(f"budget must lie between 0 and 1, got {budget}")
    if bootstraps < 0:
        raise OptionError(f"bootstraps must not be negative, got {bootstraps}")


def _sample(task: Task, contexts: int, seed: int, device: torch.device) -> Batch:
    # Drawn on the CPU whatever the device, so that a seed means the same contexts everywhere.
    return task.sample(contexts, torch.Generator().manual_seed(seed)).to(device)
