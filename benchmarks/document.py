"""`python -m benchmarks.document` writes docs/benchmarks.md from the stored results; a test compares the two."""

import inspect
import json
import re
import sys
from pathlib import Path
from typing import Any

from benchmarks.__main__ import BENCHMARKS
from benchmarks.measure import RESULTS
from benchmarks.page_tables import markdown_table

# These have pages of their own, with what the figures mean.
PAGES = {
    "trained": "findings.md",
    "causal": "causal_experiments.md",
    "atlas": "language_models.md",
    "batched": "dynamics.md",
    "coordinate_training": "dynamics.md",
    "pruning": "dynamics.md",
    "confinement": "dynamics.md",
    "competition": "dynamics.md",
    "initialisation": "dynamics.md",
    "trajectory": "dynamics.md",
    "emergence": "dynamics.md",
}
DOCUMENT = Path(__file__).parents[1] / "docs" / "benchmarks.md"

_INTRODUCTION = """\
# Benchmarks

Every table below was written by `python -m benchmarks.document` from `benchmarks/results`, which the command above the
table stores; `--small` gives a quick version that stores nothing. Times are of one thread. Machines differ, so read
ratios, not seconds. Losses are in nats.
"""


def document() -> str:
    """Return the page."""
    parts = [_INTRODUCTION]
    for name in BENCHMARKS:
        path = RESULTS / f"{name}.json"
        if name in PAGES:
            parts.append(f"## {name.capitalize()}\n\nOn a page of its own: [{PAGES[name]}]({PAGES[name]}).\n")
        elif path.exists():
            parts.append(_section(name, json.loads(path.read_text(encoding="utf-8"))))
    return "\n".join(parts)


def _section(name: str, result: dict[str, Any]) -> str:
    versions = ", ".join(f"{package} {version}" for package, version in result["versions"].items())
    lines = [f"## {name.replace('_', ' ').capitalize()}", "", _about(name), ""]
    lines += ["```sh", result["command"], "```", "", f"Seed {result['seed']}; {versions}.", ""]
    for title, rows in (result.get("tables") or {"": result["rows"]}).items():
        lines += [f"**{title[0].upper()}{title[1:]}**", ""] if title else []
        lines += [*markdown_table(rows, list(rows[0]), _cell), ""]
    return "\n".join(lines)


def _about(name: str) -> str:
    """The docstring of a benchmark's module, without the letter that some begin with."""
    text = inspect.getdoc(sys.modules[BENCHMARKS[name].__module__.removesuffix(".run")]) or ""
    return re.sub(r"^\([a-z]\) ", "", text)


def _cell(value: Any) -> str:
    if value is None:
        return ""
    text = f"{value:.3g}" if isinstance(value, float) else str(value)
    return text.replace("|", "\\|").replace("\n", " ")


if __name__ == "__main__":
    DOCUMENT.write_text(document(), encoding="utf-8")
