"""The coordinates of two models beside each other, as far as two reports know them.

A report lists at most 200 of its coordinates; the others are in coordinates.safetensors. Where both files are at hand
and their spaces agree, all coordinates are compared; else those that both reports list. A coordinate that a report does
not list is unknown there, not zero.
"""

from collections.abc import Mapping
from typing import Any, Final

import torch

from imir_lens.coordinates import Coordinates
from imir_lens.errors import CoordinateError
from imir_lens.report.comparison_units import SIDES
from imir_lens.report.document import Report, SavedCoordinates

MOST_POINTS: Final = 400
_AGREE: Final = 1e-4  # relative: the values of a report against those of the file beside it


def compared_coordinates(
    first: Report, second: Report, *, by_id: bool
) -> tuple[dict[str, Any], dict[str, dict[str, float]]]:
    """Compare the coordinates of two reports.

    Args:
        first: a report, with its coordinates where they are at hand.
        second: another one.
        by_id: whether an id names the same thing in both.

    Returns:
        the part `coordinates` of comparison.json, and for each side the known values of the coordinates that matter
        here: those that a report lists, and those of the other circuit.
    """
    reports = dict(zip(SIDES, (first, second), strict=True))
    listed = {side: {c["id"]: c["value"] for c in report.data["coordinates"]} for side, report in reports.items()}
    totals = {side: report.data["search"]["coordinates_total"] for side, report in reports.items()}
    found: dict[str, Any] = {
        "source": "listed",
        "reason": "",
        "total": totals,
        "listed": {side: len(values) for side, values in listed.items()},
        "cosine": None,
        "left_out": {side: 0 for side in SIDES},
        "largest_left_out": None,
        "points": [],
    }
    if not by_id:
        found |= {"source": "none", "reason": "their ids do not name the same things"}
        return found, {side: {} for side in SIDES}
    try:
        one, two = (_coordinates(report, letter) for report, letter in zip(reports.values(), "AB", strict=True))
        found["cosine"] = two.cosine(one)  # in this order an error names A first
    except CoordinateError as error:
        found["reason"] = str(error)
    else:
        found["source"] = "all"
        return _all(found, one, two, reports), _values(one, two, reports)
    shared = [name for name in listed["first"] if name in listed["second"]]
    found["points"] = [
        _point(name, [values[name] for values in listed.values()], reports) for name in shared[:MOST_POINTS]
    ]
    found["left_out"] = {side: len(values) - len(shared) for side, values in listed.items()}
    return found, listed


def _coordinates(report: Report, letter: str) -> Coordinates:
    """Return the coordinates of a report on the CPU, whether they are in memory or in the file beside it.

    Raises:
        CoordinateError: when they are missing, damaged, or of another report.
    """
    kept = report.coordinates
    if isinstance(kept, SavedCoordinates):
        kept = kept.load()
    if not isinstance(kept, Coordinates):
        raise CoordinateError(f"there is no coordinates.safetensors beside report {letter}")
    kept = Coordinates(kept.space, kept.values.detach().cpu())
    for unit in report.data["circuit"]["units"]:
        if abs(kept[unit["id"]] - unit["value"]) > _AGREE * max(1.0, abs(unit["value"])):
            raise CoordinateError(f"the coordinates beside report {letter} are those of another report")
    return kept


def _all(found: dict[str, Any], one: Coordinates, two: Coordinates, reports: Mapping[str, Report]) -> dict[str, Any]:
    """Draw the largest of all coordinates, the units of both circuits included."""
    size = torch.maximum(one.values.abs(), two.values.abs())
    units = [unit["id"] for report in reports.values() for unit in report.data["circuit"]["units"]]
    places = list(dict.fromkeys(one.places(units).tolist()))
    largest = size.topk(min(MOST_POINTS, len(size))).indices.tolist()
    order = sorted({*largest} - {*places}, key=lambda place: (-float(size[place]), place))
    chosen = [*places, *(place for place in order[: MOST_POINTS - len(places)] if size[place] > 0)]
    rest = torch.ones_like(size, dtype=torch.bool)
    rest[chosen] = False
    points = [_point(str(one.space.id(k)), [float(one.values[k]), float(two.values[k])], reports) for k in chosen]
    left = int((rest & one.space.active.cpu()).sum())
    return {
        **found,
        "points": points,
        "left_out": {side: left for side in SIDES},
        "largest_left_out": float(size[rest].max()) if left else None,
    }


def _values(one: Coordinates, two: Coordinates, reports: Mapping[str, Report]) -> dict[str, dict[str, float]]:
    units = [unit["id"] for report in reports.values() for unit in report.data["circuit"]["units"]]
    return {side: {name: kept[name] for name in units} for side, kept in zip(SIDES, (one, two), strict=True)}


def _point(name: str, values: list[float], reports: Mapping[str, Report]) -> dict[str, Any]:
    """Return a coordinate with its values, its role in the circuit that has it, and which circuits these are."""
    roles = {
        side: unit["role"]
        for side, report in reports.items()
        for unit in report.data["circuit"]["units"]
        if unit["id"] == name
    }
    circuits = "neither" if not roles else "both" if len(roles) == 2 else next(iter(roles))
    role = next(iter(roles.values()), "auxiliary")
    return {"id": name, "role": role, "circuits": circuits, **dict(zip(SIDES, values, strict=True))}
