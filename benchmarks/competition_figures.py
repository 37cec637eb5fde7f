"""`python -m benchmarks.competition_figures` draws the stored results of `competition` into docs/images."""

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.competition import MAPS, centres, context_share, emergence_factor
from benchmarks.measure import RESULTS
from imir_lens.dynamics.competition_training import OUTCOMES
from imir_lens.figures.axes import ABOVE, BELOW, LEFT, Axes, Mark, key
from imir_lens.figures.figure import standalone
from imir_lens.figures.phase_map import Boundary, phase_map
from imir_lens.figures.style import svg

Row = dict[str, Any]
_SHARE = "f_r + (1 \N{MINUS SIGN} f_r) f_v"
IMAGES = Path(__file__).parents[1] / "docs" / "images"
_TITLES = {
    "f_r": "share of rare pairs, f_r",
    "f_v": "share of varied labels, f_v",
    "burstiness": "copies of the queried pair, b",
}
_LOOKS: tuple[tuple[str, Mark], ...] = (("r-auxiliary", "square"), ("r-beta", "circle"), ("r-alpha", "diamond"))


def figures(rows: Sequence[Row]) -> dict[str, str]:
    """Return file name → drawing."""
    maps, scans = ([row for row in rows if row["part"] == part] for part in ("map", "scan"))
    factor = emergence_factor(scans)
    return {
        "competition_f_r_b.svg": _map("f_r and b", maps, factor),
        "competition_f_r_f_v.svg": _map("f_r and f_v", maps, factor),
        "competition_gradients.svg": _gradients(rows),
    }


def _map(name: str, maps: Sequence[Row], factor: float) -> str:
    rows = sorted((row for row in maps if row["map"] == name), key=lambda row: row["first line"])
    side = rows[0]["side"]
    outcome = _lines([cell for row in rows for cell in row["outcome"]], side)
    (x_knob, x_end), (y_knob, y_end), steps = MAPS[name]
    threshold = factor / steps
    grid = [k / 200 for k in range(1, 200)]
    if y_knob == "burstiness":
        points = [(x, threshold / x) for x in grid]
    else:
        points = [(x, (threshold - x) / (1 - x)) for x in grid if x <= threshold]
    lines = [Boundary(points, f"predicted for in context: b · ({_SHARE}) = {threshold:.2f}", "dashed")]
    if y_knob == "f_v":
        lines.append(
            Boundary([(0, 0.5), (1, 0.5)], "above it memory, by itself, is right less than half the time", "dotted")
        )
    return phase_map(
        centres(x_end, side),
        centres(y_end, side),
        outcome,
        _lines([value for row in rows for value in _earliness(row, steps)], side),
        names=OUTCOMES,
        x_title=_TITLES[x_knob],
        y_title=_TITLES[y_knob],
        title=f"What {steps} steps of training end with, over {name}",
        intensity_title=f"stronger: the outcome's last mechanism came earlier (of {steps} steps)",
        boundaries=lines,
        name=f"competition-{y_knob}",
    )


def _lines(cells: list[Any], side: int) -> list[list[Any]]:
    return [cells[start : start + side] for start in range(0, len(cells), side)]


def _earliness(row: Row, steps: int) -> list[float]:
    """1 for a mechanism there at once, 0 for one that came at the end, and for none."""
    found = []
    for outcome, context, memory in zip(row["outcome"], row["in context from"], row["in weights from"], strict=True):
        came = {0: context, 1: memory, 2: max(context or 0, memory or 0), 3: steps}[outcome]
        found.append(1 - came / steps)
    return found


def _gradients(rows: Sequence[Row]) -> str:
    """Left: over the share memory cannot answer, at three sizes of memory. Right: over copies, by number of blocks."""
    wide, high = 300.0, 240.0
    left = Axes(LEFT, ABOVE, wide, high, (0, 1.04), (0, 1.15))
    out = [left.frame("alpha's gradient over its largest", _SHARE, "", y_ticks=[0, 0.25, 0.5, 0.75, 1])]
    shares = {row["delta"]: row for row in rows if row["part"] == "shares" and row["vocab"] == 129}
    for (colour, shape), delta in zip(_LOOKS, ("0", "2", "6"), strict=True):
        row = shares[delta]
        top = max(row["mean"]["alpha"])
        for cell, value, error in zip(row["cells"], row["mean"]["alpha"], row["error"]["alpha"], strict=True):
            x = context_share(*cell)
            out.append(_bar(left, x, value / top, 1.96 * error / top, colour))
            out.append(
                left.mark(x, value / top, colour, shape=shape, size=3.4, title=f"f_r, f_v = {cell}, delta {delta}")
            )
    copies = {row["blocks"]: row for row in rows if row["part"] == "copies" and row["point"] == "start (0.1)"}
    most = max(value / row["mean"]["beta"][-1] for row in copies.values() for value in row["mean"]["beta"])
    right = Axes(LEFT + wide + 70, ABOVE, wide, high, (-0.1, 4.15), (-0.03, 1.05 * most))
    out.append(right.frame("beta's gradient over that at b = 4", _TITLES["burstiness"], "", y_ticks=[0, 0.5, 1]))
    for (colour, shape), blocks in zip(_LOOKS, sorted(copies), strict=True):
        row = copies[blocks]
        values, errors = row["mean"]["beta"], row["error"]["beta"]
        points = [(b, value / values[-1]) for b, value in zip(row["copies"], values, strict=True)]
        out.append(right.line(points, colour, width=1.4))
        for (b, value), error in zip(points, errors, strict=True):
            out.append(_bar(right, b, value, 1.96 * error / values[-1], colour))
            out.append(right.mark(b, value, colour, shape=shape, size=3.4))
    bottom = ABOVE + high + BELOW + 18
    names = [[f"delta = {d}" for d in ("0", "2", "6")], [f"{n} blocks" for n in sorted(copies)]]
    for axes, labels in zip((left, right), names, strict=True):
        out.append(key(axes.left, bottom, [(n, c, s) for n, (c, s) in zip(labels, _LOOKS, strict=True)]))
    return svg(
        right.left + wide + 16,
        bottom + 10,
        "".join(out),
        name="competition-gradients",
        title="The in-context gradient over the data's knobs",
        description=f"Left: alpha's gradient over {_SHARE}, flat without memory, rising where delta is 2 or 6. "
        "Right: beta's gradient over b, straight for 32 blocks and bent for 4.",
    )


def _bar(axes: Axes, x: float, y: float, half: float, colour: str) -> str:
    top, bottom = axes.y(y + half), axes.y(y - half)
    return f'<path class="edge {colour}" stroke-width="1.2" d="M{axes.x(x):.1f} {top:.1f}V{bottom:.1f}"/>'


def main() -> None:
    """Write the files."""
    rows = json.loads((RESULTS / "competition.json").read_text(encoding="utf-8"))["rows"]
    IMAGES.mkdir(parents=True, exist_ok=True)
    for name, drawing in figures(rows).items():
        (IMAGES / name).write_text(standalone(drawing), encoding="utf-8")


if __name__ == "__main__":
    main()
