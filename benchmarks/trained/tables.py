"""The rows of the trained models, summed up for reading."""

from collections.abc import Mapping, Sequence
from typing import Any

_MOST_EXTRA = 5


def tables(rows: Sequence[Mapping[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    """Return a line a model, a line a reference unit, and the costliest units beyond the reference."""
    extra = [line for row in rows for line in _beyond(row)]
    found = {"trained models": [_model(row) for row in rows], "reference units": [u for r in rows for u in _units(r)]}
    return {**found, **({"units beyond the reference": extra} if extra else {})}


def _model(row: Mapping[str, Any]) -> dict[str, Any]:
    shares = [unit["share"] for unit in row["extra"]]
    return {
        "task": row["task"],
        "steps": row["training"]["steps"],
        "seconds": row["training seconds"],
        "accuracy": row["accuracy"],
        "Bayes": row["bayes accuracy"],
        "loss": row["loss"],
        "verdict": f"{row['mechanism']} ({row['level']})",
        "roles": ", ".join(f"{count} {role}" for role, count in row["roles"].items()),
        "matched": f"{row['found']}+{row['equivalent']}/{len(row['reference'])}",
        "extra": len(shares),
        "largest share": max(shares, default=None),
        "circuit alone": row["circuit accuracy"],
        "without it": row["accuracy without"],
    }


def _units(row: Mapping[str, Any]) -> list[dict[str, Any]]:
    names = ("unit", "how", "found", "share")
    return [{"task": row["task"], **{name: unit[name] for name in names}} for unit in row["reference"]]


def _beyond(row: Mapping[str, Any]) -> list[dict[str, Any]]:
    names = ("unit", "role", "value", "share")
    return [{"task": row["task"], **{name: unit[name] for name in names}} for unit in row["extra"][:_MOST_EXTRA]]
