"""Learning dynamics: how coordinates form, which circuit wins, and training on the coordinates themselves.

Importing this package does not import torch: the names below are loaded on first use.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from imir_lens.dynamics.batched_surrogate import BatchedSurrogate
    from imir_lens.dynamics.coordinate_training import ManyTrained, train_many
    from imir_lens.dynamics.emergence import emergence_step

__all__ = ["BatchedSurrogate", "ManyTrained", "emergence_step", "train_many"]

_HOMES = {
    "BatchedSurrogate": "batched_surrogate",
    "ManyTrained": "coordinate_training",
    "emergence_step": "emergence",
    "train_many": "coordinate_training",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
