"""Training models on tasks. Importing this package does not import torch."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from imir_lens.training.loop import TrainingResult, train
    from imir_lens.training.recipes import DEMO, TRAINED, Recipe, default_config, default_recipe

__all__ = ["DEMO", "TRAINED", "Recipe", "TrainingResult", "default_config", "default_recipe", "train"]

_HOMES = {"TrainingResult": "loop", "train": "loop"}


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES.get(name, 'recipes')}"), name)
