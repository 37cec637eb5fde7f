"""Values of coordinates in one model against those in another.

Marks say by their shape which circuits have a coordinate, and by a sign beside them its role; a sign of an auxiliary is
left out where there is no room for it.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

from imir_lens.figures.axes import Axes, Mark, key, mark, words
from imir_lens.figures.style import Real, base_role, number, role_class, role_symbol, shorten, svg

_SIZE: Final = 420.0
_LEFT: Final = 62.0
_TOP: Final = 20.0
_WIDTH: Final = 660.0
_ROOM: Final = 8.0  # around a mark or a sign, so that both can be read
_WIDE: Final = 8.6  # of a letter of a sign
_DIRECTIONS: Final = ((1, 0.6), (-1, 0.6), (1, -0.8), (-1, -0.8), (0, 1.6), (0, -1.8))
_DASHED: Final = 'stroke-dasharray="5 4" stroke-width="1.2" stroke-opacity=".6"'
_SHAPES: Final[dict[str, Mark]] = {"both": "circle", "first": "square", "second": "diamond"}
_WORDS: Final = {
    "both": "in both circuits",
    "first": "in the circuit of A only",
    "second": "in the circuit of B only",
    "neither": "in neither circuit",
}


def comparison_scatter(data: Mapping[str, Any], called: tuple[str, str], *, name: str = "scatter") -> str:
    """Draw the coordinates of a comparison: A to the right, B upwards, in nats.

    Args:
        data: the comparison; reads `coordinates`.
        called: what the two models are called.
        name: prefix of the element ids.

    Returns:
        an SVG element.
    """
    points = sorted(data["coordinates"]["points"], key=lambda point: point["circuits"] != "neither")
    titles = [f"value in {letter}, {shorten(model, 36)} (nats)" for letter, model in zip("AB", called, strict=True)]
    bounds = _bounds(points)
    axes = Axes(_LEFT, _TOP, _SIZE, _SIZE, bounds, bounds)
    out = [axes.frame("", *titles), _diagonal(axes)]
    units = [point for point in points if point["circuits"] != "neither"]
    taken = [(axes.x(point["first"]), axes.y(point["second"]), _ROOM) for point in units]
    signs: list[str] = []
    for point in points:
        x, y = axes.x(point["first"]), axes.y(point["second"])
        title = (
            f"{point['id']}: {number(point['first'], signed=True)} in A, {number(point['second'], signed=True)} in B; "
            f"{_WORDS[point['circuits']]}"
        )
        if point["circuits"] == "neither":
            out.append(mark(x, y, "r-auxiliary", size=2.6, opacity=0.45, title=title))
            continue
        colour = role_class(point["role"])
        out.append(mark(x, y, colour, shape=_SHAPES[point["circuits"]], size=5.5, title=title))
        sign = role_symbol(point["role"])
        at = _free_place(x, y, _WIDE * len(sign), axes, taken, apart=base_role(point["role"]) != "auxiliary")
        if at is not None:
            taken.append((*at, _WIDE * len(sign) / 2))
            signs.append(_sign((x, y), at, sign, colour))
    out += signs  # above all marks
    out.append(_key(_LEFT + _SIZE + 24, _TOP + 14, {point["circuits"] for point in points}))
    description = (
        f"{len(points)} coordinates: value in A to the right, value in B upwards; equal values lie on the diagonal. "
        + " ".join(_told(point) for point in points if point["circuits"] != "neither")
    )
    title = "Values of coordinates in A and in B"
    height = _TOP + _SIZE + 44
    return svg(_WIDTH, height, "".join(out), name=name, title=title, description=description, zoom=1.15)


def _free_place(
    x: float, y: float, width: float, axes: Axes, taken: Sequence[tuple[float, float, float]], *, apart: bool
) -> tuple[float, float] | None:
    """Return where a mark's sign covers no unit's mark or sign; None where there is no such place.

    Args:
        x: of the mark.
        y: of the mark.
        width: of the sign.
        axes: inside which it has to stay.
        taken: what is not to be covered: middle, and half the width.
        apart: whether it may stand further from its mark, with a line to it.
    """
    for far in (0.0, 18.0, 36.0, 54.0) if apart else (0.0,):
        for right, up in _DIRECTIONS:
            at = x + right * (9 + width / 2 + far), y - up * (8 + far)
            inside = axes.left + width < at[0] < axes.left + axes.width - width and axes.top + 8 < at[1]
            free = all(abs(at[0] - a) > half + 0.5 + width / 2 or abs(at[1] - b) > 2 * _ROOM for a, b, half in taken)
            if inside and free and at[1] < axes.top + axes.height - 8:
                return at
    return None


def _sign(mark_at: tuple[float, float], at: tuple[float, float], sign: str, colour: str) -> str:
    """Draw a sign on a ground of its own; where it stands apart from its mark, with a line to it."""
    width = _WIDE * len(sign) + 2
    line = ""
    if math.dist(mark_at, at) > 9 + width:
        path = f"M{mark_at[0]:.1f} {mark_at[1]:.1f}L{at[0]:.1f} {at[1]:.1f}"
        line = f'<path class="edge {colour}" stroke-width="1" d="{path}"/>'
    ground = f'<rect class="page" x="{at[0] - width / 2:.1f}" y="{at[1] - 8:.1f}" width="{width:.1f}" height="16"/>'
    return line + ground + words(at[0], at[1] + 4.5, sign, f"strong {colour}", size=13, anchor="middle")


def _diagonal(axes: Axes) -> str:
    low, high = axes.x_range
    ends = f'x1="{axes.x(low):.1f}" y1="{axes.y(low):.1f}" x2="{axes.x(high):.1f}" y2="{axes.y(high):.1f}"'
    return f'<line class="ink" {_DASHED} {ends}/>'


def _told(point: Mapping[str, Any]) -> str:
    values = f"{number(point['first'])} in A, {number(point['second'])} in B"
    return f"{point['id']} ({point['role']}): {values}, {_WORDS[point['circuits']]}."


def _bounds(points: Sequence[Mapping[str, Any]]) -> tuple[Real, Real]:
    """Return the ends of both axes: all values and zero, with a margin."""
    values = [0.0, *(point[side] for point in points for side in ("first", "second"))]
    low, high = min(values), max(values)
    margin = 0.06 * ((high - low) or 1.0)
    return low - margin, high + margin


def _key(x: float, y: float, kinds: set[str]) -> str:
    """Draw what the marks mean, one below the other: those that occur, and the diagonal."""
    out = []
    for kind, said in _WORDS.items():
        if kind not in kinds:
            continue
        if kind == "neither":
            out.append(mark(x + 5, y - 4, "r-auxiliary", size=2.6, opacity=0.45) + words(x + 15, y, said))
        else:
            out.append(key(x, y, [(said, "r-auxiliary", _SHAPES[kind])]))
        y += 22
    out.append(f'<line class="ink" {_DASHED} x1="{x:.1f}" x2="{x + 14:.1f}" y1="{y - 4:.1f}" y2="{y - 4:.1f}"/>')
    out.append(words(x + 19, y, "equal in both"))
    return "".join(out)
