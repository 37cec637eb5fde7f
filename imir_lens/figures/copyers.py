"""Where the copyer heads look: which example, and which position of it."""

from collections.abc import Mapping
from typing import Any, Final

from imir_lens.figures.axes import ABOVE, BELOW, LEFT, Axes, words
from imir_lens.figures.signed_map import signed_key, signed_map
from imir_lens.figures.style import svg

HEIGHT: Final = 250.0
LINES: Final = 600.0
_COLOURS: Final = ("r-alpha", "r-beta", "r-gamma", "r-delta", "r-auxiliary")
_NAMED: Final = 12


def copyers_figure(report: Mapping[str, Any], *, name: str = "copyers") -> str:
    """Draw w_L as a map over heads and examples, and w_H as a line for each head; for ordinary transformers attention.

    Args:
        report: the data of a verification; reads `drawn.copyers`, which must be there.
        name: prefix of the element ids.
    """
    drawn = report["drawn"]["copyers"]
    heads, examples, offsets = drawn["heads"], drawn["examples"], drawn["offsets"]
    axes = Axes(LEFT + 16, ABOVE, HEIGHT, HEIGHT, (0, len(examples)), (len(heads), 0))
    every_x, every_y = -(-len(examples) // 10), -(-len(heads) // _NAMED)
    x_at, y_at = range(0, len(examples), every_x), range(0, len(heads), every_y)
    out = [
        signed_map(drawn["over_examples"], LEFT + 16, ABOVE, HEIGHT),
        axes.frame(
            drawn["examples_title"],
            "example before the query (1: the last)",
            "",
            x_ticks=[k + 0.5 for k in x_at],
            y_ticks=[k + 0.5 for k in y_at],
            x_labels=[str(examples[k]) for k in x_at],
            y_labels=[heads[k] for k in y_at],
            grid=False,
        ),
    ]
    largest = max((abs(v) for row in drawn["over_examples"] for v in row), default=0)
    out.append(signed_key(LEFT + 16, ABOVE + HEIGHT + BELOW + 16, largest))

    left = LEFT + 16 + HEIGHT + 84
    values = [v for row in drawn["over_offsets"] for v in row]
    low, high = min(values, default=0), max(values, default=1)
    pad = 0.06 * ((high - low) or 1)
    lines = Axes(left, ABOVE, LINES, HEIGHT, (offsets[0], offsets[-1]), (low - pad, high + pad))
    out.append(lines.frame(drawn["offsets_title"], "offset h \N{MINUS SIGN} h', in positions", drawn["offsets_unit"]))
    for k, row in enumerate(drawn["over_offsets"]):
        colour = _COLOURS[k % len(_COLOURS)]
        out.append(lines.line(list(zip(offsets, row, strict=True)), colour, width=1.8, opacity=0.8))
        peak = max(range(len(row)), key=row.__getitem__)
        note = f"{heads[k]}: largest at offset {offsets[peak]}"
        out.append(lines.mark(offsets[peak], row[peak], colour, size=3.6, title=note))
    out.append(words(left, ABOVE + HEIGHT + BELOW + 16, "A line for each head; its largest value is marked.", "muted"))
    return svg(
        left + LINES + 14,
        ABOVE + HEIGHT + BELOW + 26,
        "".join(out),
        name=name,
        title="Where the copyer heads look",
        description=f"Left: {drawn['examples_title']}, a row for each of {len(heads)} heads. Right: "
        f"{drawn['offsets_title']}. A copyer looks at one example, and at one offset.",
    )
