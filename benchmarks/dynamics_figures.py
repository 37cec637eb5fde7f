"""`python -m benchmarks.dynamics_figures` draws docs/images/emergence_*.svg from the stored results."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks import emergence, trajectory
from benchmarks.measure import RESULTS
from imir_lens.dynamics.power_law import fit_power_law
from imir_lens.figures.emergence_chart import LOSS, emergence_chart
from imir_lens.figures.figure import standalone
from imir_lens.figures.power_law_chart import Series, power_law_chart

IMAGES = Path(__file__).parents[1] / "docs" / "images"
_TITLES = {"ordinary": "Ordinary transformer, AdamW", "disentangled": "Disentangled transformer, AdamW"}
_DESCENT = "Gradient descent on all coordinates"
_DRAWN = "alpha, beta, gamma; gradient descent"


def figures() -> dict[str, str]:
    """Return the figures by file name."""
    return {
        "emergence_order.svg": standalone(order_figure(_rows("trajectory"))),
        "emergence_time.svg": standalone(time_figure(_rows("emergence"))),
    }


def order_figure(rows: Sequence[Mapping[str, Any]]) -> str:
    """Draw when each role emerged in each run."""
    panels, last = {}, {}
    for model in dict.fromkeys(row["model"] for row in rows):
        own = [row for row in rows if row["model"] == model]
        title = _TITLES.get(model, _DESCENT)
        columns = {**{role: role for role in trajectory.ROLES}, LOSS: "loss fallen"}
        panels[title] = {role: [row[column] for row in own] for role, column in columns.items()}
        last[title] = 400
    return emergence_chart(panels, last=last)


def time_figure(rows: Sequence[Mapping[str, Any]]) -> str:
    """Draw emergence times over the length of the context, with the number of pairs fixed and with it."""
    times = {(row["pairs"], row["length"]): row["times"] for row in rows if row["setup"] == _DRAWN}
    series = {}
    for sweep in ("context length, 3 pairs", "contexts full of pairs"):
        cells = [cell for cell in emergence.SWEEPS[sweep] if cell in times]
        found = [[time for time in times[cell] if time is not None] for cell in cells]
        law = fit_power_law([float(length) for _, length in cells], found)
        name = "3 pairs" if "3" in sweep else sweep
        series[name] = Series([length for _, length in cells], found, law.exponent, law.factor)
    return power_law_chart(
        series, x_title="tokens in a context", y_title="time at which the loss has halved (step times rate)", slope=2
    )


def _rows(name: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = json.loads((RESULTS / f"{name}.json").read_text(encoding="utf-8"))["rows"]
    return rows


if __name__ == "__main__":
    for name, drawing in figures().items():
        (IMAGES / name).write_text(drawing, encoding="utf-8")
