"""Integrated gradients: complete, equal to what finite differences give, and confined to the chosen coordinates."""

import pytest
import torch
from toy_task import relations, toy_batch

from imir_lens.attribution import attribute
from imir_lens.coordinates import Coordinates, CoordinateSpace
from imir_lens.evaluation import cross_entropy
from imir_lens.models.constructions import induction_circuit
from imir_lens.paths import PathTable
from imir_lens.surrogate import Surrogate
from imir_lens.tasks import make_task

P = 5


@pytest.fixture
def coordinates() -> Coordinates:
    space = CoordinateSpace(PathTable.full(2, 1), relations(), P)
    values = torch.randn(space.size, dtype=torch.float64)
    return Coordinates(space, torch.where(torch.rand(space.size) < 0.1, values, 0.0))


def loss(surrogate: Surrogate, values: torch.Tensor, batch) -> float:
    return float(cross_entropy(surrogate.logits(values, batch), batch))


def test_attributions_add_up_to_the_fall_of_the_loss(coordinates):
    surrogate, batch = Surrogate(coordinates.space), toy_batch(16, length=P)
    fall = loss(surrogate, 0 * coordinates.values, batch) - loss(surrogate, coordinates.values, batch)
    total = float(attribute(surrogate, coordinates.values, batch, points=50).sum())
    assert abs(fall) > 0.1 and total == pytest.approx(fall, rel=0.01)


def test_attributions_of_a_solved_task_add_up_and_are_all_positive_but_for_gates():
    task = make_task("recall", vocab=16, pairs=2, length=8)
    space = CoordinateSpace(PathTable.full(2, 1), task.relations, task.n_positions)
    circuit = induction_circuit(alpha=6.0, beta=12.0, gamma=8.0, not_itself=-6.0)
    values = torch.zeros(space.size)
    for name, value in circuit.items():
        values[space.place(name)] = value
    surrogate, batch = Surrogate(space), task.sample(64, torch.Generator().manual_seed(0))
    nothing, whole = loss(surrogate, 0 * values, batch), loss(surrogate, values, batch)
    assert nothing > 2 and whole < 0.05
    found = Coordinates(space, attribute(surrogate, values, batch, points=50))
    assert float(found.values.sum()) == pytest.approx(nothing - whole, rel=0.03)
    assert all(found[name] > 0.1 for name in circuit if circuit[name] > 0)
    assert int((found.values != 0).sum()) == 4
    # Five points rank alike.
    few = attribute(surrogate, values, batch)
    assert few.abs().argsort(descending=True)[:4].tolist() == found.values.abs().argsort(descending=True)[:4].tolist()


def test_attributions_equal_finite_differences(coordinates):
    surrogate, batch = Surrogate(coordinates.space), toy_batch(8, length=P)
    values, points = coordinates.values, 4
    found = attribute(surrogate, values, batch, points=points)
    places = values.nonzero().squeeze(1).tolist()
    assert len(places) > 8
    for place in places:
        expected = 0.0
        for k in range(points):
            low, high = (k / points) ** 2, ((k + 1) / points) ** 2  # s² grows by 2s ds: exactly high − low
            scaled, step = values * ((k + 0.5) / points) ** 2, torch.zeros_like(values)
            step[place] = 1e-5
            slope = (loss(surrogate, scaled + step, batch) - loss(surrogate, scaled - step, batch)) / 2e-5
            expected -= float(values[place]) * slope * (high - low)
        assert float(found[place]) == pytest.approx(expected, abs=1e-8)
    assert float(found.abs().max()) > 0.01


def test_only_the_chosen_take_part(coordinates):
    surrogate, batch = Surrogate(coordinates.space), toy_batch(8, length=P)
    places = coordinates.values.nonzero().squeeze(1)
    chosen = torch.zeros(coordinates.space.size, dtype=torch.bool)
    chosen[places[::2]] = True
    found = attribute(surrogate, coordinates.values, batch, chosen=chosen)
    alone = attribute(surrogate, torch.where(chosen, coordinates.values, 0.0), batch)
    assert torch.equal(found, alone)
    assert float(found[~chosen].abs().max()) == 0 < float(found.abs().max())
    together = attribute(surrogate, coordinates.values, batch)
    assert not torch.allclose(together[chosen], found[chosen])
