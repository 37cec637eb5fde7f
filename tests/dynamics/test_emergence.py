"""The rule of emergence, and of the fall of the loss."""

import pytest

from imir_lens.dynamics import emergence_step
from imir_lens.dynamics.emergence import Emergence, emergence, loss_drop
from imir_lens.errors import OptionError

STEPS = [0, 10, 20, 30]


def test_a_coordinate_emerges_at_the_first_step_that_has_half_of_its_final_value():
    assert emergence_step([0.0, 1.9, 2.0, 4.0], STEPS) == 20
    assert emergence_step([0.0, -1.9, -2.0, -4.0], STEPS) == 20


def test_it_must_stay_there():
    assert emergence_step([0.0, 3.0, 3.0, 4.0], STEPS) == 10
    assert emergence_step([0.0, 3.0, 1.0, 4.0], STEPS) == 30


def test_the_step_before_says_how_well_the_moment_is_known():
    assert emergence([0.0, 1.9, 2.0, 4.0], STEPS) == Emergence(20, 10)
    assert emergence([4.0, 4.0, 4.0, 4.0], STEPS) == Emergence(0, None)


def test_the_wrong_sign_does_not_count():
    assert emergence_step([0.0, -9.0, 1.0, 4.0], STEPS) == 30


def test_what_ends_at_zero_or_below_the_minimum_never_emerged():
    assert emergence_step([0.0, 1.0, 2.0, 0.0], STEPS) is None
    assert emergence_step([0.0, 0.1, 0.2, 0.3], STEPS, minimum=0.5) is None


def test_the_loss_falls_where_it_stays_below_the_middle_of_its_range():
    assert loss_drop([3.0, 2.9, 1.6, 1.0], STEPS) == Emergence(20, 10)
    assert loss_drop([3.0, 1.0, 2.5, 1.0], STEPS) == Emergence(30, 20)


def test_a_loss_that_hardly_moves_or_rises_again_has_not_fallen():
    assert loss_drop([3.0, 2.9, 2.8, 2.9], STEPS) is None
    assert loss_drop([3.0, 1.0, 1.0, 2.9], STEPS) is None


def test_values_and_steps_must_pair_up():
    with pytest.raises(OptionError, match="found 1 values, 4 steps"):
        emergence_step([1.0], STEPS)
    with pytest.raises(OptionError, match="increase"):
        emergence_step([1.0, 1.0], [10, 10])
    with pytest.raises(OptionError, match="share"):
        emergence_step([1.0], [0], share=0.0)
    with pytest.raises(OptionError, match="found 0 losses"):
        loss_drop([], [])
