import pytest
import torch

from imir_lens.dynamics.order import line_r2, spearman, transition, with_errors
from imir_lens.errors import OptionError


def test_rank_correlation_of_any_monotone_map_is_one_and_ties_share_their_rank():
    x = [0.1, 0.2, 0.7, 0.9]
    assert spearman(x, [v**3 for v in x]) == pytest.approx(1.0)
    assert spearman(x, [-v for v in x]) == pytest.approx(-1.0)
    # By hand: ranks 0.5, 0.5, 2, 3 against 0, 1, 2, 3.
    assert spearman([1.0, 1.0, 2.0, 3.0], x) == pytest.approx(4.5 / (4.5 * 5.0) ** 0.5)
    assert spearman([1.0, 1.0], [1.0, 2.0]) == 0.0


def test_unrelated_values_have_no_rank_correlation(generator):
    found = [spearman(torch.rand(25, generator=generator).tolist(), [float(k) for k in range(25)]) for _ in range(200)]
    assert abs(sum(found) / 200) < 0.05


def test_r2_is_one_on_a_line_and_less_on_a_parabola():
    x = [0.0, 1.0, 2.0, 3.0, 4.0]
    assert line_r2(x, [3 - 2 * v for v in x]) == pytest.approx(1.0)
    assert line_r2(x, [(v - 2) ** 2 for v in x]) == pytest.approx(0.0, abs=1e-12)
    assert line_r2(x, [1.0] * 5) == 0.0


def test_intervals_hold_the_mean_of_estimates_with_these_errors():
    found = with_errors(lambda values: sum(values) / len(values), [1.0, 2.0, 3.0, 4.0], [0.2] * 4)
    assert found.value == 2.5
    assert found.high - found.low == pytest.approx(2 * 1.96 * 0.1, rel=0.1)
    exact = with_errors(max, [1.0, 2.0], [0.0, 0.0])
    assert (exact.low, exact.value, exact.high) == (2.0, 2.0, 2.0)


def test_a_transition_is_found_between_points():
    x = [k / 100 for k in range(101)]
    logistic = [1 / (1 + 2.718281828 ** (-(v - 0.4) / 0.02)) for v in x]
    found = transition(x, logistic)
    assert found.middle == pytest.approx(0.4, abs=1e-3)
    assert found.width == pytest.approx(2 * 0.02 * 2.1972, rel=0.02)  # log 9 on either side
    sharper = transition(x, [float(v > 0.4) for v in x])
    assert sharper.width < 0.01


def test_what_does_not_rise_has_no_transition():
    for curve in ([1.0, 1.0, 1.0], [3.0, 2.0, 1.0]):
        with pytest.raises(OptionError, match="rises"):
            transition([0.0, 1.0, 2.0], curve)
    with pytest.raises(OptionError, match="one length"):
        spearman([1.0], [1.0])
