"""The page of all numbers: what was measured, what came out, with which command, and which test holds it."""

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

from docs_build.markdown import MADE, table

_RESULTS = Path(__file__).parents[1] / "benchmarks" / "results"
_DOCS = Path(__file__).parents[1] / "docs"
Rows = list[dict[str, Any]]

# What a benchmark says in one line, from its stored result; and the page with its tables.
_HEADLINES: dict[str, tuple[str, Callable[[dict[str, Any]], str]]] = {
    "detection": (
        "benchmarks.md#detection",
        lambda stored: (
            f"{len(stored['rows'])} models of up to {_most(stored['rows'], 'coordinates'):,} coordinates: at "
            f"most {_most(stored['rows'], 'evaluations / (circuit · log2 coordinates)'):.2f} k log n evaluations"
        ),
    ),
    "surrogate_forward": (
        "benchmarks.md#surrogate-forward",
        lambda stored: (
            "a surrogate's forward pass takes "
            f"{_least(stored['rows'], 'surrogate, circuit / model'):.2g} to "
            f"{_most(stored['rows'], 'surrogate, all / model'):.2g} of the model's time"
        ),
    ),
    "elimination": (
        "benchmarks.md#elimination",
        lambda stored: (
            "one-by-one elimination takes "
            f"{_least(stored['rows'], 'evaluations, exhaustive / ours'):.0f} to "
            f"{_most(stored['rows'], 'evaluations, exhaustive / ours'):.0f} times the evaluations"
        ),
    ),
    "sampling": (
        "benchmarks.md#sampling",
        lambda stored: (
            f"tasks are sampled at least {_least(stored['rows'], 'sampling / training'):.1f} times as fast as a "
            "model trains on them"
        ),
    ),
    "planted": ("benchmarks.md#planted", lambda stored: _planted(stored["tables"])),
    "stability": ("benchmarks.md#stability", lambda stored: _stability(stored["tables"])),
    "trained": (
        "findings.md",
        lambda stored: ", ".join(
            f"{row['task']}: {row['found']} of {len(row['reference'])} reference units" for row in stored["rows"]
        ),
    ),
    "causal": (
        "causal_experiments.md",
        lambda stored: (
            f"trained models are {_least(stored['tables']['trained'], 'gap'):.4f} to "
            f"{_most(stored['tables']['trained'], 'gap'):.4f} nats above the posterior's loss over parents"
        ),
    ),
    "atlas": (
        "language_models.md",
        lambda stored: (
            "induction heads of SmolLM2-135M from its weights: AUC "
            f"{stored['tables']['weights against patterns'][0]['auc']:.3f} against their attention"
        ),
    ),
}
# Figures that no stored benchmark holds: what, the command, the page, the test that compares.
_OTHERS = (
    (
        "verdict, circuit and losses of the checkpoints in `tests/data`",
        "imir-lens analyze tests/data/recall_2l.pt --task recall --out report",
        "[README](../README.md)",
        "`test_documentation.py`",
    ),
    (
        "which features are exact, approximate or refused",
        "python tests/support/support_matrix.py",
        "[What is supported](support.md)",
        "`support/test_support_matrix.py`",
    ),
    (
        "tasks in a language model's words",
        "python examples/tasks_in_a_language_model.py",
        "[Our tasks in a language model's words](language_models_tasks.md#what-smollm2-135m-does)",
        "`test_language_model_example.py`",
    ),
    (
        "Bayes and chance losses of a task, its context and circuit",
        "imir-lens tasks NAME",
        "[Tasks](tasks/index.md)",
        "`test_generated_pages.py`",
    ),
)


def page() -> str:
    """Return the page."""
    stored = {path.stem: json.loads(path.read_text(encoding="utf-8")) for path in sorted(_RESULTS.glob("*.json"))}
    rows = [[name, *_row(name, result)] for name, result in stored.items()]
    others = [[what, f"`{command}`", where, test] for what, command, where, test in _OTHERS]
    return "\n".join(
        [
            "# Numbers",
            "",
            MADE,
            "",
            "Every figure in these pages comes from a command. Those below store what they measure in",
            "`benchmarks/results`; the pages' tables are filled in from there, and tests compare the two. Times are of",
            "one thread; machines differ, so read ratios. Losses are in nats.",
            "",
            *table(["Benchmark", "In one line", "Command", "Seed", "Tables"], rows),
            "",
            "`--small` after a command tries it at a small size and stores nothing. Without a name,",
            "`python -m benchmarks` runs them all, which takes hours.",
            "",
            "## Other figures",
            "",
            *table(["What", "Command", "Where", "Compared by"], others),
            "",
        ]
    )


def _row(name: str, stored: dict[str, Any]) -> list[Any]:
    where, headline = _HEADLINES.get(name, (_where(name), lambda stored: "see the tables"))
    link = f"[{where.partition('#')[0]}]({where})" if where else "in `benchmarks/results`"
    return [headline(stored), f"`{stored['command']}`", stored["seed"], link]


def _where(name: str) -> str:
    """The page that has a benchmark's tables: its section among the benchmarks, or a page that names its command."""
    title = name.replace("_", " ").capitalize()
    if f"\n## {title}\n" in (_DOCS / "benchmarks.md").read_text(encoding="utf-8"):
        return f"benchmarks.md#{name.replace('_', '-')}"
    others = [path for path in sorted(_DOCS.glob("*.md")) if path.name != "numbers.md"]
    command = re.compile(rf"python -m benchmarks {name}\b")
    return next((path.name for path in others if command.search(path.read_text(encoding="utf-8"))), "")


def _most(rows: Rows, name: str) -> Any:
    return max(row[name] for row in rows)


def _least(rows: Rows, name: str) -> Any:
    return min(row[name] for row in rows)


def _planted(tables: dict[str, Rows]) -> str:
    title, rows = next(iter(tables.items()))
    ours = next(row for row in rows if row["detector"] == "ours")
    return f"{title.partition(' (')[0]}: F1 of the coordinates found {ours['f1']:.3f}"


def _stability(tables: dict[str, Rows]) -> str:
    pairs = tables["pairs of seeds"]
    spans = []
    for heads in sorted({row["heads a layer"] for row in pairs}):
        found = [row["whole circuits, mean Jaccard"] for row in pairs if row["heads a layer"] == heads]
        spans.append(f"{min(found):.2f} to {max(found):.2f} with {heads} head{'s' if heads > 1 else ''} a layer")
    return f"mean Jaccard index of the circuits of two seeds: {', '.join(spans)}"
