"""`imir-lens report`: HTML, Markdown and figures again from report.json; and what `analyze` says at its end."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from imir_lens.commands.shared import PLACE, Output, command

if TYPE_CHECKING:
    from imir_lens.report.document import Report


@click.command()
@click.argument("directory", metavar="DIR", type=PLACE)
@command
def report(directory: Path, say: Output, device: str | None) -> None:
    """Rebuild HTML, Markdown and figures in DIR from its report.json."""
    from imir_lens.report.document import Report

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
