"""Phase maps: which of several outcomes every cell of a plane has, and how strongly, with boundaries drawn over it.

An outcome is told by its colour and by the letter that stands in the middle of its cells; a stronger colour is a
higher intensity. Cells may be as many as one likes: neighbours that look alike are drawn as one.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final, Literal

from imir_lens.errors import OptionError
from imir_lens.figures.axes import ABOVE, BELOW, FONT, LEFT, Axes, words
from imir_lens.figures.style import Real, number, svg

LEVELS: Final = 10
_FAINTEST: Final = 0.18
_STRONGEST: Final = 0.9
COLOURS: Final = ("r-alpha", "r-beta", "r-gamma", "r-delta", "r-auxiliary")


@dataclass(frozen=True)
class Boundary:
    """A line over the map.

    Attributes:
        points: (x, y) in the axes' units; what lies outside the map is left out.
        name: what it says, for the key.
        kind: how it is drawn.
    """

    points: Sequence[tuple[Real, Real]]
    name: str
    kind: Literal["line", "dashed", "dotted"] = "line"


def phase_map(
    x: Sequence[Real],
    y: Sequence[Real],
    category: Sequence[Sequence[int]],
    intensity: Sequence[Sequence[Real]] | None = None,
    *,
    names: Sequence[str],
    x_title: str,
    y_title: str,
    title: str,
    intensity_title: str = "",
    boundaries: Sequence[Boundary] = (),
    colours: Sequence[str] = COLOURS,
    size: tuple[Real, Real] = (400.0, 400.0),
    name: str = "phases",
) -> str:
    """Draw a map.

    Args:
        x: centres of the columns, increasing.
        y: centres of the rows, increasing; the first row is drawn at the bottom.
        category: row by row, the place of each cell's outcome in `names`.
        intensity: row by row, in [0, 1]; None draws all cells alike.
        names: of the outcomes; their first letters stand in the map, so let them differ.
        x_title: of the horizontal axis.
        y_title: of the vertical axis.
        title: what the map is, read out by screen readers.
        intensity_title: what a stronger colour means, for the key.
        boundaries: lines over the map.
        colours: class of each outcome, in order.
        size: width and height of the map.
        name: prefix of the element ids.

    Returns:
        the drawing.

    Raises:
        OptionError: when rows or columns do not fit the axes, an outcome has no name, or there are more than colours.
    """
    shades = _shades(category, intensity, (len(y), len(x)), len(names))
    if len(names) > len(colours):
        raise OptionError(f"expected at most {len(colours)} outcomes in a phase map, found {len(names)}")
    x_edges, y_edges = _edges(x), _edges(y)
    axes = Axes(LEFT + 6, ABOVE, float(size[0]), float(size[1]), (x_edges[0], x_edges[-1]), (y_edges[0], y_edges[-1]))
    out = [_cells(category, shades, axes, x_edges, y_edges, colours)]
    out += [_line(boundary, axes) for boundary in boundaries]
    out.append(axes.frame("", x_title, y_title, grid=False))
    out += [
        _letter(axes, x, y, category, place, names[place])
        for place in range(len(names))
        if any(place in row for row in category)
    ]
    bottom = axes.top + size[1] + BELOW + 18
    out.append(_outcome_key(axes.left, bottom, names, colours))
    if intensity is not None:
        bottom += 20
        out.append(_shade_key(axes.left, bottom, intensity_title))
    for boundary in boundaries:
        bottom += 20
        out.append(
            _stroke(f"M{axes.left:.1f} {bottom - 4:.1f}h28", boundary.kind)
            + words(axes.left + 36, bottom, boundary.name)
        )
    count = len(x) * len(y)
    shares = ", ".join(
        f"{label} {number(100 * sum(row.count(k) for row in map(list, category)) / count)} %"
        for k, label in enumerate(names)
    )
    texts = [36 + 6.4 * len(boundary.name) for boundary in boundaries]
    texts.append(9 * (LEVELS + 1) + 8 + 6.4 * len(intensity_title))
    texts.append(sum(34 + 6.2 * len(label) for label in names))
    return svg(
        axes.left + max(size[0], *texts) + 16,
        bottom + 12,
        "".join(out),
        name=name,
        title=title,
        description=f"{len(x)} columns of {x_title}, {len(y)} rows of {y_title}; of all cells: {shares}.",
    )


def _shades(
    category: Sequence[Sequence[int]],
    intensity: Sequence[Sequence[Real]] | None,
    shape: tuple[int, int],
    n_names: int,
) -> list[list[int]]:
    """Check the cells and return the level of each: 0 … LEVELS."""
    for what, rows in (("outcomes", category), ("intensities", intensity)):
        found = (len(rows), *sorted({len(row) for row in rows})) if rows is not None else shape
        if found != shape:
            raise OptionError(f"expected {shape[0]} rows of {shape[1]} {what} in a phase map, found {found}")
    if any(not 0 <= cell < n_names for row in category for cell in row):
        raise OptionError(f"a phase map's outcomes are places among its {n_names} names, found another")
    if intensity is None:
        return [[LEVELS * 2 // 3] * shape[1] for _ in range(shape[0])]
    if any(not 0 <= value <= 1 for row in intensity for value in row):
        raise OptionError("a phase map's intensities lie in [0, 1], found another")
    return [[round(value * LEVELS) for value in row] for row in intensity]


def _edges(centres: Sequence[Real]) -> list[float]:
    """Cells meet in the middle between their centres; the outer ones are as wide as their inner half, twice."""
    if len(centres) < 2 or any(b <= a for a, b in pairwise(centres)):
        raise OptionError(f"a phase map's axis needs two centres or more, increasing, found {list(centres)[:4]}")
    inner = [(a + b) / 2 for a, b in pairwise(centres)]
    return [2 * centres[0] - inner[0], *inner, 2 * centres[-1] - inner[-1]]


def _cells(
    category: Sequence[Sequence[int]],
    shades: Sequence[Sequence[int]],
    axes: Axes,
    x_edges: Sequence[float],
    y_edges: Sequence[float],
    colours: Sequence[str],
) -> str:
    boxes: dict[tuple[int, int], list[str]] = {}
    for i, (row, levels) in enumerate(zip(category, shades, strict=True)):
        looks, j = list(zip(row, levels, strict=True)), 0
        top, high = axes.y(y_edges[i + 1]), axes.y(y_edges[i]) - axes.y(y_edges[i + 1])
        while j < len(looks):
            end = j + 1
            while end < len(looks) and looks[end] == looks[j]:
                end += 1
            left, wide = axes.x(x_edges[j]), axes.x(x_edges[end]) - axes.x(x_edges[j])
            boxes.setdefault(looks[j], []).append(f"M{left:.2f} {top:.2f}h{wide:.2f}v{high:.2f}h{-wide:.2f}z")
            j = end
    return "".join(
        f'<path class="fill {colours[place]}" fill-opacity="{_opacity(level):.2f}" d="{"".join(found)}"/>'
        for (place, level), found in sorted(boxes.items())
    )


def _opacity(level: int) -> float:
    return _FAINTEST + (_STRONGEST - _FAINTEST) * level / LEVELS


def _stroke(path: str, kind: str) -> str:
    dash = {"line": "", "dashed": ' stroke-dasharray="7 4"', "dotted": ' stroke-dasharray="2 4"'}[kind]
    ground = f'<path class="halo" d="{path}"/>'
    return f'{ground}<path class="ink" stroke-width="1.8"{dash} d="{path}"/>'


def _line(boundary: Boundary, axes: Axes) -> str:
    """Only what is inside is drawn: an axis keeps heights inside its frame, which would draw along its edge."""
    path, pen = "", "M"
    for x, y in boundary.points:
        if _inside(x, axes.x_range) and _inside(y, axes.y_range):
            path += f"{pen}{axes.x(x):.1f} {axes.y(y):.1f}"
            pen = "L"
        else:
            pen = "M"
    return _stroke(path, boundary.kind) if path else ""


def _inside(value: Real, ends: tuple[Real, Real]) -> bool:
    slack = 1e-6 * (ends[1] - ends[0])
    return ends[0] - slack <= value <= ends[1] + slack


def _letter(
    axes: Axes,
    x: Sequence[Real],
    y: Sequence[Real],
    category: Sequence[Sequence[int]],
    place: int,
    label: str,
) -> str:
    """Write an outcome's letter into the cell deepest inside its region."""
    cells = [(i, j) for i, row in enumerate(category) for j, cell in enumerate(row) if cell == place]
    i, j = max(cells, key=lambda cell: _depth(category, cell))
    at = (axes.x(x[j]), axes.y(y[i]) + 5)
    return f'<g class="badge">{words(*at, label[0].upper(), "strong", size=15, anchor="middle")}</g>'


