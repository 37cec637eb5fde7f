"""The graphs of two circuits, one below the other, at one scale: of lengths, and of the thickness of lines."""

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from imir_lens.figures.axes import words
from imir_lens.figures.circuit_graph import removal_effects, units_graph
from imir_lens.figures.style import shorten, svg

MOST_EMPTY_LAYERS: Final = 8  # of a model without a circuit, of which there is nothing to see but boxes
_HEADING: Final = 34.0
_GAP: Final = 26.0
_BOX: Final = re.compile(r'viewBox="0 0 ([\d.]+) ([\d.]+)"')


def comparison_graphs(data: Mapping[str, Any], called: tuple[str, str], *, name: str = "circuits") -> str:
    """Draw both circuits of a comparison.

    Args:
        data: the comparison; reads `first` and `second` as `circuit_graph` reads a report.
        called: what the two models are called.
        name: prefix of the element ids.

    Returns:
        an SVG element.
    """
    sides = [data["first"], data["second"]]
    effects = [removal_effects(side) for side in sides]
    strongest = max((value for found in effects for value in found.nats.values()), default=0.0)
    parts, height, width = [], 0.0, 0.0
    for letter, side, found, model in zip("AB", sides, effects, called, strict=True):
        height += 0.0 if letter == "A" else _GAP
        parts.append(words(24, height + 20, f"{letter}: {shorten(model, 60)}", "strong", size=15))
        height += _HEADING
        units, shape = side["circuit"]["units"], (side["model"]["n_layers"], side["model"]["n_heads"])
        if not units and shape[0] > MOST_EMPTY_LAYERS:
            parts.append(words(24, height + 14, "No circuit was found.", "muted"))
            height += 24
            continue
        drawing = units_graph(units, replace(found, strongest=strongest), shape, name=f"{name}-{letter.lower()}")
        box = _BOX.search(drawing)
        assert box is not None
        wide, high = float(box[1]), float(box[2])
        body = drawing.partition("</desc>")[2].removesuffix("</svg>")
        parts.append(f'<g class="circuit" transform="translate(0 {height:.1f})">{body}</g>')
        height, width = height + high, max(width, wide)
    description = (
        f"A has {_count(sides[0])}, B has {_count(sides[1])}; thickness is on one scale, the loss of the model without "
        "the unit. The table of units says the same."
    )
    zoom = 1.2 if max(side["model"]["n_layers"] for side in sides) <= 3 else 1.0
    title = "The two circuits, A above B"
    return svg(max(width, 400.0), height, "".join(parts), name=name, title=title, description=description, zoom=zoom)


def _count(side: Mapping[str, Any]) -> str:
    units = len(side["circuit"]["units"])
    return f"{units} unit{'' if units == 1 else 's'}"
