"""Values of coordinates in one model against those in another."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from imir_lens.figures.axes import Axes, Mark, key, mark, words
from imir_lens.figures.style import Real, number, role_class, role_symbol, shorten, svg

_SIZE: Final = 420.0
_LEFT: Final = 62.0
_TOP: Final = 20.0
_WIDTH: Final = 660.0
_ROOM: Final = 8.0  # around a mark or a sign, so that both can be read
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
    taken = [(axes.x(point["first"]), axes.y(point["second"])) for point in units]
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
        at = _free_place(x, y, 8.0 * len(sign), taken)
        if at is not None:
            taken.append(at)
            out.append(words(at[0], at[1] + 4, sign, f"strong {colour}", size=13, anchor="middle"))
    out.append(_key(_LEFT + _SIZE + 24, _TOP + 14, {point["circuits"] for point in points}))
    description = (
        f"{len(points)} coordinates: value in A to the right, value in B upwards; equal values lie on the diagonal. "
        + " ".join(_told(point) for point in points if point["circuits"] != "neither")
    )
    title = "Values of coordinates in A and in B"
    height = _TOP + _SIZE + 44
    return svg(_WIDTH, height, "".join(out), name=name, title=title, description=description, zoom=1.15)


def _free_place(x: float, y: float, width: float, taken: Sequence[tuple[float, float]]) -> tuple[float, float] | None:
    """Return where beside a mark its sign covers no other mark or sign; None where there is no such place."""
    far = 9 + width / 2
    for at in ((x + far, y - 6), (x - far, y - 6), (x + far, y + 8), (x - far, y + 8)):
        if all(abs(at[0] - a) > _ROOM + width / 2 or abs(at[1] - b) > _ROOM for a, b in taken):
            return at
    return None


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
