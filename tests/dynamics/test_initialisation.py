"""Which circuit wins: planted starts, symmetric starts, no start, and the rule itself."""

import pytest
import torch

from imir_lens.dynamics.initialisation import (
    Outcomes,
    StartTraining,
    axis,
    judge_values,
    slice_starts,
    train_starts,
    winners,
)
from imir_lens.dynamics.rival_circuits import RivalCircuits
from imir_lens.errors import CoordinateError, OptionError
from imir_lens.models.constructions import induction_circuit
from tests.dynamics.surrogate_cases import small_recall


@pytest.fixture(scope="module")
def rivals() -> RivalCircuits:
    return RivalCircuits(small_recall())


def circuit(rivals: RivalCircuits, *names: str, size: float = 1.0) -> torch.Tensor:
    return rivals.start(**dict.fromkeys(names, size))


# What a circuit's own parts are, written out by hand.
OWN = {
    "A": ("alpha_0", "beta_01", "gamma_1"),
    "B": ("alpha_0", "beta_02", "gamma_2"),
    "C": ("alpha_1", "beta_12", "gamma_2"),
}


def test_three_layers_have_three_circuits_which_share_two_parts(rivals: RivalCircuits) -> None:
    assert {name: tuple(list(rivals.parts)[i] for i in own) for name, own in zip("ABC", rivals.own, strict=True)} == OWN
    assert str(rivals.parts["beta_12"]) == "L2H0/score/q:res/k:L1H0/same"
    assert str(rivals.parts["gamma_2"]) == "readout/via:L2H0/same"
    assert len(RivalCircuits(small_recall(), n_layers=4)) == 6


def test_an_edge_is_the_beta_of_one_circuit_among_what_is_trained(rivals: RivalCircuits) -> None:
    for place, name in enumerate("ABC"):
        (found,) = (rivals.edges[place] & rivals.chosen).nonzero().flatten().tolist()
        assert rivals.space.id(found) == rivals.parts[OWN[name][1]]
    through = {str(rivals.space.id(place)) for place in rivals.edges[2].nonzero().flatten().tolist()}
    assert "L2H0/score/q:res/k:L0H0.L1H0/same" in through
    assert not any(name.startswith("L2H0/score/q:res/k:L0H0/") for name in through)


def test_a_finished_circuit_is_judged_to_be_itself_and_two_to_be_shared(rivals: RivalCircuits) -> None:
    """Coordinates of constructions, not of any training."""
    rows = []
    for low, high in ((0, 1), (0, 2), (1, 2)):
        values = torch.zeros(rivals.space.size)
        for name, value in induction_circuit(heads={"alpha": f"L{low}H0", "beta": f"L{high}H0"}).items():
            values[rivals.space.place(name)] = value
        rows.append(values)
    both = rows[0].clone()
    both[rows[1] != 0] = rows[1][rows[1] != 0]
    found = judge_values(rivals, torch.stack([*rows, both, torch.zeros_like(both)]))
    assert [found.names[place] for place in found.winner] == ["A", "B", "C", "shared", "none"]


def test_a_plane_is_drawn_as_a_map_of_its_winners(rivals: RivalCircuits) -> None:
    names = ("A", "B", "C", "shared", "none")
    winner, costs = torch.tensor([0, 1, 2, 3, 4, 0]), torch.rand(6, 3)
    found = Outcomes(names, torch.zeros(6, 7), torch.zeros(6), costs, torch.zeros(6, dtype=torch.long), winner)
    figure = found.map([0.0, 1.0, 2.0], [0.0, 1.0], x_title="beta of A", y_title="beta of B", caption="Seed 0.")
    assert figure.caption == "6 starts. Seed 0." and "A 33.3 %" in figure.drawing
    assert "beta of A" in figure.svg() and figure._repr_html_()
    with pytest.raises(OptionError, match=r"an outcome for each of 2 × 2 cells, found 6"):
        found.map([0.0, 1.0], [0.0, 1.0], x_title="", y_title="")


@pytest.mark.parametrize("name", ["A", "B", "C"])
def test_a_start_on_one_circuit_alone_makes_it_win(rivals: RivalCircuits, name: str) -> None:
    against = dict.fromkeys(rivals.parts, -0.5)
    starts = rivals.start(**(against | dict.fromkeys(OWN[name], 1.5))).unsqueeze(0)
    found = train_starts(rivals, starts)
    assert found.names[int(found.winner)] == name
    assert float(found.losses) < 0.3


