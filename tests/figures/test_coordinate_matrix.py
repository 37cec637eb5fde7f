"""A head's coordinates as a figure: every number at its place, the circuit outlined in its roles' colours."""

import re
import xml.etree.ElementTree as ET

import pytest
import torch

from imir_lens.coordinates import Coordinates, CoordinateSpace
from imir_lens.figures.coordinate_matrix import MOST_PATHS, coordinate_matrix
from imir_lens.figures.number_grid import NumberGrid, brief
from imir_lens.ids import Head
from imir_lens.paths import PathTable
from imir_lens.tasks.registry import make_task

SVG = "{http://www.w3.org/2000/svg}"
ALPHA, BETA = "L0H0/score/q:res/k:res/offset+1", "L1H0/score/q:res/k:L0H0/same"
GAMMA = "readout/via:L1H0/same"


def space(layers: int = 2, heads: int = 1) -> CoordinateSpace:
    return CoordinateSpace(PathTable.full(layers, heads), make_task("recall").relations, 6)


def coordinates(values: dict[str, float], **shape: int) -> Coordinates:
    where = space(**shape)
    flat = torch.zeros(where.size)
    for name, value in values.items():
        flat[where.place(name)] = value
    return Coordinates(where, flat)


def titles(drawing: str) -> list[str]:
    return [title.text for title in ET.fromstring(drawing).iter(f"{SVG}title")]


def shades(drawing: str, kind: str) -> list[float]:
    return [float(o) for o in re.findall(rf'<rect class="{kind}" fill-opacity="(\S+)"', drawing) if float(o)]


def test_numbers_stand_in_their_cells_with_their_sign():
    drawing = coordinate_matrix(coordinates({BETA: 27.72, "L1H0/score/q:L0H0/k:res/same": -7.6}), Head(1, 0))
    assert "same token: res, L0H0: +27.7 nats" in titles(drawing)
    assert "same token: L0H0, res: −7.60 nats" in titles(drawing)
    assert ">+27.7<" in drawing and ">−7.60<" in drawing
    (blue,), (orange,) = shades(drawing, "cell"), shades(drawing, "fill r-beta")
    assert orange / blue == pytest.approx(7.6 / 27.72, abs=0.01)


def test_the_circuit_is_outlined_in_its_roles_colour_and_named():
    values = {ALPHA: 8.0, BETA: 27.7, GAMMA: 18.6}
    roles = {ALPHA: "alpha", BETA: "beta", GAMMA: "gamma"}
    for head, role, sign in ((Head(1, 0), "beta", "β"), (None, "gamma", "γ")):
        drawing = coordinate_matrix(coordinates(values), head, roles=roles)
        assert drawing.count(f'class="edge r-{role}"') == 1 and f">{sign}<" in drawing
        assert f'class="edge r-{role}"' not in coordinate_matrix(coordinates(values), head)
    kernel = coordinate_matrix(coordinates(values), Head(0, 0), roles=roles)
    assert "α +8.00" in kernel and "offset +1: +8.00 nats" in titles(kernel)


def test_the_kernel_is_a_line_through_its_values():
    drawing = coordinate_matrix(coordinates({ALPHA: 8.0}), Head(0, 0))
    (path,) = re.findall(r'<path class="edge ink"[^>]* d="(M[^"]*L[^"]*)"', drawing)
    points = [tuple(map(float, point.split())) for point in re.split("[ML]", path)[1:]]
    assert len(points) == 6  # a direct query sees offsets 0 to 5
    heights = [y for _, y in points]
    assert heights.index(min(heights)) == 1 and len(set(heights)) == 2


def test_a_head_without_positions_says_so():
    assert "offsets do not matter here" in coordinate_matrix(coordinates({BETA: 1.0}), Head(1, 0))


def test_many_paths_keep_the_largest_and_count_the_rest():
    name = "L2H3/score/q:L0H1.L1H2/k:L0H0/same"
    drawing = coordinate_matrix(coordinates({name: 3.0}, layers=3, heads=4), Head(2, 3))
    entering = 1 + 4 + 4 + 16
    assert f"Not drawn: {entering - MOST_PATHS} smaller paths" in drawing
    assert "same token: L0H1.L1H2, L0H0: +3.00 nats" in titles(drawing)


def test_nothing_at_all_is_drawn_too():
    for head in (Head(0, 0), None):
        drawing = coordinate_matrix(coordinates({}), head)
        assert "All grids are zero." in drawing and not shades(drawing, "cell")


def test_everything_lies_inside_the_picture():
    generator = torch.Generator().manual_seed(0)
    where = space(layers=3, heads=2)
    whole = Coordinates(where, torch.randn(where.size, generator=generator) * 10)
    for head in (*where.paths.heads, None):
        root = ET.fromstring(coordinate_matrix(whole, head))
        width, height = map(float, root.get("viewBox").split()[2:])
        for text in root.iter(f"{SVG}text"):
            if "x" in text.attrib:
                assert 0 <= float(text.get("x")) <= width and 0 <= float(text.get("y")) <= height
        for rect in root.iter(f"{SVG}rect"):
            assert float(rect.get("x")) + float(rect.get("width")) <= width


@pytest.mark.parametrize(
    ("value", "text"),
    [(27.719, "+27.7"), (9.996, "+10.0"), (-0.0504, "−0.05"), (0.004, "0"), (-1234.5, "−1.23e+03"), (0, "0")],
)
def test_cells_hold_short_numbers(value, text):
    assert brief(value) == text


def test_narrow_cells_show_their_number_where_they_are_pointed_at():
    labels = [f"L0H{k}" for k in range(12)]
    grid = NumberGrid("same", labels, labels, [[float(i == j) for j in range(12)] for i in range(12)])
    drawing = grid.draw(0, 0, 1.0)
    assert not grid.written and "same: L0H3, L0H3: +1.00 nats" in drawing
