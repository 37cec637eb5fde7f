"""When things happened in many runs: one mark a run, one row a role, and a bar at the median."""

from collections.abc import Mapping, Sequence
from statistics import median
from typing import Final

from imir_lens.figures.axes import ABOVE, BELOW, Axes, mark, words
from imir_lens.figures.style import Real, number, role_class, role_symbol, svg

WIDTH: Final = 620.0
_LABEL: Final = 74.0
_ROW: Final = 30.0
_GAP: Final = 24.0
LOSS: Final = "loss"
Times = Mapping[str, Sequence[Real | None]]


def emergence_chart(panels: Mapping[str, Times], *, last: Mapping[str, Real], name: str = "emergence") -> str:
    """Draw when roles emerged, and the loss fell, over runs.

    Args:
        panels: by heading: role, or `loss` → the step of each run; None where it did not happen.
        last: by heading: the step at which the runs end.
        name: prefix of the element ids.
    """
    top, out, told = 0.0, [], []
    for heading, times in panels.items():
        runs = max(len(steps) for steps in times.values())
        axes = Axes(_LABEL, top + ABOVE, WIDTH, _ROW * len(times), (0, last[heading]), (0, 1))
        out.append(axes.frame(f"{heading}, {runs} seeds", "optimizer step", "", y_ticks=[]))
        for place, (role, steps) in enumerate(times.items()):
            y = axes.top + (place + 0.5) * _ROW
            out.append(_row(axes, y, role, steps))
            found = [step for step in steps if step is not None]
            told.append(f"{heading}: {role} at {number(median(found)) if found else 'never'}")
        top = axes.top + axes.height + BELOW + _GAP - ABOVE + 8
    return svg(
        _LABEL + WIDTH + 16,
        top + 2,
        "".join(out),
        name=name,
        title="Steps at which roles emerged and the loss fell, over seeds",
        description="Medians. " + "; ".join(told),
    )


def _row(axes: Axes, y: float, role: str, steps: Sequence[Real | None]) -> str:
    colour, letter = ("r-auxiliary", "loss falls") if role == LOSS else (role_class(role), role_symbol(role))
    style = f"strong fill {colour}"
    out = [words(axes.left - 8, y + 4, letter, style, anchor="end")]
    found = [step for step in steps if step is not None]
    for run, step in enumerate(steps):
        if step is not None:
            shift = (run - (len(steps) - 1) / 2) / max(len(steps), 1) * 0.6 * _ROW  # runs above each other, in order
            out.append(mark(axes.x(step), y + shift, colour, size=3, opacity=0.65, title=f"{role}: step {step}"))
    if found:
        x = axes.x(median(found))
        out.append(f'<path class="edge {colour}" stroke-width="2.4" d="M{x:.1f} {y - 11:.1f}v22">')
        out.append(f"<title>{role}: median {number(median(found))}</title></path>")
    return "".join(out)
