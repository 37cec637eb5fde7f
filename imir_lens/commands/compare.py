"""`imir-lens compare`: two circuit reports beside each other."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from imir_lens.commands.shared import PLACE, Output, command, command_line
from imir_lens.errors import OptionError

if TYPE_CHECKING:
    from imir_lens.report.comparison_document import Comparison


@click.command()
@click.argument("first", type=PLACE)
@click.argument("second", type=PLACE)
@click.option("--out", type=PLACE, metavar="DIR", required=True, help="Where the comparison goes.")
@click.option("--force", is_flag=True, help="Replace an older comparison in DIR.")
@command
def compare(first: Path, second: Path, out: Path, force: bool, say: Output, device: str | None) -> None:
    """Compare two circuit reports: two models, or two checkpoints of one run.

    FIRST and SECOND are directories written by `imir-lens analyze`, or their report.json. Nothing is computed anew.
    """
    from imir_lens.report.storage import check_output

    if out.resolve() in {(path if path.is_dir() else path.parent).resolve() for path in (first, second)}:
        raise OptionError(f"--out {str(out)!r} is one of the two reports: give another directory")
    check_output(out, force=force)
    from imir_lens.report.comparison_build import compare as compare_reports

    found = compare_reports(first, second, command=command_line())
    found.save(out, force=force)
    say.result(*result_of(found, out))


def result_of(found: "Comparison", directory: Path) -> tuple[dict[str, Any], list[str]]:
    """Return a comparison's gist, as JSON values (named as in comparison.json) and as lines."""
    from imir_lens.report.comparison_tables import units_table
    from imir_lens.report.comparison_words import names

    data, page = found.data, directory / "comparison.html"
    one, two = names(data)
    lines = [data["headline"], "", f"  A  {one}", f"  B  {two}", ""]
    for row in units_table(data).rows:
        role, where, *units = row[:4]
        shown = dict.fromkeys(unit for unit in units if "/" in unit)
        lines.append(f"  {role:<10} {row[4]:>8} {row[5]:>8}  {where:<20} {'  '.join(shown)}")
    lines += [f"Caveat: {caveat}" for caveat in data["caveats"]]
    lines += ["", f"comparison {page}"]
    keys = ("command", "headline", "caveats", "same_report", "by_id", "jaccard", "units")
    rest = {name: data["coordinates"][name] for name in ("source", "reason", "cosine")}
    gist = {"out": str(directory), "page": str(page), **{key: data[key] for key in keys}, "coordinates": rest}
    return gist, lines
