"""Negative controls: models that must not be called Bayesian averaging, beside one that must."""

from functools import partial
from typing import Any

import torch

from benchmarks.causal.keeping import kept_row
from benchmarks.partial import PartialRows
from imir_lens.causal.files import config_for
from imir_lens.causal.training import train_causal
from imir_lens.causal.transformer import CausalTransformer, initialise
from imir_lens.causal.verification import run_verification
from imir_lens.tasks.causal_tree import CausalTree
from imir_lens.tasks.fixed_graph import FixedGraph

PART = "controls"
OPTIONS: dict[str, Any] = {"steps": 1024, "batch": 128}


def rows(*, small: bool, seed: int, kept: PartialRows) -> list[dict[str, Any]]:
    """Verify each with the same task."""
    sizes = {"d": 3, "positions": 4, "examples": 2} if small else {"d": 5, "positions": 10, "examples": 5}
    options = {"steps": 50, "batch": 32} if small else OPTIONS
    found = []
    for one in range(seed, seed + (1 if small else 2)):
        for name in ("trained", "untrained", "trained on fixed_graph", "trained on shuffled examples"):
            key = {"model": name, **sizes, **options, "seed": one}
            found.append(kept_row(kept, PART, key, partial(measure, name, sizes, options, one, 64 if small else 512)))
    return found


def control(name: str, sizes: dict[str, int], options: dict[str, Any], seed: int) -> CausalTransformer:
    """Return the model of a name."""
    task = CausalTree(**sizes)
    if name == "untrained":
        model = CausalTransformer(config_for(task))
        initialise(model, torch.Generator().manual_seed(seed))
        return model.eval()
    taught = {
        "trained": task,
        "trained on fixed_graph": FixedGraph(**sizes),
        "trained on shuffled examples": CausalTree(**sizes, shuffle=True),
    }[name]
    return train_causal(taught, seed=seed, **options).model


def measure(name: str, sizes: dict[str, int], options: dict[str, Any], seed: int, contexts: int) -> dict[str, Any]:
    """Return what verification says."""
    found = run_verification(
        control(name, sizes, options, seed), CausalTree(**sizes), contexts=contexts, seed=seed, test_examples=()
    )
    match, kernel = found.match.match, found.kernel
    return {
        "verdict": found.verdict.mechanism,
        "level": found.verdict.evidence_level,
        "L_pa": match.parent_loss,
        "L_pa, BMA": match.bma_parent_loss,
        "L_pa, uniform": match.uniform_parent_loss,
        "share of the posterior": found.posterior_share,
        "loss share": found.losses.share,
        "follows": found.follows,
        "column": None if kernel is None or kernel.column is None else kernel.column.mean,
        "block-diagonality": None if kernel is None else kernel.block_diagonality,
        "explained": None if found.agreement is None else found.agreement.explained,
        "text": found.verdict.text,
    }
