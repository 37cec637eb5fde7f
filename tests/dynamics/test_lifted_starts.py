"""Starts in real models: what is lifted is what the surrogate has, and training carries it on."""

import pytest
import torch

from imir_lens.dynamics.initialisation import StartTraining, judge_values, judging_contexts
from imir_lens.dynamics.lifted_starts import train_lifted
from imir_lens.dynamics.rival_circuits import RivalCircuits
from tests.dynamics.surrogate_cases import small_recall


@pytest.fixture(scope="module")
def rivals() -> RivalCircuits:
    return RivalCircuits(small_recall())


START = {"alpha_0": 2.0, "beta_01": 2.0, "gamma_1": 2.0, "alpha_1": -1.0, "beta_12": -1.0, "beta_02": -1.0}


def test_a_start_that_is_over_at_once_is_judged_as_the_surrogate_is(rivals: RivalCircuits) -> None:
    """With nothing trained, hooks on the model and zeros in the surrogate are two ways to the same costs."""
    start = rivals.start(alpha_0=6.0, beta_01=30.0, gamma_1=20.0, beta_02=3.0, gamma_2=1.0)
    found = train_lifted(rivals, start, training=StartTraining(done=0.45))
    expected = judge_values(rivals, rivals.initial(start.unsqueeze(0)))
    assert int(found.steps) == 0
    torch.testing.assert_close(found.losses, expected.losses, atol=1e-4, rtol=1e-4)
    torch.testing.assert_close(found.costs, expected.costs, atol=1e-3, rtol=1e-3)
    assert found.names[int(found.winner)] == "A"


def test_training_all_weights_learns_the_task_and_keeps_the_winner(rivals: RivalCircuits) -> None:
    found = train_lifted(rivals, rivals.start(**START), training=StartTraining(learning_rate=2.0, steps=150))
    assert float(found.losses) < 0.5
    assert int(found.dominant) == 0
    before = rivals.initial(rivals.start(**START).unsqueeze(0))
    assert not torch.allclose(found.values, before, atol=0.1)


def test_training_sees_no_context_that_it_is_judged_on(rivals: RivalCircuits) -> None:
    judged = {tuple(row) for row in judging_contexts(rivals).tokens.tolist()}
    assert len(judged) > 200  # nearly all differ, so that a chance repeat is rare too
