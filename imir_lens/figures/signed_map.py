"""A matrix of signed numbers as a heat map: blue above zero, orange below, one path for each shade."""

from collections.abc import Sequence
from typing import Final

from imir_lens.figures.axes import words
from imir_lens.figures.style import Real, number

LEVELS: Final = 12


def signed_map(matrix: Sequence[Sequence[Real]], x: Real, y: Real, side: Real) -> str:
    """Draw a matrix into a square of a given side; the strongest shade is its largest size.

    Equal neighbours in a row are merged, so that large matrices fit in a page.
    """
    largest = max((abs(v) for row in matrix for v in row), default=0) or 1.0
    high, wide = side / max(1, len(matrix)), side / max(1, len(matrix[0]) if matrix else 1)
    shades: dict[int, list[str]] = {}
    for i, row in enumerate(matrix):
        levels = [round(v / largest * LEVELS) for v in row]
        j = 0
        while j < len(levels):
            end = j + 1
            while end < len(levels) and levels[end] == levels[j]:
                end += 1
            if levels[j]:
                box = (
                    f"M{x + j * wide:.2f} {y + i * high:.2f}h{(end - j) * wide:.2f}v{high:.2f}h{-(end - j) * wide:.2f}z"
                )
                shades.setdefault(levels[j], []).append(box)
            j = end
    cells = "".join(
        f'<path class="{"cell" if level > 0 else "fill r-beta"}" fill-opacity="{abs(level) / LEVELS:.2f}" '
        f'd="{"".join(boxes)}"/>'
        for level, boxes in sorted(shades.items())
    )
    return f'{cells}<rect class="frame" x="{x:.1f}" y="{y:.1f}" width="{side:.1f}" height="{side:.1f}"/>'


def signed_key(x: Real, y: Real, largest: Real, *, strongest: Real = 1) -> str:
    """Draw the key to the shades of a map, from minus to plus its largest size, whose opacity is `strongest`."""
    steps = range(-LEVELS, LEVELS + 1, 3)
    boxes = "".join(
        f'<rect class="{"cell" if k > 0 else "fill r-beta"}" fill-opacity="{abs(k) / LEVELS * strongest:.2f}" '
        f'x="{x + 46 + (k + LEVELS) * 4:.1f}" y="{y - 8:.1f}" width="12" height="8"/>'
        for k in steps
    )
    right = x + 46 + 2 * LEVELS * 4 + 12
    frame = f'<rect class="frame" x="{x + 46:.1f}" y="{y - 8:.1f}" width="{right - x - 46:.1f}" height="8"/>'
    ends = words(x + 40, y, number(-largest, signed=True), "muted", size=10.5, anchor="end")
    return boxes + frame + ends + words(right + 6, y, number(largest, signed=True), "muted", size=10.5)
