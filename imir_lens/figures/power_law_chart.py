"""Times over sizes on logarithmic axes, with fitted lines."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from imir_lens.figures.axes import ABOVE, BELOW, LEFT, Axes, Mark, key, tick_label
from imir_lens.figures.style import Real, number, svg

WIDTH: Final = 560.0
HEIGHT: Final = 330.0
_LOOKS: Final[tuple[tuple[str, Mark], ...]] = (("r-alpha", "circle"), ("r-beta", "square"), ("r-gamma", "diamond"))


@dataclass(frozen=True)
class Series:
    """Times of several runs at several sizes, and the line through them.

    Attributes:
        sizes: increasing.
        times: for each size, those of its runs.
        exponent, factor: of the line `factor · size^exponent`.
    """

    sizes: Sequence[Real]
    times: Sequence[Sequence[Real]]
    exponent: Real
    factor: Real


def power_law_chart(
    series: Mapping[str, Series], *, x_title: str, y_title: str, slope: Real | None = None, name: str = "power-law"
) -> str:
    """Draw up to three series.

    Args:
        series: by name.
        x_title: what the sizes are.
        y_title: what the times are, with their unit.
        slope: also draw a line of this exponent, from the first point on.
        name: prefix of the element ids.
    """
    sizes = [size for one in series.values() for size in one.sizes]
    times = [time for one in series.values() for own in one.times for time in own]
    low, high = math.log10(min(times)), math.log10(max(times))
    axes = Axes(LEFT + 14, ABOVE, WIDTH, HEIGHT, (min(sizes) / 1.1, max(sizes) * 1.1), (low - 0.12, high + 0.12), True)
    marks = [m * 10**k for k in range(math.floor(low), math.ceil(high) + 1) for m in (1, 2, 5)]
    marks = [m for m in marks if low - 0.12 <= math.log10(m) <= high + 0.12]
    labels = [_label(m) for m in marks]
    shown = sorted(set(sizes))
    out = [axes.frame("", x_title, y_title, x_ticks=shown, y_ticks=[math.log10(m) for m in marks], y_labels=labels)]
    entries: list[tuple[str, str, Mark]] = []
    for (title, one), (colour, shape) in zip(series.items(), _LOOKS, strict=False):
        ends = [(size, math.log10(one.factor * size**one.exponent)) for size in (one.sizes[0], one.sizes[-1])]
        out.append(axes.line(ends, colour, width=1.6))
        for size, own in zip(one.sizes, one.times, strict=True):
            for time in own:
                note = f"{title}, {number(size)}: {number(time)}"
                out.append(axes.mark(size, math.log10(time), colour, shape=shape, size=3.6, opacity=0.6, title=note))
        entries.append((f"{title}: exponent {one.exponent:.2f}", colour, shape))
    bottom = ABOVE + HEIGHT + BELOW
    if slope is not None:
        start = min((size, min(own)) for one in series.values() for size, own in zip(one.sizes, one.times, strict=True))
        limit = min(max(sizes), start[0] * 10 ** ((high + 0.1 - math.log10(start[1])) / slope))
        line = [(x, math.log10(start[1]) + slope * math.log10(x / start[0])) for x in (start[0], limit)]
        out.append(axes.line(line, "r-auxiliary", dash="7 4", width=1.4))
        out.append(key(LEFT + 14, bottom + 18, [(f"exponent {slope:g}, for comparison", "r-auxiliary", "dashed")]))
        bottom += 20
    for entry in entries:
        out.append(key(LEFT + 14, bottom + 18, [entry]))
        bottom += 20
    return svg(
        LEFT + 14 + WIDTH + 16,
        bottom + 14,
        "".join(out),
        name=name,
        title=f"{y_title} over {x_title}",
        description="; ".join(f"{title}: exponent {one.exponent:.2f}" for title, one in series.items()),
    )


def _label(value: Real) -> str:
    """Write a tick of the vertical axis shortly: its title stands close by."""
    return f"{tick_label(value / 1000)}k" if value >= 1000 else tick_label(value)
