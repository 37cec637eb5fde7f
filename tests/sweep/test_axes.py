"""Axes: lists and ranges, grids and random draws."""

import math
import statistics

import pytest

from imir_lens.errors import OptionError
from imir_lens.sweep.axes import draws, grid, read_axis


@pytest.mark.parametrize(
    ("given", "values"),
    [
        ([1, "a", True], (1, "a", True)),
        ({"choices": [[1, 2], [3]]}, ([1, 2], [3])),
        ({"linspace": [0, 1, 5]}, (0.0, 0.25, 0.5, 0.75, 1.0)),
        ({"linspace": [0.1, 0.7, 7]}, (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7)),
        ({"logspace": [1e-3, 10, 5]}, (1e-3, 1e-2, 0.1, 1.0, 10.0)),
        ({"logspace": [16, 128, 4]}, (16.0, 32.0, 64.0, 128.0)),
        ({"integers": [2, 4]}, (2, 3, 4)),
        ({"integers": [1, 8, 3]}, (1, 4, 7)),
    ],
)
def test_an_axis_has_the_values_it_says(given, values):
    assert read_axis("task.x", given).values == values


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (3, "expected a list of values or a range, found 3"),
        ([], "is empty"),
        ({"linspce": [0, 1, 2]}, "did you mean 'linspace'?"),
        ({"linspace": [0, 1, 2], "integers": [1, 2]}, "has 2 entries"),
        ({"linspace": [1, 0, 3]}, "low < high"),
        ({"linspace": [0, math.inf, 3]}, "finite"),
        ({"linspace": [0, 1, 1]}, "a count of 2 to"),
        ({"linspace": [0, 1, 2.5]}, "a count of 2 to"),
        ({"linspace": "ab"}, "expected a list"),
        ({"logspace": [0, 1, 3]}, "positive"),
        ({"integers": [1.5, 3]}, "integers = [low, high]"),
        ({"integers": [3, 1]}, "integers = [low, high]"),
        ({"integers": [1, 3, 0]}, "integers = [low, high]"),
        ({"integers": [0, 10**9]}, "more than 1,000,000 values"),
    ],
)
def test_what_is_no_axis_is_refused_with_its_name(given, said):
    with pytest.raises(OptionError) as error:
        read_axis("task.x", given)
    assert "'task.x'" in str(error.value)
    assert said in str(error.value)


def test_a_grid_has_every_combination_once_and_the_last_axis_changes_fastest():
    axes = [read_axis("a", [1, 2]), read_axis("b", ["x", "y", "z"])]
    found = [(cell["a"], cell["b"]) for cell in grid(axes)]
    assert found == [(1, "x"), (1, "y"), (1, "z"), (2, "x"), (2, "y"), (2, "z")]


def test_a_grid_needs_counts_and_has_a_limit():
    with pytest.raises(OptionError, match="'a' has no count"):
        grid([read_axis("a", {"linspace": [0, 1]})])
    with pytest.raises(OptionError, match="1,000,000,000 cells"):
        grid([read_axis(name, {"integers": [1, 1000]}) for name in "abc"])


AXES = [
    read_axis("a", {"linspace": [2, 4]}),
    read_axis("b", {"logspace": [1e-4, 1.0]}),
    read_axis("c", {"integers": [1, 6]}),
]


def test_random_draws_are_a_function_of_the_seed_and_more_of_them_begin_alike():
    first = draws(AXES, 20, 0)
    assert draws(AXES, 20, 0) == first
    assert draws(AXES, 30, 0)[:20] == first
    assert [cell["a"] for cell in draws(AXES[:1], 20, 0)] == [cell["a"] for cell in first]
    assert draws(AXES, 20, 1) != first


def test_random_draws_have_the_law_they_say():
    found = draws(AXES, 4000, 0)
    linear, logs, dice = (
        [f(cell[name]) for cell in found] for name, f in (("a", float), ("b", math.log10), ("c", int))
    )
    for values, low, high in ((linear, 2, 4), (logs, -4, 0)):
        assert low <= min(values) < max(values) <= high
        # Mean and deviation of a uniform variable, to five standard errors.
        assert statistics.mean(values) == pytest.approx((low + high) / 2, abs=5 * (high - low) / math.sqrt(12 * 4000))
        assert statistics.pstdev(values) == pytest.approx((high - low) / math.sqrt(12), rel=0.05)
    assert set(dice) == {1, 2, 3, 4, 5, 6}
    assert all(abs(dice.count(face) - 4000 / 6) < 5 * math.sqrt(4000 * 5 / 36) for face in range(1, 7))
    assert abs(statistics.correlation(linear, logs)) < 5 / math.sqrt(4000)
