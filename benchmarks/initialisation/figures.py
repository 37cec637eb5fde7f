"""`python -m benchmarks.initialisation.figures` draws docs/images/initialisation_*.svg from the stored results.

A test compares them.
"""

import json
from typing import Any

from benchmarks.initialisation.planes import HIGH, LOW, PLANES, Plane
from benchmarks.initialisation.run import LETTERS
from benchmarks.initialisation.tables import boundary_points, cells_of, of
from benchmarks.measure import RESULTS
from imir_lens.dynamics.initialisation import axis
from imir_lens.figures.figure import standalone
from imir_lens.figures.phase_map import Boundary, phase_map

IMAGES = RESULTS.parents[1] / "docs" / "images"
_NAMES = ("A: layers 1, 2", "B: layers 1, 3", "C: layers 2, 3", "shared", "none")


_OUTSIDE = (2 * HIGH, 2 * HIGH)  # where the line is broken
_SHORTEST = 0.03  # half of the shortest mark


def stored() -> dict[str, Any]:
    """Return what the benchmark stored."""
    found: dict[str, Any] = json.loads((RESULTS / "initialisation.json").read_text(encoding="utf-8"))
    return found


def figures(result: dict[str, Any]) -> dict[str, str]:
    """Return file name → drawing, one map for each plane."""
    return {f"initialisation_{plane.name}.svg": standalone(_map(result["rows"], plane)) for plane in PLANES}


def _map(rows: list[dict[str, Any]], plane: Plane) -> str:
    cells = cells_of(rows, plane.name)
    strength = [row for part in sorted(of(rows, "map", plane=plane.name), key=_first) for row in part["largest cost"]]
    values = axis(LOW, HIGH, len(cells))
    marks = []
    for at, _, positions, widths in boundary_points(rows, plane.name):
        for position, width in zip(positions[:1], widths[:1], strict=True):
            half = max(width / 2, _SHORTEST)
            ends = [(position - half, at), (position + half, at)]
            marks += [_OUTSIDE, *(ends if plane.along == "x" else [(y, x) for x, y in ends])]
    return phase_map(
        values,
        values,
        [[LETTERS.index(letter) for letter in row] for row in cells],
        strength,
        names=_NAMES,
        x_title=f"{plane.x} at the start",
        y_title=f"{plane.y} at the start",
        title=f"Which circuit wins, by {plane.x} and {plane.y} at the start",
        intensity_title="share of what was learned that the costliest circuit carries, 0 to 1",
        boundaries=[Boundary(marks, "boundary by bisection; length: from 10 to 90 % of the change")],
        name=f"initialisation-{plane.name}",
    )


def _first(row: dict[str, Any]) -> int:
    return int(row["row"])


if __name__ == "__main__":
    for name, drawing in figures(stored()).items():
        (IMAGES / name).write_text(drawing, encoding="utf-8")
