"""Ordinary transformers on the flattened sequence: which heads copy, and how close one comes to the posterior.

Two layers with absolute positions, with and without MLPs. Every example is predicted from those before it, not the
last one only: the first steps are then taken where there is least to compare. What is reported is on the last.
"""

from dataclasses import dataclass, field
from functools import partial
from typing import Any

import torch

from benchmarks.causal.keeping import kept_row
from benchmarks.partial import PartialRows
from imir_lens.causal.verification import Verification, run_verification
from imir_lens.models.config import TransformerConfig
from imir_lens.models.transformer import ImirTransformer
from imir_lens.tasks.causal_tree import CausalTree

PART = "ordinary"
TASK = CausalTree(d=5, positions=5, examples=2, concentration=0.1, gamma=0.05)


@dataclass(frozen=True)
class Recipe:
    """One ordinary transformer and its training.

    Attributes:
        model: config fields besides those that the task sets.
        steps: optimizer steps.
        learning_rate: of Adam, after 100 steps of warm-up; it falls to 0 over the last 30 percent.
        batch: episodes a step.
        positions: factor on the position embedding's initial weights: from small ones no head finds its place.
    """

    model: dict[str, Any] = field(default_factory=dict)
    steps: int = 8_000
    learning_rate: float = 3e-3
    batch: int = 64
    positions: float = 3.0


RECIPES = {
    "attention only": Recipe({"d_model": 64, "d_head": 16, "n_heads": 4, "attn_only": True}),
    "with MLPs": Recipe({"d_model": 64, "d_head": 16, "n_heads": 4, "d_mlp": 64}, steps=6_000),
    "with MLPs, 8 heads": Recipe({"d_model": 64, "d_head": 16, "n_heads": 8, "d_mlp": 64}, steps=10_000),
}
SMALL = Recipe({"d_model": 16, "d_head": 8, "n_heads": 2, "attn_only": True}, steps=20, batch=8)


def rows(*, small: bool, seed: int, kept: PartialRows) -> list[dict[str, Any]]:
    """Train each and verify it."""
    recipes = {"small": SMALL} if small else RECIPES
    return [
        kept_row(
            kept,
            PART,
            {"model": name, "steps": recipe.steps, "seed": one},
            partial(_trained, recipe, one, 64 if small else 1024),
        )
        for name, recipe in recipes.items()
        for one in range(seed, seed + 1)
    ]


def _trained(recipe: Recipe, seed: int, contexts: int) -> dict[str, Any]:
    return measure(train_ordinary(TASK, recipe, seed=seed), contexts=contexts)


def train_ordinary(task: CausalTree, recipe: Recipe, *, seed: int) -> ImirTransformer:
    """Train a transformer on flat episodes, every example being predicted from those before it."""
    sizes = {"n_layers": 2, "normalization_type": None, "n_ctx": task.n_positions, "d_vocab": task.d, **recipe.model}
    model = ImirTransformer(TransformerConfig(**sizes), generator=torch.Generator().manual_seed(seed))
    with torch.no_grad():
        model.pos_embed.W_pos.mul_(recipe.positions)
    optimizer = torch.optim.Adam(model.parameters(), lr=recipe.learning_rate)
    generator = torch.Generator().manual_seed(seed + 1)
    asked = torch.arange(1, task.n_positions) % task.positions != 0  # not the roots
    for step in range(recipe.steps):
        left = (recipe.steps - step) / (0.3 * recipe.steps)
        for group in optimizer.param_groups:
            group["lr"] = recipe.learning_rate * min(1, (step + 1) / 100) * min(1, left)
        tokens = task.sample_episodes(recipe.batch, generator).values.flatten(1)
        logits = model(tokens[:, :-1])[:, asked].flatten(0, 1)
        loss = torch.nn.functional.cross_entropy(logits, tokens[:, 1:][:, asked].flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return model.eval()


def measure(model: ImirTransformer, *, contexts: int, task: CausalTree = TASK) -> dict[str, Any]:
    """Return what verification says, and where each head looks."""
    found = run_verification(model, task, contexts=contexts)
    match, kernel = found.match.match, found.kernel
    return {
        "loss": found.losses.model,
        "loss, BMA": found.losses.bma,
        "loss, uniform": found.losses.uniform,
        "loss share": found.losses.share,
        "nearest head": str(found.reader.head),
        "L_pa": match.parent_loss,
        "L_pa, BMA": match.bma_parent_loss,
        "L_pa, uniform": match.uniform_parent_loss,
        "share of the posterior": found.posterior_share,
        "follows": found.follows,
        "column": None if kernel is None or kernel.column is None else kernel.column.mean,
        "column, zero kernel": None if kernel is None or kernel.column is None else kernel.column.uniform,
        "block-diagonality": None if kernel is None else kernel.block_diagonality,
        "explained": None if found.agreement is None else found.agreement.explained,
        "verdict": found.verdict.mechanism,
        "level": found.verdict.evidence_level,
        "text": found.verdict.text,
        "head list": _heads(found),
    }


def _heads(found: Verification) -> list[dict[str, Any]]:
    """One row for each head: what it copies, and how close it is to the posterior."""
    matches = {each.head: each for each in found.matches}
    return [
        {
            "head": str(copyer.head),
            "label": copyer.label or "",
            "same position": " ".join(f"{mass:.2f}" for mass in copyer.copy_mass.tolist()),
            "next position": " ".join(f"{mass:.2f}" for mass in copyer.next_mass.tolist()),
            "mass on candidates": matches[copyer.head].candidate_mass,
            "information share": matches[copyer.head].score,
            "KL": matches[copyer.head].match.kl,
        }
        for copyer in found.copyers
    ]
