"""Charts of emergence: every run is drawn, and told to who cannot see."""

from xml.etree import ElementTree

import pytest

from imir_lens.figures.emergence_chart import LOSS, emergence_chart
from imir_lens.figures.figure import standalone
from imir_lens.figures.power_law_chart import Series, power_law_chart
from imir_lens.figures.trajectory_chart import is_logarithmic

TIMES = {"alpha": [120, 140, None], "beta": [200, 210, 220], LOSS: [205, 215, 225]}


def test_every_run_in_which_it_happened_has_a_mark():
    drawing = emergence_chart({"A model": TIMES}, last={"A model": 400})
    assert drawing.count("<circle") == 8
    assert "A model, 3 seeds" in drawing and "optimizer step" in drawing
    assert "beta at 210" in drawing
    ElementTree.fromstring(standalone(drawing))


def test_what_never_happened_is_said():
    drawing = emergence_chart({"A model": {"alpha": [None, None]}}, last={"A model": 400})
    assert drawing.count("<circle") == 0 and "alpha at never" in drawing


def test_a_power_law_has_its_points_its_line_and_one_to_compare_with():
    one = Series([4, 8, 16], [[16.0, 17.0], [64.0, 65.0], [256.0, 250.0]], 2.0, 1.0)
    drawing = power_law_chart({"pairs": one}, x_title="pairs", y_title="time (steps)", slope=1)
    assert drawing.count("<circle") == 6 + 1  # and the key's
    assert "pairs: exponent 2.00" in drawing and "exponent 1, for comparison" in drawing
    ElementTree.fromstring(standalone(drawing))
    assert "for comparison" not in power_law_chart({"pairs": one}, x_title="pairs", y_title="time (steps)")


@pytest.mark.parametrize(("steps", "expected"), [([0, 1, 10, 100, 1000], True), (list(range(0, 101, 10)), False)])
def test_steps_that_crowd_at_the_beginning_are_spread_out(steps, expected):
    assert is_logarithmic(steps) is expected
