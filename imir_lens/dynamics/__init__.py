"""Learning dynamics: how coordinates form, which circuit wins, and training on the coordinates themselves.

Importing this package does not import torch: the names below are loaded on first use.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from imir_lens.dynamics.batched_surrogate import BatchedSurrogate
    from imir_lens.dynamics.competition import MechanismGradient, mechanism_gradient
    from imir_lens.dynamics.competition_training import CompetitionRuns, train_competition
    from imir_lens.dynamics.confinement import Confinement, measure_confinement
    from imir_lens.dynamics.coordinate_training import ManyTrained, train_many
    from imir_lens.dynamics.emergence import emergence_step
    from imir_lens.dynamics.exact_contexts import WeightedContexts, enumerate_contexts
    from imir_lens.dynamics.merged_gradient import MergedGradient
    from imir_lens.dynamics.span import Span, invariant_span, named_span

__all__ = [
    "BatchedSurrogate",
    "CompetitionRuns",
    "Confinement",
    "ManyTrained",
    "MechanismGradient",
    "MergedGradient",
    "Span",
    "WeightedContexts",
    "emergence_step",
    "enumerate_contexts",
    "invariant_span",
    "measure_confinement",
    "mechanism_gradient",
    "named_span",
    "train_competition",
    "train_many",
]

_HOMES = {
    "BatchedSurrogate": "batched_surrogate",
    "CompetitionRuns": "competition_training",
    "Confinement": "confinement",
    "ManyTrained": "coordinate_training",
    "MechanismGradient": "competition",
    "MergedGradient": "merged_gradient",
    "Span": "span",
    "WeightedContexts": "exact_contexts",
    "emergence_step": "emergence",
    "enumerate_contexts": "exact_contexts",
    "invariant_span": "span",
    "measure_confinement": "confinement",
    "mechanism_gradient": "competition",
    "named_span": "span",
    "train_competition": "competition_training",
    "train_many": "coordinate_training",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
