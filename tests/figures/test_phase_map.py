import re
from xml.etree import ElementTree

import pytest

from imir_lens.errors import OptionError
from imir_lens.figures.figure import standalone
from imir_lens.figures.phase_map import Boundary, phase_map

X, Y = [0.0, 1.0, 2.0, 3.0], [0.0, 1.0, 2.0]
CELLS = [[0, 0, 1, 1], [0, 0, 1, 1], [2, 2, 2, 1]]
WORDS = {"names": ("in context", "weights", "both"), "x_title": "x", "y_title": "y", "title": "t"}


def area(drawing: str, colour: str) -> float:
    boxes = re.findall(rf'class="fill {colour}"[^>]* d="([^"]*)"', drawing)
    return sum(float(w) * float(h) for path in boxes for w, h in re.findall(r"h([\d.]+)v([\d.]+)h-", path))


def test_every_outcome_has_the_area_of_its_cells():
    drawing = phase_map(X, Y, CELLS, size=(120, 90), **WORDS)
    for place, colour in enumerate(("r-alpha", "r-beta", "r-gamma")):
        expected = sum(row.count(place) for row in CELLS) * 30 * 30
        assert area(drawing, colour) == pytest.approx(expected, rel=0.01)
    assert area(drawing, "r-delta") == 0


def test_outcomes_are_told_by_a_letter_inside_their_region_too():
    drawing = phase_map(X, Y, CELLS, size=(120, 90), **WORDS)
    found = re.findall(r'<g class="badge"><text[^>]*x="([\d.]+)" y="([\d.]+)"[^>]*>(\w)<', drawing)
    places = {letter: (float(x), float(y)) for x, y, letter in found}
    assert sorted(places) == ["B", "I", "W"]
    assert places["I"][0] < places["W"][0]
    assert places["B"][1] < places["I"][1]  # the first row is at the bottom
    missing = phase_map(X, Y, [[0] * 4] * 3, size=(120, 90), **WORDS)
    assert missing.count('<g class="badge">') == 1


def test_a_stronger_intensity_is_a_stronger_colour():
    levels = [[0.0, 0.5, 1.0, 1.0]] * 3
    drawing = phase_map(X, Y, [[0] * 4] * 3, levels, intensity_title="earlier", **WORDS)
    found = re.findall(r'class="fill r-alpha" fill-opacity="([\d.]+)" d="M([\d.]+)', drawing)
    by_place = [float(opacity) for opacity, _ in sorted(found, key=lambda pair: float(pair[1]))]
    assert len(by_place) == 3
    assert by_place == sorted(by_place)
    assert by_place[0] < by_place[-1]


def test_boundaries_stay_inside_the_map():
    inside = phase_map(X, Y, CELLS, boundaries=[Boundary([(0, 0), (3, 2), (9, 9)], "predicted", "dashed")], **WORDS)
    (path,) = re.findall(r'class="ink"[^>]* d="(M[^"h]*)"', inside)
    assert path.count("L") == 1
    outside = phase_map(X, Y, CELLS, boundaries=[Boundary([(8, 8), (9, 9)], "predicted")], **WORDS)
    assert not re.findall(r'class="ink"[^>]* d="(M[^"h]*)"', outside)
    assert "predicted" in outside


def test_it_is_a_whole_svg_with_its_shares_in_words():
    root = ElementTree.fromstring(standalone(phase_map(X, Y, CELLS, **WORDS)))
    texts = [element.text or "" for element in root.iter()]
    assert any("in context 33.3 %" in text and "weights 41.7 %" in text for text in texts)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"category": CELLS[:2]}, "expected 3 rows of 4 outcomes"),
        ({"category": [[0, 0, 1, 3]] * 3}, "places among its 3 names"),
        ({"intensity": [[0.0, 0.0, 0.0, 2.0]] * 3}, r"lie in \[0, 1\]"),
        ({"x": [0.0, 0.0, 1.0, 2.0]}, "increasing"),
        ({"names": list("abcdef")}, "at most 5 outcomes"),
    ],
)
def test_what_does_not_fit_is_refused(changes, message):
    with pytest.raises(OptionError, match=message):
        phase_map(**{"x": X, "y": Y, "category": CELLS, **WORDS, **changes})