def test_without_a_step_nothing_has_won(rivals: RivalCircuits) -> None:
    """The negative control: the same rule on three starts at zero before training, and on the winners' starts too."""
    starts = torch.stack([circuit(rivals), *(circuit(rivals, *OWN[name], size=0.3) for name in "ABC")])
    found = judge_values(rivals, rivals.initial(starts))
    assert [found.names[place] for place in found.winner] == ["none"] * 4


def test_from_zero_no_circuit_wins_alone(rivals: RivalCircuits) -> None:
    found = train_starts(rivals, torch.zeros(2, len(rivals.parts)), training=StartTraining(learning_rate=1.0, steps=60))
    assert not bool(found.exclusive.any())


def test_a_start_that_treats_two_circuits_alike_lies_between_those_that_favour_one(rivals: RivalCircuits) -> None:
    """A and B start with the same numbers; C, held back by its alpha, shares a head with B: they are not the same."""
    alike = {"alpha_0": 1.0, "beta_01": 0.5, "beta_02": 0.5, "gamma_1": 0.5, "gamma_2": 0.5, "alpha_1": -1.5}
    tilts = [{}, {"beta_01": 1.5}, {"beta_02": 1.5}]
    starts = torch.stack([rivals.start(**(alike | tilt)) for tilt in tilts])
    costs = train_starts(rivals, starts, training=StartTraining(done=0.3)).costs
    even, to_a, to_b = (costs[:, 0] - costs[:, 1]).tolist()
    assert to_b < even < to_a
    assert to_b < -0.2
    assert to_a > 0.2
    assert abs(even) < 0.25


def test_a_run_depends_on_its_start_and_seed_alone(rivals: RivalCircuits) -> None:
    starts = rivals.random_starts(4, torch.Generator().manual_seed(3), low=-2.0, high=2.0)
    quick = StartTraining(steps=40, check_every=20)
    together = train_starts(rivals, starts, training=quick)
    alone = train_starts(rivals, starts[2:3], training=quick)
    other = train_starts(rivals, starts[2:3], training=quick, seed=1)
    torch.testing.assert_close(alone.values[0], together.values[2], atol=1e-4, rtol=1e-4)
    assert not torch.allclose(alone.values, other.values, atol=1e-3)


def test_the_rule_tells_winner_shared_and_none() -> None:
    costs = torch.tensor([[0.9, 0.1, 0.0], [0.6, 0.0, 0.6], [0.2, 0.3, 0.1], [0.9, 0.0, 0.0]])
    losses = torch.tensor([0.1, 0.1, 0.1, 1.9])
    assert winners(losses, costs, 2.7).tolist() == [0, 3, 3, 4]


def test_a_plane_has_its_rows_from_below_and_keeps_the_rest(rivals: RivalCircuits) -> None:
    x, y = axis(-1.0, 1.0, 4), [3.0, 5.0]
    assert x == pytest.approx([-0.75, -0.25, 0.25, 0.75])
    starts = slice_starts(rivals.start(gamma_2=0.5), (rivals.column("alpha_0"), rivals.column("beta_02")), x, y)
    assert starts[:, rivals.column("alpha_0")].tolist() == pytest.approx(x + x)
    assert starts[:, rivals.column("beta_02")].tolist() == [3.0] * 4 + [5.0] * 4
    assert bool((starts[:, rivals.column("gamma_2")] == 0.5).all())


def test_what_cannot_be_is_refused_in_one_line(rivals: RivalCircuits) -> None:
    with pytest.raises(OptionError, match="n_layers=1"):
        RivalCircuits(small_recall(), n_layers=1)
    with pytest.raises(CoordinateError, match="unknown part 'beta_3'"):
        rivals.start(beta_3=1.0)
    with pytest.raises(CoordinateError, match="expected starts"):
        train_starts(rivals, torch.zeros(2, 3))
    with pytest.raises(OptionError, match="seed"):
        train_starts(rivals, torch.zeros(1, 7), seed=-1)
    for options in ({"steps": 0}, {"learning_rate": 0.0}, {"done": 0.7}):
        with pytest.raises(OptionError):
            StartTraining(**options)
