"""Layer × head maps: one square for each head of a model, darker for a larger score."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from imir_lens.figures.axes import words
from imir_lens.figures.style import number, svg

_LEVELS: Final = 12
_ABOVE: Final = 46.0
_LEFT: Final = 40.0
_GAP: Final = 26.0


def head_maps(data: Mapping[str, Any], *, name: str = "heads") -> str:
    """Draw the maps of an atlas side by side: what the weights say, then what patterns show where there is data.

    Args:
        data: an atlas, see `atlas_schema.json`.
        name: prefix of the element ids.
    """
    panels: list[tuple[str, Callable[[Mapping[str, Any]], float]]] = [
        ("one back (z)", lambda head: head["previous_token"]["z"]),
        ("match, own (z)", lambda head: head["same"]["z"]),
        ("match, copied (z)", lambda head: head["same_copied"]["z"]),
        ("copying (z)", lambda head: head["copying"]["z"]),
    ]
    if data["data"] is not None:
        panels += [
            ("previous, seen", lambda head: head["patterns"]["previous_token"]),
            ("duplicate, seen", lambda head: head["patterns"]["duplicate_token"]),
            ("induction, seen", lambda head: head["patterns"]["induction"]),
            ("sink, seen", lambda head: head["patterns"]["sink"]),
        ]
    n_layers, n_heads = data["model"]["n_layers"], data["model"]["n_heads"]
    cell = max(5.0, min(18.0, 420.0 / n_layers, 150.0 / n_heads))
    wide, high = max(cell * n_heads, 92.0), cell * n_layers
    parts = []
    for k, (title, value) in enumerate(panels):
        parts.append(_panel(title, data["heads"], value, _LEFT + k * (wide + _GAP), cell, n_layers, n_heads))
    step = max(1, -(-n_layers // 10))
    for layer in range(0, n_layers, step):
        parts.append(words(_LEFT - 6, _ABOVE + (layer + 0.5) * cell + 4, str(layer), "muted", anchor="end", size=10.5))
    parts.append(words(12, _ABOVE + high / 2, "layer", "muted", anchor="middle", size=10.5, turn=-90))
    parts.append(words(_LEFT, _ABOVE + high + 18, "head →", "muted", size=10.5))
    return svg(
        _LEFT + len(panels) * (wide + _GAP),
        _ABOVE + high + 26,
        "".join(parts),
        name=name,
        title="Scores of all heads",
        description="One square for each head, layers from the top; darker is larger, negative scores are left blank.",
    )


def _panel(
    title: str,
    heads: Sequence[Mapping[str, Any]],
    value: Callable[[Mapping[str, Any]], float],
    left: float,
    cell: float,
    n_layers: int,
    n_heads: int,
) -> str:
    largest = max((value(head) for head in heads), default=0.0)
    shades: dict[int, list[str]] = {}
    for head in heads:
        level = round(max(0.0, value(head)) / largest * _LEVELS) if largest > 0 else 0
        if level:
            x, y = left + head["index"] * cell, _ABOVE + head["layer"] * cell
            shades.setdefault(level, []).append(f"M{x:.1f} {y:.1f}h{cell:.1f}v{cell:.1f}h{-cell:.1f}z")
    cells = "".join(
        f'<path class="cell" fill-opacity="{level / _LEVELS:.2f}" d="{"".join(boxes)}"/>'
        for level, boxes in sorted(shades.items())
    )
    frame = (
        f'<rect class="frame" x="{left:.1f}" y="{_ABOVE:.1f}" width="{cell * n_heads:.1f}" '
        f'height="{cell * n_layers:.1f}"/>'
    )
    label = words(left, _ABOVE - 24, title, "strong", size=11)
    return label + words(left, _ABOVE - 9, f"up to {number(largest)}", "muted", size=10.5) + cells + frame
