"""The rows of each experiment as the tables that are printed and stored."""

from collections.abc import Mapping, Sequence
from typing import Any

SHOWN = (1, 2, 3, 5, 10, 15, 20)  # L' in the generalisation table; the rows have all
_NESTED = ("part", "curve", "regression", "head list", "text")


def tables(rows: Sequence[Mapping[str, Any]]) -> dict[str, list[dict[str, Any]]]:
    """Return one table for each part; curves, regressions and heads become tables of their own."""
    found: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        part = row["part"]
        plain = {name: value for name, value in row.items() if name not in _NESTED}
        found.setdefault(part, []).extend(_curve(row) if "curve" in row else [plain])
        if "regression" in row:
            which = {"model": part.removeprefix("continuous, "), "unit norm": row["unit norm"], "L": row["L"]}
            found.setdefault("continuous, regression", []).append({**which, **row["regression"]})
        for head in row.get("head list", ()):
            found.setdefault(f"{part}, heads", []).append({"model": row["model"], "seed": row["seed"], **head})
    return found


def _curve(row: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [
        {"L (training)": row["L"], **point, "gap": point["L_pa"] - point["BMA"]}
        for point in row["curve"]
        if point["L'"] in SHOWN
    ]
