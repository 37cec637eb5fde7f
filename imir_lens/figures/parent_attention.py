"""Attention to candidates beside the posterior: as heat maps, as a scatter, and by distance."""

import math
from collections.abc import Mapping, Sequence
from typing import Any, Final

from imir_lens.figures.attention import cell_paths
from imir_lens.figures.axes import ABOVE, BELOW, LEFT, Axes, key, words
from imir_lens.figures.style import Real, svg

SIDE: Final = 250.0
PANEL: Final = 262.0
_GAP: Final = 62.0
_UNIT: Final = (-0.03, 1.03)  # marks at 0 and 1 need room
_TICKS: Final = (0, 0.2, 0.4, 0.6, 0.8, 1)


def parents_figure(report: Mapping[str, Any], *, name: str = "attention") -> str:
    """Draw the reader's attention over the posterior for a few contexts; true parents are outlined.

    Args:
        report: the data of a verification; reads `examples` and `behaviour.reader`.
        name: prefix of the element ids.
    """
    examples, reader = report["examples"], report["behaviour"]["reader"]
    rows = (("attention", f"attention of {reader}"), ("posterior", "posterior over parents"))
    out = []
    for k, example in enumerate(examples):
        left = LEFT + k * (SIDE + _GAP)
        for row, (field, title) in enumerate(rows):
            top = ABOVE + row * (SIDE + BELOW + ABOVE + 8)
            out.append(_panel(example[field], example["parents"], f"Context {k + 1}: {title}", left, top))
    width = LEFT + max(1, len(examples)) * (SIDE + _GAP) - _GAP + 12
    bottom = ABOVE + 2 * (SIDE + BELOW + ABOVE + 8) - ABOVE + 6
    out.append(
        words(LEFT, bottom, "Shade: 0 (page) to 1 (strongest). Outlined: the true parent, which neither sees.", "muted")
    )
    return svg(
        width,
        bottom + 10,
        "".join(out),
        name=name,
        title=f"Attention of {reader} and the posterior over parents",
        description="Heat maps: rows are positions of the query, columns their candidates. Where the upper row looks "
        "like the lower one, attention is the posterior.",
    )


def _panel(weights: Sequence[Sequence[Real]], parents: Sequence[int], heading: str, left: float, top: float) -> str:
    count = len(weights)
    size = SIDE / count
    axes = Axes(left, top, SIDE, SIDE, (0, count), (count, 0))
    every = max(1, math.ceil(count / 8))
    at = list(range(0, count, every))
    labels = [str(k) for k in at]
    middle = [k + 0.5 for k in at]
    frame = axes.frame(
        heading,
        "candidate h'",
        "position h",
        x_ticks=middle,
        y_ticks=middle,
        x_labels=labels,
        y_labels=labels,
        grid=False,
    )
    stroke = min(1.6, size * 0.16)
    marks = "".join(
        f'<rect class="query" style="stroke-width:{stroke:.2f}" x="{left + parent * size:.1f}" '
        f'y="{top + position * size:.1f}" width="{size:.1f}" height="{size:.1f}"/>'
        for position, parent in enumerate(parents)
        if parent >= 0
    )
    return frame + cell_paths(weights, size, left, top) + marks


def match_figure(report: Mapping[str, Any], *, name: str = "posterior") -> str:
    """Draw attention against the posterior, against the frequency of true parents, and by distance to the parent.

    Args:
        report: the data of a verification; reads `drawn.cells`, `drawn.distances` and `behaviour`.
        name: prefix of the element ids.
    """
    drawn, behaviour = report["drawn"], report["behaviour"]
    out, step = [], PANEL + _GAP + 16
    axes = Axes(LEFT, ABOVE, PANEL, PANEL, _UNIT, _UNIT)
    out.append(axes.frame("Candidates not ruled out", "posterior", "attention", x_ticks=_TICKS, y_ticks=_TICKS))
    out.append(axes.diagonal())
    pairs = zip(drawn["cells"]["posterior"], drawn["cells"]["attention"], strict=True)
    out += [axes.mark(p, a, "r-alpha", size=2.6, opacity=0.35) for p, a in pairs]

    axes = Axes(LEFT + step, ABOVE, PANEL, PANEL, _UNIT, _UNIT)
    title = "share that are the true parent"
    out.append(axes.frame("Calibration", "attention", title, x_ticks=_TICKS, y_ticks=_TICKS))
    out.append(axes.diagonal())
    bins = behaviour["attention"]["calibration"]
    filled = [
        (a, f, n) for a, f, n in zip(bins["attention"], bins["frequency"], bins["count"], strict=True) if a is not None
    ]
    out.append(axes.line([(a, f) for a, f, _ in filled], "r-alpha", opacity=0.5))
    most = max((n for _, _, n in filled), default=1)
    for a, f, n in filled:
        size = 3 + 4 * math.sqrt(n / most)
        out.append(axes.mark(a, f, "r-alpha", size=size, title=f"{n} candidates: attention {a:.3f}, parents {f:.3f}"))

    rows = drawn["distances"]
    longest = max((row["distance"] for row in rows), default=1)
    axes = Axes(LEFT + 2 * step, ABOVE, PANEL, PANEL, (0, longest + 1), _UNIT)
    out.append(
        axes.frame(
            "Mean on the true parent", "distance h \N{MINUS SIGN} pa(h), in positions", "probability", y_ticks=_TICKS
        )
    )
    for field, colour, dash in (
        ("uniform", "r-auxiliary", "2 4"),
        ("posterior", "r-gamma", "7 4"),
        ("attention", "r-alpha", ""),
    ):
        out.append(axes.line([(row["distance"], row[field]) for row in rows], colour, dash=dash))
    out += [axes.mark(row["distance"], row["attention"], "r-alpha", size=3 if longest < 30 else 1.6) for row in rows]
    bottom = ABOVE + PANEL + BELOW + 16
    out.append(
        key(
            LEFT + 2 * step - 36,
            bottom,
            [
                ("attention", "r-alpha", "line"),
                ("posterior", "r-gamma", "dashed"),
                ("uniform", "r-auxiliary", "dotted"),
            ],
        )
    )
    return svg(
        LEFT + 2 * step + PANEL + 12,
        bottom + 10,
        "".join(out),
        name=name,
        title="Attention against the posterior, and against the true parents",
        description=f"Three panels: attention over the posterior for {len(drawn['cells']['posterior'])} candidates; "
        "the share of true parents among candidates of equal attention; mean attention to the true parent by its "
        "distance. On the diagonals attention is the posterior, and calibrated.",
    )
