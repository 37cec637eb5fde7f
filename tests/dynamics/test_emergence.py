"""The rule of emergence."""

import pytest

from imir_lens.dynamics import emergence_step
from imir_lens.errors import OptionError

STEPS = [0, 10, 20, 30]


def test_a_coordinate_emerges_at_the_first_step_that_has_half_of_its_final_value():
    assert emergence_step([0.0, 1.9, 2.0, 4.0], STEPS) == 20
    assert emergence_step([0.0, -1.9, -2.0, -4.0], STEPS) == 20


def test_the_wrong_sign_does_not_count():
    assert emergence_step([0.0, -9.0, 1.0, 4.0], STEPS) == 30


def test_what_ends_at_zero_or_below_the_minimum_never_emerged():
    assert emergence_step([0.0, 1.0, 2.0, 0.0], STEPS) is None
    assert emergence_step([0.0, 0.1, 0.2, 0.3], STEPS, minimum=0.5) is None


def test_values_and_steps_must_pair_up():
    with pytest.raises(OptionError, match="found 1 values, 4 steps"):
        emergence_step([1.0], STEPS)
    with pytest.raises(OptionError, match="share"):
        emergence_step([1.0], [0], share=0.0)
