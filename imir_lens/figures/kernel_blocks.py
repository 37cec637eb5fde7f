"""The kernel in blocks: W_KQ before and after the effective map, and its mean block beside log pi."""

from collections.abc import Mapping
from typing import Any, Final

from imir_lens.figures.axes import words
from imir_lens.figures.signed_map import signed_key, signed_map
from imir_lens.figures.style import svg

SIDE: Final = 224.0
_GAP: Final = 42.0
_TOP: Final = 44.0


def kernel_figure(report: Mapping[str, Any], *, name: str = "kernel") -> str:
    """Draw what the model compares tokens with.

    Args:
        report: the data of a verification; reads `drawn.kernel`, which must be there.
        name: prefix of the element ids.
    """
    kernel = report["drawn"]["kernel"]
    panels = [kernel[part] for part in ("raw", "effective", "mean", "reference") if kernel[part] is not None]
    out = []
    for k, panel in enumerate(panels):
        left = 44 + k * (SIDE + _GAP)
        matrix = panel["matrix"]
        out.append(words(left, 14, panel["title"], "strong", size=12.5))
        out.append(words(left, 29, panel["subtitle"], "muted", size=10.5))
        out.append(signed_map(matrix, left, _TOP, SIDE))
        labels = panel["blocks"]
        for i, label in enumerate(labels):
            at = (i + 0.5) * SIDE / len(labels)
            if i:
                edge = i * SIDE / len(labels)
                out.append(f'<path class="rule" d="M{left:.1f} {_TOP + edge:.1f}h{SIDE:.1f}"/>')
                out.append(f'<path class="rule" d="M{left + edge:.1f} {_TOP:.1f}v{SIDE:.1f}"/>')
            if len(labels) <= 12:
                out.append(words(left - 5, _TOP + at + 3.5, label, "muted", size=9.5, anchor="end"))
                out.append(words(left + at, _TOP + SIDE + 12, label, "muted", size=9.5, anchor="middle"))
        out.append(words(left + SIDE / 2, _TOP + SIDE + 28, "column: child", size=10.5, anchor="middle"))
        out.append(words(left - 28, _TOP + SIDE / 2, "row: parent", size=10.5, anchor="middle", turn=-90))
        out.append(signed_key(left, _TOP + SIDE + 48, max((abs(v) for row in matrix for v in row), default=0)))
    names = ", ".join(panel["title"] for panel in panels)
    return svg(
        44 + len(panels) * (SIDE + _GAP) - _GAP + 14,
        _TOP + SIDE + 58,
        "".join(out),
        name=name,
        title=f"The kernel: {names}",
        description="Heat maps with blue above zero and orange below. Off the diagonal the effective kernel should be "
        "empty, and each block on it should look like the reference, the last panel.",
    )
