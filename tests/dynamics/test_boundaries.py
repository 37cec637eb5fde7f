"""Bisection on functions whose boundary is known, and on two circuits that differ in one coordinate."""

import pytest
import torch

from imir_lens.dynamics.boundaries import bisect, boundaries_along
from imir_lens.dynamics.initialisation import StartTraining, train_starts
from imir_lens.dynamics.rival_circuits import RivalCircuits
from imir_lens.errors import OptionError
from tests.dynamics.surrogate_cases import small_recall


def test_bisection_finds_known_boundaries_of_all_rays_at_once() -> None:
    known = torch.tensor([0.1, 0.37, 0.5, 0.93])
    found = bisect(lambda at: at < known, 4, tolerance=1e-4)
    torch.testing.assert_close(found, known, atol=1e-4, rtol=0)


def test_of_several_crossings_it_returns_one() -> None:
    crossings = torch.tensor([0.2, 0.5, 0.8])
    found = bisect(lambda at: (at < 0.2) | ((at > 0.5) & (at < 0.8)), 1, tolerance=1e-4)
    assert float((crossings - found).abs().min()) < 1e-4


def test_bisection_takes_no_more_calls_than_it_needs() -> None:
    calls = []
    bisect(lambda at: bool(calls.append(1)) | (at < 0.3), 1, tolerance=1 / 64)
    assert len(calls) == 5


def test_a_boundary_is_where_training_changes_its_winner() -> None:
    rivals = RivalCircuits(small_recall())
    fixed = {"alpha_0": 1.0, "beta_02": 0.5, "gamma_1": 0.5, "gamma_2": 0.5, "alpha_1": -1.5, "beta_12": -1.0}
    near, far = rivals.start(beta_01=-2.0, **fixed), rivals.start(beta_01=2.0, **fixed)
    flat = rivals.start(**(fixed | {"beta_01": 2.0}))
    quick = StartTraining(steps=100, batch=16, check_every=50)
    found = boundaries_along(
        rivals, torch.stack([near, far]), torch.stack([far, flat]), seeds=[0], training=quick, tolerance=1 / 32
    )
    assert found.crossings.shape == (3, 1, 2)
    assert bool(found.positions[:, 1].isnan().all())  # a ray that goes nowhere has no boundary
    low, middle, high = found.crossings[:, 0, 0]
    assert 0 < low <= middle <= high < 1
    step = 0.05
    sides = torch.stack([near + (middle + move) * (far - near) for move in (-step, step)])
    costs = train_starts(rivals, sides, seed=0, training=quick).costs[:, found.circuits[0]]
    ends = train_starts(rivals, torch.stack([near, far]), seed=0, training=quick).costs[:, found.circuits[0]]
    assert (costs[0] - ends.mean()) * (costs[1] - ends.mean()) < 0
    assert float(found.lengths[0]) == pytest.approx(4.0)
    assert bool((found.widths[:, 0] <= 4).all())
    assert float(found.spreads[0]) >= 0


def test_bad_rays_and_tolerances_are_refused() -> None:
    rivals = RivalCircuits(small_recall())
    with pytest.raises(OptionError, match="tolerance"):
        bisect(lambda at: at < 0.5, 1, tolerance=0.0)
    with pytest.raises(OptionError, match="0 seeds"):
        boundaries_along(rivals, torch.zeros(1, 7), torch.ones(1, 7), seeds=[])
