"""Causal structure in context: copyer heads and a head that averages over parents (Bayesian model averaging, BMA).

Importing this package does not import torch: the names below are loaded on first use.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from imir_lens.causal.construction import construct
    from imir_lens.causal.files import load_causal, save_causal
    from imir_lens.causal.flat_construction import construct_flat
    from imir_lens.causal.training import train_causal
    from imir_lens.causal.transformer import CausalConfig, CausalTransformer
    from imir_lens.causal.verification import Verification, run_verification

__all__ = [
    "CausalConfig",
    "CausalTransformer",
    "Verification",
    "construct",
    "construct_flat",
    "load_causal",
    "run_verification",
    "save_causal",
    "train_causal",
]

_HOMES = {
    "CausalConfig": "transformer",
    "CausalTransformer": "transformer",
    "Verification": "verification",
    "construct": "construction",
    "construct_flat": "flat_construction",
    "load_causal": "files",
    "run_verification": "verification",
    "save_causal": "files",
    "train_causal": "training",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