def _depth(category: Sequence[Sequence[int]], cell: tuple[int, int]) -> int:
    """Largest half-width of a square around a cell in which all have its outcome."""
    (i, j), depth = cell, 0
    while True:
        rows, columns = range(i - depth, i + depth + 1), range(j - depth, j + depth + 1)
        if rows[0] < 0 or columns[0] < 0 or rows[-1] >= len(category) or columns[-1] >= len(category[0]):
            return depth
        if any(category[r][c] != category[i][j] for r in rows for c in columns):
            return depth
        depth += 1


def _outcome_key(x: Real, y: Real, names: Sequence[str], colours: Sequence[str]) -> str:
    out, at = [], float(x)
    for label, colour in zip(names, colours, strict=False):
        box = f'x="{at:.1f}" y="{y - 11:.1f}" width="15" height="14"'
        out.append(f'<rect class="fill {colour}" fill-opacity="{_opacity(LEVELS * 2 // 3):.2f}" {box}/>')
        out.append(words(at + 7.5, y, label[0].upper(), "strong", size=FONT, anchor="middle"))
        out.append(words(at + 20, y, label))
        at += 20 + 6.2 * len(label) + 14
    return "".join(out)


def _shade_key(x: Real, y: Real, title: str) -> str:
    boxes = "".join(
        f'<rect class="fill r-auxiliary" fill-opacity="{_opacity(k):.2f}" x="{x + 9 * k:.1f}" y="{y - 9:.1f}" '
        'width="9" height="10"/>'
        for k in range(LEVELS + 1)
    )
    return boxes + words(x + 9 * (LEVELS + 1) + 8, y, title, "muted")
