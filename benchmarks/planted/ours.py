"""Detectors of coordinates: ours, and the ranking by magnitude it has to beat."""

import torch

from benchmarks.planted.finding import GRADIENT_PASS, Case, Finding
from benchmarks.planted.through import largest_through
from imir_lens.detection import detect
from imir_lens.projector import ImirProjector


def ours(case: Case) -> Finding:
    """`detect` on the projection, at default settings.

    An edge or head scores as the largest |attribution| of a coordinate through it; coordinates of the detected circuit
    come before all others. Evaluations are the surrogate's, which is smaller than the model.
    """
    projector = ImirProjector.for_task(case.planted.task).fit(case.lens.weights)
    circuit = detect(projector.coordinates_, case.contexts.clean)
    weight = circuit.attribution.abs()
    weight = torch.where(circuit.mask, 1 + weight + weight.max(), weight)
    edges, heads = largest_through(case.planted.graph, projector.space_, weight)
    evaluations = circuit.evaluations + GRADIENT_PASS * circuit.gradient_passes
    return Finding(edges, heads, frozenset(str(unit.id) for unit in circuit.units), evaluations)


def magnitude(case: Case) -> Finding:
    """The largest coordinates, as many as were planted: a number that no detector would be told."""
    projector = ImirProjector.for_task(case.planted.task).fit(case.lens.weights)
    largest = projector.coordinates_.largest(len(case.planted.truth.coordinates))
    edges, heads = largest_through(case.planted.graph, projector.space_, projector.coordinates_.values.abs())
    return Finding(edges, heads, frozenset(str(name) for name, _ in largest), 0)


def random_guess(case: Case) -> Finding:
    """As many coordinates as were planted, and scores for edges and heads, all drawn at random."""
    generator = torch.Generator().manual_seed(case.seed + 2)
    space = ImirProjector.for_task(case.planted.task).fit(case.lens.weights).space_
    active = space.active.nonzero().squeeze(1)
    count = len(case.planted.truth.coordinates)
    chosen = active[torch.randperm(len(active), generator=generator)[:count]]
    graph = case.planted.graph
    return Finding(
        torch.rand(len(graph.edges), generator=generator),
        torch.rand(len(graph.heads), generator=generator),
        frozenset(str(space.id(place)) for place in chosen.tolist()),
        0,
    )
