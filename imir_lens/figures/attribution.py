"""Bars of the coordinates' attributions, and where the circuit is cut out of them."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from imir_lens.figures.style import Real, markup, number, role_class, role_symbol, shorten, svg

ROW: Final = 21.0
LABEL: Final = 330.0
BARS: Final = 560.0
VALUE: Final = 84.0
WIDTH: Final = LABEL + BARS + VALUE
SHOWN: Final = 20


def _chosen(coordinates: Sequence[Mapping[str, Any]], shown: int) -> list[tuple[int, Mapping[str, Any]]]:
    """Return (rank, coordinate) of the first `shown`, and of those further down that the circuit holds."""
    return [(k, c) for k, c in enumerate(coordinates) if k < shown or c["in_circuit"]]


def attribution_chart(report: Mapping[str, Any], *, name: str = "attribution", shown: int = SHOWN) -> str:
    """Draw the largest attributions; coloured bars are in the circuit, grey ones are not.

    Args:
        report: the report's data; reads `coordinates` and `search`.
        name: prefix of the element ids.
        shown: how many of the largest to draw; the circuit's own are drawn in any case.

    Returns:
        an SVG element.
    """
    coordinates = report["coordinates"]
    rows = _chosen(coordinates, shown)
    values = [c["attribution"] for _, c in rows]
    low, high = min([0.0, *values]), max([0.0, *values])
    scale = BARS / ((high - low) or 1.0)
    zero = LABEL - low * scale
    last = max((k for k, (_, c) in enumerate(rows) if c["in_circuit"]), default=-1)

    out, y, previous = [], 8.0, -1
    for k, (rank, c) in enumerate(rows):
        if rank != previous + 1:
            skipped = f"… {rank - previous - 1} coordinates not drawn …"
            out.append(_text(LABEL - 8, y + 14, skipped, "muted", anchor="end"))
            y += ROW
        previous = rank
        out.append(_row(c, y, zero, scale))
        y += ROW
        if k == last:
            out.append(
                f'<line class="query" stroke-dasharray="6 4" x1="0" x2="{LABEL + BARS + VALUE:g}" y1="{y + 5:g}" '
            )
            out.append(f'y2="{y + 5:g}"/>')
            inside = sum(1 for other in coordinates if other["in_circuit"])
            caption = f"the cut: {inside} in the circuit" + (", all above" if inside == last + 1 else ", coloured")
            out.append(_text(WIDTH, y + 20, caption, "muted", anchor="end"))
            y += 28
    left = report["search"]["coordinates_total"] - len(rows)
    if left > 0:
        out.append(_text(LABEL - 8, y + 14, f"… {left:,} more, smaller …", "muted", anchor="end"))
        y += ROW
    out.append(f'<line class="rule" x1="{zero:.1f}" x2="{zero:.1f}" y1="4" y2="{y:g}"/>')
    if not rows:
        out.append(_text(8, 20, "No coordinates were listed.", "muted"))
        y += ROW
    title = "Attribution of each coordinate"
    description = (
        f"Bars of the {len(rows)} listed coordinates by size of attribution; {last + 1} of them down to the cut."
    )
    return svg(WIDTH, y + 8, "".join(out), name=name, title=title, description=description)


def _text(x: Real, y: Real, text: str, classes: str, *, anchor: str = "start") -> str:
    return (
        f'<text class="{classes}" x="{x:.1f}" y="{y:.1f}" font-size="11.5" text-anchor="{anchor}">{markup(text)}</text>'
    )


def _row(c: Mapping[str, Any], y: float, zero: Real, scale: Real) -> str:
    inside = c["in_circuit"]
    end = zero + c["attribution"] * scale
    x, width = min(zero, end), max(1.0, abs(end - zero))
    colour = f"fill {role_class(c['role'])}" if inside else "bar-out"
    sign = (
        f'<tspan class="strong fill {role_class(c["role"])}">{markup(role_symbol(c["role"]))} </tspan>'
        if inside
        else ""
    )
    value = f"value {number(c['value'], signed=True)}, attribution {number(c['attribution'])}"
    state = "in the circuit" if inside else "not in the circuit"
    return (
        f"<g><title>{markup(c['id'])}: {value}, {state}</title>"
        f'<text class="mono{"" if inside else " muted"}" x="{LABEL - 8:g}" y="{y + 14:g}" font-size="11" '
        f'text-anchor="end">'
        f"{sign}{markup(shorten(c['id'], 44))}</text>"
        f'<rect class="{colour}" x="{x:.1f}" y="{y + 3:g}" width="{width:.1f}" height="{ROW - 7:g}" rx="2"/>'
        f'<text class="{"strong" if inside else "muted"}" x="{max(end, zero) + 6:.1f}" y="{y + 14:g}" font-size="11">'
        f"{number(c['attribution'])}</text></g>"
    )
