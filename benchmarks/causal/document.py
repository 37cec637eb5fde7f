"""`python -m benchmarks.causal.document` fills the tables of docs/causal_experiments.md from the stored results.

A table follows a line `<!-- NAME: column | column | … -->`, which names one of the stored tables; a test compares.
"""

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from benchmarks.measure import RESULTS
from benchmarks.page_tables import markdown_table

DOCUMENT = Path(__file__).parents[2] / "docs" / "causal_experiments.md"
_MARK = re.compile(r"^(<!-- (?P<name>[^:\n]+): (?P<columns>[^\n]+) -->\n)(?P<table>(?:\|[^\n]*\n)*)", re.MULTILINE)


def filled(text: str, tables: Mapping[str, Sequence[Mapping[str, Any]]]) -> str:
    """Return the page with its tables replaced by what is stored."""

    def table(mark: re.Match[str]) -> str:
        columns = [column.strip() for column in mark["columns"].split(" | ")]
        return mark[1] + "".join(f"{line}\n" for line in markdown_table(tables[mark["name"]], columns, _cell))

    return _MARK.sub(table, text)


def stored_tables() -> dict[str, list[dict[str, Any]]]:
    """Return the tables that the benchmark stored."""
    found: dict[str, list[dict[str, Any]]] = json.loads((RESULTS / "causal.json").read_text())["tables"]
    return found


def _cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if not isinstance(value, float):
        return str(value)
    return f"{value:.4f}" if 1e-3 <= abs(value) < 100 or value == 0 else f"{value:.1e}"


if __name__ == "__main__":
    DOCUMENT.write_text(filled(DOCUMENT.read_text(encoding="utf-8"), stored_tables()), encoding="utf-8")
