"""`imir-lens report`: all pages and figures again from a report's JSON; the last words of `analyze` and `verify`."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from imir_lens.commands.colours import styled
from imir_lens.commands.shared import PLACE, Output, command

if TYPE_CHECKING:
    from imir_lens.report.document import Report
    from imir_lens.report.verification_document import VerificationReport


@click.command()
@click.argument("directory", metavar="DIR", type=PLACE)
@command
def report(directory: Path, say: Output, device: str | None) -> None:
    """Rebuild the pages, tables and figures in DIR from its report, atlas, trajectory or comparison JSON."""
    if (directory / "atlas.json").is_file():
        from imir_lens.commands.heads import result_of as atlas_result
        from imir_lens.report.atlas_document import Atlas

        say.result(*atlas_result(Atlas.rebuild(directory), directory))
    elif (directory / "trajectory.json").is_file():
        from imir_lens.commands.trajectory import result_of as trajectory_result
        from imir_lens.report.trajectory_document import Trajectory

        say.result(*trajectory_result(Trajectory.rebuild(directory), directory))
    elif (directory / "comparison.json").is_file():
        from imir_lens.commands.compare import result_of as comparison_result
        from imir_lens.report.comparison_document import Comparison

        say.result(*comparison_result(Comparison.rebuild(directory), directory))
    elif _is_verification(directory):
        from imir_lens.report.verification_document import VerificationReport

        say.result(*verification_result(VerificationReport.rebuild(directory), directory))
    else:
        from imir_lens.report.document import Report

        say.result(*result_of(Report.rebuild(directory), directory))


def _is_verification(directory: Path) -> bool:
    try:
        data = json.loads((directory / "report.json").read_bytes())
    except (OSError, ValueError, RecursionError):
        return False
    return isinstance(data, dict) and str(data.get("schema", "")).startswith("imir-lens/verification/")


def result_of(report: "Report", directory: Path) -> tuple[dict[str, Any], list[str]]:
    """Return a report's gist, as JSON values (named as in report.json) and as lines."""
    units = report.data["circuit"]["units"]
    found = [f"{unit['role']:<10} {unit['value']:+8.2f}  {unit['id']}" for unit in units]
    return _gist(report.data, directory, ("circuit",), found)


def verification_result(report: "VerificationReport", directory: Path) -> tuple[dict[str, Any], list[str]]:
    """Return a verification's gist, as JSON values (named as in report.json) and as lines."""
    checks = [_check(check) for check in report.data["verdict"]["checks"]]
    return _gist(report.data, directory, ("behaviour", "parameters", "mechanism"), checks)


def _gist(
    data: Mapping[str, Any], directory: Path, parts: Sequence[str], found: Sequence[str]
) -> tuple[dict[str, Any], list[str]]:
    """Return the gist of either kind of report: its own parts among the JSON values, what it found among the lines."""
    verdict, page = data["verdict"], directory / "report.html"
    keys = ("command", "seed", "model", "task", "evaluation", *parts, "verdict")
    lines = [
        f"verdict   {_coloured(verdict['mechanism'])}",
        f"evidence  {verdict['evidence_level']}",
        "",
        verdict["text"],
        *(f"  {line}" for line in found),
        *(f"Caveat: {caveat}" for caveat in verdict["caveats"]),
        "",
        f"report    {page}",
    ]
    return {"out": str(directory), "report": str(page), **{key: data[key] for key in keys}}, lines


def _coloured(mechanism: str) -> str:
    return styled(mechanism, fg="yellow" if mechanism == "not_detected" else "green", bold=True)


def _check(check: dict[str, Any]) -> str:
    found = "not measured" if check["found"] is None else f"{check['found']:.3f}"
    bound = f"{'>=' if check['at_least'] else '<='} {check['threshold']:g}"
    return f"{'yes' if check['holds'] else 'NO':<4} {found:>12} {bound:>8}  {check['level']}: {check['asked']}"
