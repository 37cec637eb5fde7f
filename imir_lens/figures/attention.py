"""Attention patterns as small heat maps: rows are queries, columns keys, the asked query is outlined."""

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from imir_lens.figures.style import Real, markup, shorten, svg, text_width, visible

LEVELS: Final = 12
COLUMNS: Final = 2
WIDTH: Final = 470.0
LARGEST_CELL: Final = 18.0
SMALLEST_FONT: Final = 7.0


def cell_paths(pattern: Sequence[Sequence[Real]], size: float, x0: float, y0: float) -> str:
    """Draw the cells: one path for each of a few shades, with equal neighbours in a row merged.

    A hundred times smaller than one element a cell, so that long contexts fit in a page.
    """
    shades: dict[int, list[str]] = {}
    for i, row in enumerate(pattern):
        j = 0
        while j < len(row):
            level = min(LEVELS, round(row[j] * LEVELS + 0.2))
            end = j + 1
            while end < len(row) and min(LEVELS, round(row[end] * LEVELS + 0.2)) == level:
                end += 1
            if level > 0:
                wide = (end - j) * size
                box = f"M{x0 + j * size:.1f} {y0 + i * size:.1f}h{wide:.1f}v{size:.1f}h{-wide:.1f}z"
                shades.setdefault(level, []).append(box)
            j = end
    return "".join(
        f'<path class="cell" fill-opacity="{level / LEVELS:.2f}" d="{"".join(boxes)}"/>'
        for level, boxes in sorted(shades.items())
    )


def _labelled(n: int, wanted: int, every: int) -> list[int]:
    """Return the positions to label: each `every`-th, and `wanted`, to which its near ones give way."""
    return [k for k in range(n) if k == wanted or (k % every == 0 and abs(k - wanted) >= every)]


def _label(token: str, place: str, font: float, style: str) -> str:
    text = markup(shorten(token, 10))
    return f'<text class="{style}" {place} font-size="{font:.1f}" text-anchor="end">{text}</text>'


def _heat_map(
    tokens: Sequence[str], query: int, head: str, pattern: Sequence[Sequence[Real]], x: float, y: float, pad: float
) -> tuple[str, float]:
    """Draw one head at (x, y); returns the drawing and its height."""
    n = len(tokens)
    size = min(LARGEST_CELL, (WIDTH - pad) / n)
    font = max(SMALLEST_FONT, min(11.0, size * 0.82))
    every = math.ceil((SMALLEST_FONT + 1) / size)
    x0, y0 = x + pad, y + 26
    row = list(pattern[query])
    best = max(range(n), key=row.__getitem__)
    out = [
        f'<text class="strong" x="{x0:.1f}" y="{y + 14:.1f}" font-size="13">{markup(head)}</text>',
        f'<text class="muted" x="{x0 + n * size:.1f}" y="{y + 14:.1f}" font-size="11" text-anchor="end">'
        f"query: {row[best]:.0%} on {markup(shorten(tokens[best], 14))} at {best}</text>",
        f'<rect class="frame" x="{x0:.1f}" y="{y0:.1f}" width="{n * size:.1f}" height="{n * size:.1f}"/>',
        cell_paths(pattern, size, x0, y0),
        f'<rect class="query" x="{x0 - 1:.1f}" y="{y0 + query * size - 1:.1f}" width="{n * size + 2:.1f}" '
        f'height="{size + 2:.1f}"/>',
    ]
    for k in _labelled(n, query, every):
        base = y0 + (k + 0.5) * size + font * 0.35
        style = "strong" if k == query else "muted"
        place = f'x="{x0 - 4:.1f}" y="{base:.1f}"'
        out.append(_label(tokens[k], place, font, style))
    for k in _labelled(n, best, every):
        style = "strong" if k == best else "muted"
        at = f"{x0 + (k + 0.5) * size + font * 0.35:.1f} {y0 + n * size + 5:.1f}"
        out.append(_label(tokens[k], f'transform="translate({at}) rotate(-90)"', font, style))
    return "".join(out), 26 + n * size + pad


def _scale(x: Real, y: Real) -> tuple[str, float]:
    """Draw the key to the shades; returns it with its height."""
    steps = range(0, LEVELS + 1, 2)
    boxes = "".join(
        f'<rect class="cell" fill-opacity="{k / LEVELS:.2f}" x="{x + 24 + 9 * k:.1f}" y="{y:.1f}" '
        'width="18" height="9"/>'
        for k in steps
    )
    frame = f'<rect class="frame" x="{x + 24:.1f}" y="{y:.1f}" width="{9 * LEVELS + 18}" height="9"/>'
    words = "row: query, column: key, outlined: the query that is asked"
    return (
        f'{boxes}{frame}<text class="muted" x="{x:.1f}" y="{y + 9:.1f}" font-size="10.5">0 %</text>'
        f'<text class="muted" x="{x + 48 + 9 * LEVELS:.1f}" y="{y + 9:.1f}" font-size="10.5">100 %   {words}</text>'
    ), 16.0


def panel_id(name: str, head: str) -> str:
    """Return the id of a head's panel in the figure called `name`, for links to it."""
    return f"{name}-{re.sub(r'[^0-9A-Za-z]+', '-', head)}"


def attention_figure(example: Mapping[str, Any], *, name: str = "attention") -> str:
    """Draw the patterns of every captured head on one context.

    Args:
        example: one entry of a report's `examples`: `tokens`, `query`, `attention` {head: query × key}.
        name: prefix of the element ids.

    Returns:
        an SVG element.
    """
    tokens = [visible(token) for token in example["tokens"]]
    query, heads = example["query"], example["attention"]
    longest = max((text_width(shorten(token, 10), 11) for token in tokens), default=10)
    pad = min(80.0, longest + 8)
    panel = pad + max(min(LARGEST_CELL * len(tokens), WIDTH - pad), 250.0)
    step = panel + 24
    parts, y, below = [], 0.0, 0.0
    for k, (head, pattern) in enumerate(heads.items()):
        column = k % COLUMNS
        if column == 0 and k:
            y += below + 10
            below = 0.0
        drawing, height = _heat_map(tokens, query, head, pattern, column * step, y, pad)
        parts.append(f'<g id="{panel_id(name, head)}">{drawing}</g>')
        below = max(below, height)
    width = step * min(COLUMNS, max(1, len(heads))) - 20
    scale, shown = _scale(pad, y + below + 8)
    parts.append(scale)
    title = f"Attention of {', '.join(heads)}" if heads else "Attention"
    description = (
        f"Rows are queries, columns keys. The outlined row is the query, {tokens[query]} at position {query}; "
        f"the answer is {visible(example['target'])}."
    )
    return svg(width, y + below + 8 + shown, "".join(parts), name=name, title=title, description=description)
