"""`python -m benchmarks.dynamics_document` fills the tables of docs/dynamics.md from the stored results.

A table follows a line `<!-- BENCHMARK, NAME: column | column | … -->`, which names one of the tables that a benchmark
stored; a test compares.
"""

import json
import re
from pathlib import Path
from typing import Any

from benchmarks.measure import RESULTS
from benchmarks.page_tables import markdown_table

DOCUMENT = Path(__file__).parents[1] / "docs" / "dynamics.md"
_MARK = re.compile(
    r"^(<!-- (?P<benchmark>\w+), (?P<name>[^:\n]+): (?P<columns>[^\n]+) -->\n)(?P<table>(?:\|[^\n]*\n)*)", re.MULTILINE
)


def filled(text: str) -> str:
    """Return the page with its tables replaced by what is stored."""

    def table(mark: re.Match[str]) -> str:
        stored = json.loads((RESULTS / f"{mark['benchmark']}.json").read_text(encoding="utf-8"))["tables"]
        columns = [column.strip() for column in mark["columns"].split(" | ")]
        return mark[1] + "".join(f"{line}\n" for line in markdown_table(stored[mark["name"]], columns, _cell))

    return _MARK.sub(table, text)


def _cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if not isinstance(value, float):
        return str(value)
    return f"{value:.3g}" if value == 0 or 1e-3 <= abs(value) < 1e4 else f"{value:.1e}"


if __name__ == "__main__":
    DOCUMENT.write_text(filled(DOCUMENT.read_text(encoding="utf-8")), encoding="utf-8")
