"""What is known about models of a task: from the stored results, or where to read on."""

import json
from pathlib import Path
from typing import Any

from docs_build.markdown import table

_RESULTS = Path(__file__).parents[1] / "benchmarks" / "results"
# Families of the planted benchmark that are about a task.
_FAMILIES = {
    "recall": ("recall in-context", "recall memory", "recall mixed"),
    "hop": ("2-hop", "3-hop"),
    "ngram": ("3-gram",),
    "retrieval": ("retrieval",),
    "inversion": ("inversion",),
    "copy": ("copy",),
    "ioi": ("ioi", "ioi, no gap"),
}
_ELSEWHERE = {
    "inversion": "None is among the stored ones: `imir-lens train inversion --out RUN` makes one. A small language "
    "model does not do it: it gives the word that stood after the query's, as an induction head would "
    "([its words](../language_models_tasks.md#what-smollm2-135m-does)).",
    "copy": "None is among the stored ones: `imir-lens train copy --out RUN` makes one. What a small language model "
    "does of it is in [its words](../language_models_tasks.md#what-smollm2-135m-does).",
    "repeated": "A small language model does it, in random tokens better than in words "
    "([figures](../language_models_tasks.md#what-smollm2-135m-does)); the heads that carry it are named from the "
    "weights ([figures](../language_models.md#the-weights-name-the-heads-that-patterns-show)).",
    "causal_tree": "A causal transformer comes within 0.01 nats of the posterior's loss over parents, and its scores "
    "become log pi column by column ([figures](../causal_experiments.md#trained-models)); an ordinary transformer on "
    "the flattened episodes is looked at in [the same page](../causal_experiments.md#ordinary-transformers). "
    "`imir-lens verify RUN --out DIR` [judges your own](../verify.md).",
    "lag_chain": "The exact construction, and what happens when it is sharpened, are in "
    "[the experiments](../causal_experiments.md#selective-induction).",
    "fixed_graph": "Models trained on it are a negative control: `verify` does not detect averaging in them "
    "([figures](../causal_experiments.md#controls)).",
    "linear_dynamics": "What a causal transformer learns, for vectors with and without a norm of 1, is in "
    "[the experiments](../causal_experiments.md#vectors).",
}


def _stored(name: str) -> dict[str, Any]:
    return json.loads((_RESULTS / f"{name}.json").read_text(encoding="utf-8"))


def trained_model(name: str) -> str:
    """Return what a model does that was trained on a task."""
    stored = _stored("trained")
    rows = [row for row in stored["rows"] if row["task"] == name]
    if not rows:
        return _ELSEWHERE[name]
    row = rows[0]
    units = [[f"`{u['unit']}`", u["how"], f"`{u['found']}`" if u["found"] else "", _share(u)] for u in row["reference"]]
    knobs = ", ".join(f"{knob}={'none' if value is None else value}" for knob, value in row["knobs"].items())
    model = row["model"]
    return "\n".join(
        [
            f"One model with {model['n_layers']} layer{'s' if model['n_layers'] > 1 else ''} and {model['n_heads']} "
            f"head{'s' if model['n_heads'] > 1 else ''} a layer, trained with {row['training']['steps']} steps at",
            f"{knobs}. {row['text']} Evidence: {row['level']}.",
            "",
            *table(["Reference", "In the model", "As", "Share of the loss gap when removed"], units),
            "",
            f"Units beyond the reference: {len(row['extra'])}. Command `{stored['command']}`, seed {stored['seed']};",
            "[What trained models do](../findings.md) discusses it.",
        ]
    )


def _share(unit: dict[str, Any]) -> str:
    return "" if unit["share"] is None else f"{unit['share']:.2g}"


def found_when_planted(name: str) -> list[str]:
    """Return how well circuits of a task are found where they were planted."""
    if name not in _FAMILIES:
        return []
    stored = _stored("planted")
    tables = [rows for title, rows in stored["tables"].items() if title.endswith("by family")]
    rows = [
        [row["family"], row["models"], f"{row['F1, ours']:.3f}", f"{row['ours']:.3f}"]
        for row in tables[0]
        if row["family"] in _FAMILIES[name]
    ]
    return [
        "## When its circuit is planted",
        "",
        *table(["Circuit", "Models", "F1 of coordinates", "ROC AUC of edges"], rows),
        "",
        f"Command `{stored['command']}`, seed {stored['seed']}; [all detectors](../benchmarks.md#planted).",
    ]
