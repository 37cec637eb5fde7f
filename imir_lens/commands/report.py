"""`imir-lens report`: HTML, Markdown and figures again from report.json; the last words of `analyze` and `verify`."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from imir_lens.commands.shared import PLACE, Output, command

if TYPE_CHECKING:
    from imir_lens.report.document import Report
    from imir_lens.report.verification_document import VerificationReport


@click.command()
@click.argument("directory", metavar="DIR", type=PLACE)
@command
def report(directory: Path, say: Output, device: str | None) -> None:
    """Rebuild HTML, Markdown and figures in DIR from its report.json."""
    from imir_lens.report.document import Report
    from imir_lens.report.verification_document import VerificationReport, is_verification

    if is_verification(directory):
        say.result(*verification_result(VerificationReport.rebuild(directory), directory))
        return
    say.result(*result_of(Report.rebuild(directory), directory))


def result_of(report: "Report", directory: Path) -> tuple[dict[str, Any], list[str]]:
    """Return a report's gist, as JSON values (named as in report.json) and as lines."""
    verdict, circuit = report.data["verdict"], report.data["circuit"]
    page = directory / "report.html"
    data = {
        "out": str(directory),
        "report": str(page),
        **{key: report.data[key] for key in ("command", "seed", "model", "task", "evaluation", "circuit", "verdict")},
    }
    lines = [
        f"verdict   {verdict['mechanism']}",
        f"evidence  {verdict['evidence_level']}",
        "",
        verdict["text"],
        *(f"  {unit['role']:<10} {unit['value']:+8.2f}  {unit['id']}" for unit in circuit["units"]),
        *(f"Caveat: {caveat}" for caveat in verdict["caveats"]),
        "",
        f"report    {page}",
    ]
    return data, lines


def verification_result(report: "VerificationReport", directory: Path) -> tuple[dict[str, Any], list[str]]:
    """Return a verification's gist, as JSON values (named as in report.json) and as lines."""
    verdict, page = report.data["verdict"], directory / "report.html"
    keys = ("command", "seed", "model", "task", "evaluation", "behaviour", "parameters", "mechanism", "verdict")
    data = {"out": str(directory), "report": str(page), **{key: report.data[key] for key in keys}}
    lines = [
        f"verdict   {verdict['mechanism']}",
        f"evidence  {verdict['evidence_level']}",
        "",
        verdict["text"],
        *(f"  {_check(check)}" for check in verdict["checks"]),
        *(f"Caveat: {caveat}" for caveat in verdict["caveats"]),
        "",
        f"report    {page}",
    ]
    return data, lines


def _check(check: dict[str, Any]) -> str:
    found = "not measured" if check["found"] is None else f"{check['found']:.3f}"
    bound = f"{'>=' if check['at_least'] else '<='} {check['threshold']:g}"
    return f"{'yes' if check['holds'] else 'NO':<4} {found:>12} {bound:>8}  {check['level']}: {check['asked']}"
