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
        if "curve" in row:
            found.setdefault(part, []).extend(_curve(row))
        else:
            found.setdefault(part, []).append({name: value for name, value in row.items() if name not in _NESTED})
        if "regression" in row:
            which = {"model": part.removeprefix("continuous, "), "unit norm": row["unit norm"], "L": row["L"]}
            found.setdefault("continuous, regression", []).append({**which, **row["regression"]})
        for head in row.get("head list", ()):
            found.setdefault(f"{part}, heads", []).append({"model": row["model"], "seed": row["seed"], **head})
    if any("curve" in row for row in rows):
        last = [row for row in rows if "curve" in row][-1]
        # Of no model: the episodes are the same for all.
        found[last["part"]] += [_line("BMA", "", last, "BMA"), _line("all candidates alike", "", last, "uniform")]
    return found


def _curve(row: Mapping[str, Any]) -> list[dict[str, Any]]:
    return [
        _line("model", row["L"], row, "L_pa"),
        _line("BMA of the nearest L", row["L"], row, "BMA, nearest L"),
    ]


def _line(whose: str, examples: int | str, row: Mapping[str, Any], column: str) -> dict[str, Any]:
    points = {f"L' = {count}": point[column] for point in row["curve"] if (count := point["L'"]) in SHOWN}
    return {"L_pa of": whose, "L": str(examples), **points}
