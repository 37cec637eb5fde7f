"""`verify`: from a checkpoint, or a live model, to the report of its verification."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from torch import nn

from imir_lens.causal.opening import open_for
from imir_lens.causal.verification import run_verification
from imir_lens.lens_model import LensModel
from imir_lens.report.verification_data import verification_data
from imir_lens.report.verification_document import VerificationReport
from imir_lens.tasks.episodes import CausalTask
from imir_lens.tasks.registry import causal_task


def verify(
    model: nn.Module | LensModel | str | Path,
    task: CausalTask | str = "causal_tree",
    *,
    knobs: Mapping[str, Any] | None = None,
    config: str | Path | None = None,
    overrides: Mapping[str, Any] | None = None,
    contexts: int = 512,
    seed: int = 0,
    test_examples: Sequence[int] | None = None,
    device: str | None = None,
    command: str | None = None,
    progress: Callable[[str], None] = lambda step: None,
) -> VerificationReport:
    """Find out whether a model infers a hidden causal graph by Bayesian averaging over parents.

    Args:
        model: a checkpoint path, a CausalTransformer, or an ordinary transformer on the flattened sequence: an
            ImirTransformer, a HookedTransformer (TransformerLens 3) or a TransformerBridge (4), with or without MLPs
            and norms.
        task: the task with the kernel that the model was trained on, or the name of one.
        knobs: knobs of a task given by name.
        config: for a path without a config: a JSON file.
        overrides: for a path: single config fields.
        contexts: number of test contexts.
        seed: of all contexts.
        test_examples: numbers of examples for L_pa over L'; see `run_verification`.
        device: where to run the model; a live one is moved there.
        command: what to print in the report as its origin (default: this call).
        progress: called with the name of each step.

    Returns:
        The report: `report.verdict`, `report.save(directory)`.

    Raises:
        ImirError: of the kind that names the fault; see `open_for`, `causal_task` and `run_verification`.
    """
    resolved = causal_task(task, **dict(knobs or {})) if isinstance(task, str) else task
    opened = open_for(model, resolved, config=config, overrides=overrides, device=device)
    found = run_verification(
        opened, resolved, contexts=contexts, seed=seed, test_examples=test_examples, progress=progress
    )
    settings = "".join(f", {name}={value!r}" for name, value in resolved.knobs.items())
    call = (
        f"imir_lens.verify({opened.info['source']!r}, causal_task({resolved.name!r}{settings}), "
        f"contexts={contexts}, seed={seed})"
    )
    return VerificationReport(verification_data(found, command=command or call))
