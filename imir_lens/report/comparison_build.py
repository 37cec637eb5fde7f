"""`compare`: two circuit reports beside each other."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from imir_lens.created_with import created_with
from imir_lens.report.comparison_caveats import caveats, ids_correspond, same_report
from imir_lens.report.comparison_coordinates import compared_coordinates
from imir_lens.report.comparison_document import SCHEMA, Comparison
from imir_lens.report.comparison_units import jaccards, match_units, unit_rows
from imir_lens.report.comparison_words import headline
from imir_lens.report.document import Report
from imir_lens.report.validation import ReportError

_LEFT_OUT: Final = ("coordinates", "examples", "trajectory")
_OTHERS: Final = {
    "imir-lens/verification": "a verification of `imir-lens verify`",
    "imir-lens/atlas": "a table of heads of `imir-lens heads`",
    "imir-lens/trajectory": "a trajectory of `imir-lens trajectory`",
    "imir-lens/comparison": "a comparison of `imir-lens compare`",
}
_FILES: Final = ("report.json", "atlas.json", "trajectory.json", "comparison.json")
_ANALYSE: Final = "expected a report; make one first with `imir-lens analyze {} --out DIR`"
_WEIGHTS: Final = (".pt", ".pth", ".safetensors", ".gguf")


def compare(first: Report | str | Path, second: Report | str | Path, *, command: str | None = None) -> Comparison:
    """Compare two circuit reports: two models, or two checkpoints of one run.

    Nothing is computed anew: everything comes from the reports, and from the coordinates saved beside them.

    Args:
        first: a report, its directory, or its report.json; called A in what comes out.
        second: another one; B.
        command: what to print as the origin (default: this call).

    Returns:
        The comparison: `comparison.headline`, `comparison.units`, `comparison.save(directory)`.

    Raises:
        ReportError: when one of them is missing, damaged, or something else than a circuit report.
    """
    one, two = _opened(first), _opened(second)
    call = f"imir_lens.compare({_origin(first)}, {_origin(second)})"
    return Comparison(comparison_data(one, two, command=command or call))


def comparison_data(first: Report, second: Report, *, command: str) -> dict[str, Any]:
    """Return the comparison of two reports as plain data.

    Args:
        first: a report.
        second: another one.
        command: the command line, or call, that asked for it.
    """
    one, two = first.data, second.data
    units = one["circuit"]["units"], two["circuit"]["units"]
    by_id = ids_correspond(one, two)
    coordinates, values = compared_coordinates(first, second, by_id=by_id)
    data = {
        "schema": SCHEMA,
        "created_with": created_with(),
        "command": command,
        "same_report": same_report(one, two),
        "headline": "",
        "caveats": caveats(one, two),
        "by_id": by_id,
        "jaccard": jaccards(*units, by_id=by_id),
        "units": unit_rows(match_units(*units, by_id=by_id), values),
        "coordinates": coordinates,
        "first": _side(one),
        "second": _side(two),
    }
    return {**data, "headline": headline(data)}


def _side(report: Mapping[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in report.items() if name not in _LEFT_OUT}


def _origin(given: Report | str | Path) -> str:
    return repr(str(given)) if isinstance(given, str | Path) else f"Report of {given.data['model']['source']!r}"


def _opened(given: Report | str | Path) -> Report:
    """Read a report, and say what else it is where it is something else."""
    if isinstance(given, Report):
        Report.check(given.data)
        return given
    place = Path(given)
    if place.is_dir():
        names = [name for name in _FILES if (place / name).is_file()]
        if not names and (place / "run.json").is_file():
            raise ReportError(f"{str(place)!r} is a run of training: {_ANALYSE.format(place)}")
        place = place / (names[0] if names else "report.json")
    elif place.suffix in _WEIGHTS:
        raise ReportError(f"{str(place)!r} is a checkpoint: {_ANALYSE.format(place)}")
    kind = _kind(place)
    if kind:
        raise ReportError(f"{str(given)!r} is {kind}: expected a circuit report, of `imir-lens analyze`")
    return Report.load(place)


def _kind(place: Path) -> str:
    """Say what a file is that is not a circuit report; empty where `Report.load` can tell."""
    try:
        data = json.loads(place.read_bytes())
    except (OSError, ValueError, RecursionError):
        return ""
    schema = str(data.get("schema", "")).rpartition("/")[0] if isinstance(data, dict) else ""
    return _OTHERS.get(schema, "")
