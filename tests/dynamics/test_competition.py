"""In-context against in-weights learning: what scales the pull on either, and how cells of tasks end."""

import math
from dataclasses import replace

import pytest
import torch

from imir_lens.coordinates import CoordinateSpace
from imir_lens.dynamics.competition import (
    ROLES,
    CompetingCoordinates,
    context_share,
    error_share,
    mechanism_gradient,
    settled_memory,
)
from imir_lens.dynamics.competition_training import OUTCOMES, CompetitionRuns, train_competition
from imir_lens.errors import OptionError, TaskError
from imir_lens.evaluation import cross_entropy
from imir_lens.paths import PathTable
from imir_lens.surrogate import Surrogate
from imir_lens.tasks.recall import Recall

TASK = Recall(vocab=41, rare=20, pairs=4, length=16, f_r=0.5)
POINT = {"alpha": 1.0, "beta": 1.0, "gamma": 1.0}
SHARES = (0.1, 0.5, 0.9)


def _pulls(role: str, *, delta: float, vocab: int = 129, **knobs) -> dict[tuple[float, float], float]:
    task = replace(TASK, vocab=vocab, rare=(vocab - 1) // 2, **knobs)
    found = {}
    for f_r in SHARES:
        for f_v in SHARES:
            generator = torch.Generator().manual_seed(0)
            here = replace(task, f_r=f_r, f_v=f_v)
            gradient = mechanism_gradient(here, {**POINT, "delta": delta}, contexts=2048, generator=generator)
            found[f_r, f_v] = gradient.mean[role]
    return found


def _discordant(pulls: dict[tuple[float, float], float]) -> int:
    """Pairs of cells that the predicted order and the measured one put in opposite orders."""
    cells = sorted(pulls, key=lambda cell: context_share(*cell))
    return sum(
        pulls[low] > pulls[high]
        for k, low in enumerate(cells)
        for high in cells[k + 1 :]
        if context_share(*high) > context_share(*low) + 1e-9
    )


@pytest.mark.parametrize("role", ["alpha", "beta", "gamma"])
def test_with_memory_formed_the_pull_on_the_induction_head_follows_the_share_memory_cannot_answer(role):
    pulls = _pulls(role, delta=6.0)
    # A varied label pulls on gamma a little more than a rare pair: in a larger vocabulary the one pair turned vanishes.
    assert _discordant(pulls) <= (1 if role == "gamma" else 0)
    assert pulls[0.9, 0.9] > 2 * pulls[0.1, 0.1]


@pytest.mark.parametrize("role", ["alpha", "beta", "gamma"])
def test_without_memory_it_does_not_depend_on_either_share(role):
    pulls = list(_pulls(role, delta=0.0).values())
    assert max(pulls) - min(pulls) < 0.02 * max(pulls)


def test_cells_of_other_tasks_have_no_such_order():
    pulls = _pulls("alpha", delta=6.0)
    cells = list(pulls)
    turned = torch.randperm(len(cells), generator=torch.Generator().manual_seed(1)).tolist()
    assert _discordant({cell: pulls[cells[k]] for cell, k in zip(cells, turned, strict=True)}) > 5


def test_the_pull_grows_in_proportion_to_the_copies_where_distractors_dominate():
    task = Recall(vocab=133, rare=66, pairs=32, length=80, f_r=1.0)

    def pull(copies: float) -> float:
        generator = torch.Generator().manual_seed(0)
        few = mechanism_gradient(
            replace(task, burstiness=copies),
            {"alpha": 0.1, "beta": 0.1, "gamma": 0.1},
            contexts=1024,
            generator=generator,
        )
        return few.mean["alpha"]

    one, two, three, none = pull(1.0), pull(2.0), pull(3.0), pull(0.0)
    assert (three - two) == pytest.approx(two - one, rel=0.1)
    assert two - one == pytest.approx(one - none, rel=0.1)
    assert abs(none) < 0.01 * one


def test_gradients_are_those_of_the_surrogate():
    space = CoordinateSpace(PathTable.full(2, 1), TASK.relations, TASK.n_positions, TASK.query_positions)
    point = {**POINT, "delta": 2.0}
    values = torch.zeros(space.size, dtype=torch.float64)
    for role, name in ROLES.items():
        values[space.place(name)] = point[role]
    batches = [TASK.sample(64, g) for g in [torch.Generator().manual_seed(3)] for _ in range(4)]
    losses = [cross_entropy(Surrogate(space).logits(values.requires_grad_(True), batch), batch) for batch in batches]
    (gradient,) = torch.autograd.grad(torch.stack(losses).mean(), values)
    found = mechanism_gradient(TASK, point, contexts=256, batches=4, generator=torch.Generator().manual_seed(3))
    for role, name in ROLES.items():
        assert found.mean[role] == pytest.approx(-float(gradient[space.place(name)]), rel=1e-6, abs=1e-9)


def test_standard_errors_are_those_of_repeated_estimates():
    point, generator = {**POINT, "delta": 4.0}, torch.Generator().manual_seed(0)
    many = [mechanism_gradient(TASK, point, contexts=512, batches=16, generator=generator) for _ in range(40)]
    spread = float(torch.tensor([one.mean["gamma"] for one in many]).std())
    claimed = sum(one.error["gamma"] for one in many) / len(many)
    assert 0.6 < spread / claimed < 1.6


def test_memory_settles_where_it_is_as_sure_as_it_should_be():
    # Nothing but memory and a context that tells nothing: p(associate) = 1 − f_v.
    task = replace(TASK, f_r=0.0, f_v=0.25, burstiness=0.0, rare=0, vocab=41)
    delta = settled_memory(task, {}, contexts=4096, generator=torch.Generator().manual_seed(0))
    assert delta == pytest.approx(math.log(0.75 / 0.25 * 40), abs=0.1)
    sure = replace(task, f_v=0.0)
    assert settled_memory(sure, {}, contexts=64, generator=torch.Generator().manual_seed(0), most=9.0) == 9.0


def test_shares():
    assert context_share(0.0, 0.0) == error_share(0.0, 0.0) == 0
    assert context_share(1.0, 0.3) == error_share(1.0, 0.3) == 1
    assert context_share(0.2, 0.5) == pytest.approx(0.6)


def test_each_kind_of_data_teaches_its_mechanism():
    cells = {
        "in context": replace(TASK, f_r=1.0, burstiness=2.0),
        "weights": replace(TASK, f_r=0.0, burstiness=0.0),
        "both": replace(TASK, f_r=0.4, burstiness=1.0),
        "neither": replace(TASK, f_r=1.0, burstiness=0.0),
    }
    runs = train_competition(list(cells.values()), steps=300, record_every=50)
    assert [OUTCOMES[k] for k in runs.outcomes()] == list(cells)
    context, memory = runs.emerged("in_context"), runs.emerged("in_weights")
    assert [step is not None for step in context] == [True, False, True, False]
    assert [step is not None for step in memory] == [False, True, True, False]
    assert context[2] > context[0]
    assert [OUTCOMES[k] for k in runs.outcomes(record=0)] == ["neither"] * 4


def test_what_stands_beside_a_cell_changes_nothing_in_it():
    first = train_competition([TASK, replace(TASK, f_r=0.9)], steps=20, seed=1)
    again = train_competition([TASK, replace(TASK, f_r=0.2)], steps=20, seed=1)
    torch.testing.assert_close(first.values[:, 0], again.values[:, 0])
    other = train_competition([TASK, replace(TASK, f_r=0.9)], steps=20, seed=2)
    assert (other.values[-1, 0] - first.values[-1, 0]).abs().max() > 1e-4


def test_emergence_is_the_step_from_which_it_stays():
    there = torch.tensor([[0.0, 0.9, 0.0], [0.9, 0.9, 0.9], [0.1, 0.2, 0.9], [0.9, 0.2, 0.9]])
    runs = CompetitionRuns([0, 5, 10, 15], torch.zeros(4, 3, 4), there, there)
    assert runs.emerged("in_context") == [15, None, 5]
    with pytest.raises(OptionError, match="in_weights"):
        runs.emerged("both")


def test_wrong_requests_are_refused():
    with pytest.raises(OptionError, match="unknown role 'epsilon'"):
        mechanism_gradient(TASK, {"epsilon": 1.0}, contexts=8, generator=torch.Generator())
    with pytest.raises(OptionError, match="two batches"):
        mechanism_gradient(TASK, {}, contexts=8, batches=1, generator=torch.Generator())
    with pytest.raises(TaskError, match="nothing to memorise"):
        CompetingCoordinates(Recall())
    with pytest.raises(OptionError, match="share vocab"):
        train_competition([TASK, replace(TASK, length=17)], steps=1)
    with pytest.raises(OptionError, match="initial values"):
        train_competition([TASK], steps=1, initial=(0.0,))
