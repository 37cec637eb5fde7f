"""The table of docs/findings.md is what the benchmark stored."""

import json
import re
from pathlib import Path

ROOT = Path(__file__).parents[1]
TEXT = (ROOT / "docs" / "findings.md").read_text(encoding="utf-8")
STORED = json.loads((ROOT / "benchmarks" / "results" / "trained.json").read_text(encoding="utf-8"))


def _line(row: dict) -> str:
    scores = [f"{row[name]:.3f}" for name in ("accuracy", "circuit accuracy", "accuracy without")]
    found = f"{row['found']} of {len(row['reference'])}"
    cells = [row["task"], str(row["training"]["steps"]), *scores, found, str(len(row["extra"])), row["level"]]
    return f"| {' | '.join(cells)} |"


def test_the_table_of_findings_is_what_is_stored() -> None:
    lines = re.findall(r"^\| (?!task|---).*\|$", TEXT, re.MULTILINE)
    assert lines == [_line(row) for row in STORED["rows"]]
    assert STORED["command"] in TEXT
    assert f"Seed {STORED['seed']}," in TEXT


def test_the_verdicts_that_the_page_speaks_of_are_those_stored() -> None:
    assert {row["mechanism"] for row in STORED["rows"]} == {"in_context"}
    assert {row["bayes accuracy"] for row in STORED["rows"]} == {1.0}
    assert sum(unit["how"] == "missing" for row in STORED["rows"] for unit in row["reference"]) == 1
