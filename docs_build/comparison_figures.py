"""The figures in docs/comparison.md, from the stored results of the planted benchmark."""

import json
import re
from pathlib import Path
from typing import Any

from docs_build.markdown import table

_ROOT = Path(__file__).parents[1]
_DETECTORS = {
    "ours": "imir_lens",
    "EAP-IG (our implementation)": "EAP-IG (our implementation)",
    "integrated edge gradients (AutoCircuit)": "integrated edge gradients (AutoCircuit)",
    "ACDC (AutoCircuit)": "ACDC (AutoCircuit)",
    "EAP (TransformerLens)": "EAP (TransformerLens)",
    "EAP (AutoCircuit)": "EAP (AutoCircuit)",
    "magnitude (true k)": "largest coordinates, as many as planted",
    "random": "random",
}
_COLUMNS = {
    "f1": "F1, coordinates",
    "head_auc": "ROC AUC, heads",
    "edge_auc": "ROC AUC, edges",
    "evaluations": "Evaluations",
    "seconds / ours (median)": "Seconds / ours (median)",
}
_SHAPES = ((2, 2, 128), (3, 2, 128), (5, 2, 128), (5, 4, 128), (3, 2, 64), (3, 2, 512))


def page() -> str:
    """Return the page with its figures filled in."""
    text = (_ROOT / "docs" / "comparison.md").read_text(encoding="utf-8")
    block = f"<!-- figures -->\n{_figures()}\n<!-- /figures -->"
    return re.sub(r"<!-- figures -->\n.*?<!-- /figures -->", lambda found: block, text, flags=re.DOTALL)


def _figures() -> str:
    stored = json.loads((_ROOT / "benchmarks" / "results" / "planted.json").read_text(encoding="utf-8"))
    titles = list(stored["tables"])
    rows = {row["detector"]: row for row in stored["tables"][titles[0]]}
    quality = [[name, *(_cell(rows[key].get(column)) for column in _COLUMNS)] for key, name in _DETECTORS.items()]
    growth = next(rows for title, rows in stored["tables"].items() if title.startswith("growth"))
    peers = ("EAP-IG (our implementation)", "ACDC (AutoCircuit)")
    shapes = [
        [row["layers"], row["heads"], row["width"], *(_cell(row[peer]) for peer in peers)]
        for shape in _SHAPES
        for row in growth
        if (row["layers"], row["heads"], row["width"]) == shape
    ]
    return "\n".join(
        [
            "",
            *table(["Detector", *_COLUMNS.values()], quality),
            "",
            "Seconds of the other, over ours, by the shape of the model:",
            "",
            *table(["Layers", "Heads", "Width", *peers], shapes),
            "",
        ]
    )


def _cell(value: Any) -> str:
    return "" if value is None else f"{value:.3g}"
