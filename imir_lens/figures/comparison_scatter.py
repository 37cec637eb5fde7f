"""Values of coordinates in one model against those in another."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from imir_lens.figures.axes import Axes, Mark, key, mark, words
from imir_lens.figures.style import Real, number, role_class, role_symbol, shorten, svg

_SIZE: Final = 420.0
_LEFT: Final = 62.0
_TOP: Final = 20.0
_WIDTH: Final = 660.0
_LABEL: Final = 16.0  # between two labels, so that both can be read
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
    out = [axes.frame("", *titles), axes.diagonal()]
    placed: list[tuple[float, float]] = []
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
        if all(abs(x - a) > _LABEL or abs(y - b) > _LABEL for a, b in placed):
            placed.append((x, y))
            out.append(words(x + 9, y - 7, role_symbol(point["role"]), f"strong {colour}", size=13))
    out.append(_key(_LEFT + _SIZE + 24, _TOP + 14, {point["circuits"] for point in points}))
    description = (
        f"{len(points)} coordinates: value in A to the right, value in B upwards; equal values lie on the diagonal. "
        + " ".join(_told(point) for point in points if point["circuits"] != "neither")
    )
    title = "Values of coordinates in A and in B"
    height = _TOP + _SIZE + 44
    return svg(_WIDTH, height, "".join(out), name=name, title=title, description=description, zoom=1.15)


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
    out.append(f'<line class="rule" stroke-dasharray="5 4" x1="{x:.1f}" x2="{x + 12:.1f}" y1="{y - 4:.1f}" ')
    out.append(f'y2="{y - 4:.1f}"/>{words(x + 17, y, "equal in both")}')
    return "".join(out)
