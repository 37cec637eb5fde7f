"""`python -m benchmarks.language_models` puts the stored tables into docs/language_models.md; a test compares them."""

import json
import re
from pathlib import Path
from typing import Any

from benchmarks.measure import RESULTS
from benchmarks.page_tables import markdown_table

PAGE = Path(__file__).parents[1] / "docs" / "language_models.md"
STORED = RESULTS / "atlas.json"


def filled(text: str, result: dict[str, Any]) -> str:
    """Return the page with the table after each mark `<!-- table: NAME -->` replaced by the stored one."""

    def table(match: re.Match[str]) -> str:
        rows = result["tables"][match[1]]
        return f"<!-- table: {match[1]} -->\n\n" + "\n".join(markdown_table(rows, list(rows[0]), _cell)) + "\n\n"

    return re.sub(r"<!-- table: ([^>]+) -->\n+(?:\|.*\|\n)*\n*", table, text)


def _cell(value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, float):
        return f"{value:.3f}".rstrip("0").rstrip(".") if abs(value) < 10 else f"{value:.1f}"
    return str(value)


if __name__ == "__main__":
    stored = json.loads(STORED.read_text(encoding="utf-8"))
    PAGE.write_text(filled(PAGE.read_text(encoding="utf-8"), stored), encoding="utf-8")
