"""What a detector is given and what it answers, the same for all."""

import math
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor

from benchmarks.planted.contexts import Contexts
from benchmarks.planted.families import FAMILIES
from benchmarks.planted.graph import EdgeGraph
from benchmarks.planted.models import Planted
from imir_lens.lens_model import LensModel, open_model

# A gradient pass costs about as much as two more forward passes.
GRADIENT_PASS = 3


@dataclass(frozen=True)
class Case:
    """A planted model with the contexts to work on; `seed` is for detectors that draw."""

    planted: Planted
    lens: LensModel
    contexts: Contexts
    seed: int

    @classmethod
    def of(cls, planted: Planted) -> "Case":
        """Open a model and draw its contexts, from the spec's own seed."""
        seed = planted.spec.seed
        count = FAMILIES[planted.spec.family].contexts
        drawn = Contexts.draw(planted.task, count, torch.Generator().manual_seed(seed + 1))
        return cls(planted, open_model(planted.model), drawn, seed)


@dataclass(frozen=True)
class Finding:
    """A detector's answer.

    Attributes:
        edges: a score for every edge of the graph, more for what belongs to the circuit.
        heads: a score for every head, likewise.
        coordinates: the ids it holds to be the circuit; None for a detector that knows no coordinates.
        evaluations: forward passes on all contexts; a gradient pass counts as three.
    """

    edges: Float[Tensor, " edge"]
    heads: Float[Tensor, " head"]
    coordinates: frozenset[str] | None
    evaluations: float


def from_edges(graph: EdgeGraph, edges: Float[Tensor, " edge"], evaluations: float) -> Finding:
    """Return the finding of a detector of edges: a head scores as the best of the edges that leave it."""
    best = dict.fromkeys(graph.heads, -math.inf)
    for edge, score in zip(graph.edges, edges.tolist(), strict=True):
        if edge.writer is not None:
            best[edge.writer] = max(best[edge.writer], score)
    return Finding(edges, torch.tensor(list(best.values())), None, evaluations)
