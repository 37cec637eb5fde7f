"""Units are followed over heads: a swap is a swap, and noise is not."""

import pytest
from planted_series import TASK

from imir_lens.coordinates import CoordinateSpace
from imir_lens.dynamics.carriers import family_of, follow, swaps_of
from imir_lens.paths import PathTable

SPACE = CoordinateSpace(PathTable.full(2, 2), TASK.relations, TASK.n_positions, TASK.query_positions)
ONE, TWO = "L0H0/score/q:res/k:res/offset+1", "L0H1/score/q:res/k:res/offset+1"
FAMILIES = {ONE: [ONE, TWO], TWO: [TWO, ONE]}
STEPS = [0, 10, 20, 30]


def followed(values, *units):
    return follow([(unit, "alpha") for unit in units], values, FAMILIES)


def test_a_family_is_all_that_renaming_heads_within_layers_gives():
    assert set(family_of(ONE, SPACE)) == {ONE, TWO}
    match = "L1H0/score/q:res/k:L0H0/same"
    assert set(family_of(match, SPACE)) == {f"L1H{h}/score/q:res/k:L0H{k}/same" for h in (0, 1) for k in (0, 1)}


def test_two_heads_of_a_unit_stay_two_heads():
    pair = "L1H0/score/q:L0H0/k:L0H1/same"
    assert set(family_of(pair, SPACE)) == {f"L1H{h}/score/q:L0H{q}/k:L0H{1 - q}/same" for h in (0, 1) for q in (0, 1)}


def test_a_role_that_moves_to_another_head_is_one_swap():
    tracks = followed({ONE: [0.0, 0.1, 4.0, 4.0], TWO: [0.0, 4.0, 0.2, 0.0]}, ONE)
    (swap,) = swaps_of(tracks, STEPS)
    assert (swap.step, swap.after, swap.former, swap.later) == (20, 10, TWO, ONE)
    assert swap.heads == (("L0H1", "L0H0"),)
    assert tracks[0].values == (0.0, 4.0, 4.0, 4.0)
    assert tracks[0].held == (False, True, True, True)


def test_a_swap_with_a_gap_is_found_across_the_gap():
    tracks = followed({ONE: [0.0, 1.0, 1.0, 4.0], TWO: [4.0, 1.0, 1.0, 0.0]}, ONE)
    (swap,) = swaps_of(tracks, STEPS)
    assert (swap.step, swap.after) == (30, 0)


@pytest.mark.parametrize(
    "other", [[0.1, -0.2, 0.1, 0.0], [0.0, -4.0, 0.0, 0.0], [0.0, 0.0, 0.0, 4.0]], ids=["noise", "sign", "too late"]
)
def test_what_never_held_the_role_before_is_no_swap(other):
    tracks = followed({ONE: [0.0, 0.1, 4.0, 4.0], TWO: other}, ONE)
    assert swaps_of(tracks, STEPS) == []
    assert set(tracks[0].carriers) == {ONE}


def test_a_head_that_comes_to_share_a_role_does_not_take_it_over():
    tracks = followed({ONE: [4.0, 4.0, 4.0, 4.0], TWO: [0.0, 4.0, 9.0, 9.0]}, ONE)
    assert swaps_of(tracks, STEPS) == []


def test_two_units_of_one_family_never_have_one_holder():
    tracks = followed({ONE: [0.0, 4.0, 4.0, 4.0], TWO: [0.0, 0.0, 0.0, 4.0]}, ONE, TWO)
    assert swaps_of(tracks, STEPS) == []
    assert tracks[0].held == (False, True, True, True)
    assert tracks[1].held == (False, False, False, True)
