"""Learning dynamics: how coordinates form, which circuit wins, and training on the coordinates themselves.

Importing this package does not import torch: the names below are loaded on first use.
"""

from typing import TYPE_CHECKING

from imir_lens.lazy_names import lazy_names

if TYPE_CHECKING:
    from imir_lens.dynamics.batched_surrogate import BatchedSurrogate
    from imir_lens.dynamics.boundaries import Boundaries, boundaries_along
    from imir_lens.dynamics.competition import MechanismGradient, mechanism_gradient
    from imir_lens.dynamics.competition_training import CompetitionRuns, train_competition
    from imir_lens.dynamics.confinement import Confinement, measure_confinement
    from imir_lens.dynamics.coordinate_sets import lift, mask_of_ids, mask_of_roles, reference_roles
    from imir_lens.dynamics.coordinate_training import ManyTrained, train_many
    from imir_lens.dynamics.emergence import emergence_step
    from imir_lens.dynamics.exact_contexts import WeightedContexts, enumerate_contexts
    from imir_lens.dynamics.initialisation import Outcomes, StartTraining, axis, slice_starts, train_starts
    from imir_lens.dynamics.lifted_starts import train_lifted
    from imir_lens.dynamics.merged_gradient import MergedGradient
    from imir_lens.dynamics.pruning import Pruned, prune
    from imir_lens.dynamics.rival_circuits import RivalCircuits
    from imir_lens.dynamics.span import Span, invariant_span, named_span
    from imir_lens.dynamics.weight_training import train_weights
    from imir_lens.dynamics.winner_predictors import cross_validated

__all__ = [
    "BatchedSurrogate",
    "Boundaries",
    "CompetitionRuns",
    "Confinement",
    "ManyTrained",
    "MechanismGradient",
    "MergedGradient",
    "Outcomes",
    "Pruned",
    "RivalCircuits",
    "Span",
    "StartTraining",
    "WeightedContexts",
    "axis",
    "boundaries_along",
    "cross_validated",
    "emergence_step",
    "enumerate_contexts",
    "invariant_span",
    "lift",
    "mask_of_ids",
    "mask_of_roles",
    "measure_confinement",
    "mechanism_gradient",
    "named_span",
    "prune",
    "reference_roles",
    "slice_starts",
    "train_competition",
    "train_lifted",
    "train_many",
    "train_starts",
    "train_weights",
]

_HOMES = {
    "BatchedSurrogate": "batched_surrogate",
    "Boundaries": "boundaries",
    "CompetitionRuns": "competition_training",
    "Confinement": "confinement",
    "ManyTrained": "coordinate_training",
    "MechanismGradient": "competition",
    "MergedGradient": "merged_gradient",
    "Outcomes": "initialisation",
    "Pruned": "pruning",
    "RivalCircuits": "rival_circuits",
    "Span": "span",
    "StartTraining": "initialisation",
    "WeightedContexts": "exact_contexts",
    "axis": "initialisation",
    "boundaries_along": "boundaries",
    "cross_validated": "winner_predictors",
    "emergence_step": "emergence",
    "enumerate_contexts": "exact_contexts",
    "invariant_span": "span",
    "lift": "coordinate_sets",
    "mask_of_ids": "coordinate_sets",
    "mask_of_roles": "coordinate_sets",
    "measure_confinement": "confinement",
    "mechanism_gradient": "competition",
    "named_span": "span",
    "prune": "pruning",
    "reference_roles": "coordinate_sets",
    "slice_starts": "initialisation",
    "train_competition": "competition_training",
    "train_lifted": "lifted_starts",
    "train_many": "coordinate_training",
    "train_starts": "initialisation",
    "train_weights": "weight_training",
}

__getattr__ = lazy_names(__name__, _HOMES)
