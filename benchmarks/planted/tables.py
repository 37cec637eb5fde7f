"""The benchmark's tables: by detector; F1 and AUC by noise and by decoy; cost by size."""

from collections.abc import Callable, Sequence
from statistics import median
from typing import Any

Row = dict[str, Any]


def tables(rows: Sequence[Row]) -> dict[str, list[Row]]:
    """Return the tables by title."""
    scored = [row for row in rows if not row["excluded"]]
    design = [row for row in scored if row["part"] == "design"]
    names = list(dict.fromkeys(row["detector"] for row in scored))
    models = len(design) // len(names)
    excluded = sum(row["excluded"] for row in rows if row["part"] == "design")
    out = {f"{models} planted models ({excluded} more left out: accuracy < 0.9)": _by_detector(design, names)}
    for field in ("noise", "decoy", "family"):
        out[f"F1 of ours, and edge AUC of all, by {field}"] = _by_field(design, names, field)
    sizes = [row for row in scored if row["part"] == "sizes"]
    if sizes:
        out[
            "growth with size: seconds of ours, and how many times that the others take (recall in-context, noise 10 %)"
        ] = _growth(sizes, names)
    return out


def _by_detector(rows: Sequence[Row], names: Sequence[str]) -> list[Row]:
    ours = {_model(row): row["seconds"] for row in rows if row["detector"] == names[0]}
    out = []
    for name in names:
        mine = [row for row in rows if row["detector"] == name]
        ratios = [row["seconds"] / ours[_model(row)] for row in mine]
        means = {field: _mean(mine, field) for field in ("precision", "recall", "f1", "head_auc", "edge_auc", "cmd")}
        costs = {field: _mean(mine, field) for field in ("evaluations", "seconds")}
        out.append({"detector": name, **means, **costs, "seconds / ours (median)": median(ratios)})
    return out


def _by_field(rows: Sequence[Row], names: Sequence[str], field: str) -> list[Row]:
    out = []
    for value in dict.fromkeys(row[field] for row in rows):
        part = [row for row in rows if row[field] == value]
        mine = [row for row in part if row["detector"] == names[0]]
        line = {field: str(value), "models": len(mine), "F1, ours": _mean(mine, "f1")}
        line |= {name: _mean([row for row in part if row["detector"] == name], "edge_auc") for name in names}
        out.append(line)
    return out


def _growth(rows: Sequence[Row], names: Sequence[str]) -> list[Row]:
    out = []
    for row in rows:
        if row["detector"] != names[0]:
            continue
        same = {other["detector"]: other for other in rows if _model(other) == _model(row)}
        line = {"layers": row["n_layers"], "heads": row["n_heads"], "width": row["d_model"], "edges": row["edges"]}
        line["ours, seconds"] = row["seconds"]
        out.append(line | {name: same[name]["seconds"] / row["seconds"] for name in names[1:]})
    return out


def _model(row: Row) -> tuple[str, int]:
    return row["part"], row["seed"]


def _mean(rows: Sequence[Row], field: str, of: Callable[[Any], float] = float) -> float | None:
    values = [of(row[field]) for row in rows if row[field] is not None]
    return sum(values) / len(values) if values else None
