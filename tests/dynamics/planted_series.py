"""Checkpoints whose coordinates are planted: what emerges when is known."""

from collections.abc import Callable, Mapping
from pathlib import Path

import torch
from hand_built import RECALL

from imir_lens.checkpoints import save_checkpoint
from imir_lens.models.config import TransformerConfig
from imir_lens.models.constructions import induction_circuit, plant
from imir_lens.models.transformer import ImirTransformer
from imir_lens.tasks import make_task

TASK = make_task("recall", **RECALL)
STEPS = tuple(range(0, 90, 10))
EMERGED = {"gamma": 20, "alpha": 40, "beta": 60}
ROLE_OF = {"offset+1": "alpha", "k:L0H": "beta", "readout": "gamma"}
Circuit = dict[str, float]


def role_of(unit: str) -> str:
    return next((role for part, role in ROLE_OF.items() if part in unit), "auxiliary")


def grown(step: int, *, emerged: Mapping[str, int] = EMERGED, **options) -> Circuit:
    """The induction head with hardly anything of a role before its step, half of it there and all of it later."""
    out = {}
    for unit, value in induction_circuit(**options).items():
        when = emerged.get(role_of(unit), 0)
        out[unit] = value * (0.01 if step < when else 0.5 if step == when else 1.0)
    return out


def write_series(folder: Path, circuit: Callable[[int], Circuit], *, n_heads: int = 1, steps=STEPS) -> Path:
    """Write a checkpoint for each step."""
    folder.mkdir(parents=True, exist_ok=True)
    for step in steps:
        generator = torch.Generator().manual_seed(0)
        model = plant(TASK, circuit(step), n_layers=2, n_heads=n_heads, generator=generator)
        save_checkpoint(folder / f"step_{step:05d}.pt", model.state_dict(), model.cfg, extra={"step": step})
    return folder


def write_random(folder: Path, *, steps=STEPS, size: float = 0.02) -> Path:
    """Write checkpoints of unrelated random weights."""
    folder.mkdir(parents=True, exist_ok=True)
    shape = {"n_layers": 2, "n_heads": 1, "d_model": 32, "d_head": 16, "n_ctx": TASK.n_positions, "attn_only": True}
    for step in steps:
        config = {**shape, "d_vocab": TASK.d_vocab, "normalization_type": None, "initializer_range": size}
        model = ImirTransformer(TransformerConfig.from_dict(config), generator=torch.Generator().manual_seed(step))
        save_checkpoint(folder / f"step_{step:05d}.pt", model.state_dict(), model.cfg, extra={"step": step})
    return folder
