"""The units of two circuits beside each other: by id, and where heads differ by role and shape.

The heads of a layer are interchangeable, so two models may hold one mechanism in different heads: what no id matches
is matched by its shape (see `imir_lens.shapes`), the largest value first.
"""

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, Final

from imir_lens.figures.style import ROLES, base_role
from imir_lens.shapes import shape_jaccard, unit_shape

Unit = Mapping[str, Any]
Pair = tuple[str, Unit | None, Unit | None]
SIDES: Final = ("first", "second")


def match_units(first: Sequence[Unit], second: Sequence[Unit], *, by_id: bool) -> list[Pair]:
    """Return the union of the units of two circuits, in the order of their roles.

    Args:
        first: units of one circuit, as in report.json.
        second: those of the other.
        by_id: match equal ids before equal shapes; False where ids name heads of models that do not correspond.

    Returns:
        (how, unit of the first, unit of the second): how is `id`, `shape`, or the only side that has it.
    """
    pairs: list[Pair] = []
    theirs = {unit["id"]: unit for unit in second} if by_id else {}
    rest: list[Unit] = []
    for unit in first:
        if unit["id"] in theirs:
            pairs.append(("id", unit, theirs.pop(unit["id"])))
        else:
            rest.append(unit)
    taken = {pair[2]["id"] for pair in pairs if pair[2] is not None}
    waiting: dict[tuple[str, str], list[Unit]] = defaultdict(list)
    for unit in _by_value(unit for unit in second if unit["id"] not in taken):
        waiting[_shape(unit)].append(unit)
    for unit in _by_value(rest):
        same = waiting[_shape(unit)]
        pairs.append(("shape", unit, same.pop(0)) if same else ("first", unit, None))
    pairs += [("second", None, unit) for units in waiting.values() for unit in units]
    return sorted(pairs, key=_order)


def jaccards(first: Sequence[Unit], second: Sequence[Unit], *, by_id: bool) -> dict[str, float | None]:
    """Return the Jaccard indices of two circuits: of their ids, and of their shapes with multiplicity.

    Args:
        first: units of one circuit, as in report.json.
        second: those of the other.
        by_id: whether ids name the same heads in both.

    Returns:
        `id` and `shape`; None where an index says nothing: without a unit in either circuit, or for ids that do not
        correspond.
    """
    ids = [{unit["id"] for unit in units} for units in (first, second)]
    shapes = [Counter(map(_shape, units)) for units in (first, second)]
    union = ids[0] | ids[1]
    return {
        "id": len(ids[0] & ids[1]) / len(union) if union and by_id else None,
        "shape": shape_jaccard(*shapes) if union else None,
    }


def unit_rows(pairs: Sequence[Pair], values: Mapping[str, Mapping[str, float]]) -> list[dict[str, Any]]:
    """Return the pairs as the rows of comparison.json.

    Args:
        pairs: from `match_units`.
        values: for each side, the values of the coordinates that are known, by id: what a unit of one circuit is worth
            in the model whose circuit lacks it. Empty where ids do not correspond.
    """
    rows = []
    for how, *units in pairs:
        known = next(unit for unit in units if unit is not None)
        row: dict[str, Any] = {"role": known["role"], "match": how}
        for side, unit in zip(SIDES, units, strict=True):
            if unit is None:
                value = values[side].get(known["id"])
                row[side] = None if value is None else {"id": known["id"], "in_circuit": False, "value": value}
                continue
            row[side] = {
                "id": unit["id"],
                "in_circuit": True,
                "role": unit["role"],
                "value": unit["value"],
                "loss_if_removed": unit["loss_if_removed"]["model"],
            }
        present = [row[side]["value"] for side in SIDES if row[side] is not None]
        row["difference"] = present[1] - present[0] if len(present) == 2 else None
        rows.append(row)
    return rows


def _shape(unit: Unit) -> tuple[str, str]:
    return unit_shape(unit["role"], unit["id"])


def _by_value(units: Any) -> list[Unit]:
    return sorted(units, key=lambda unit: (-abs(unit["value"]), unit["id"]))


def _order(pair: Pair) -> tuple[int, str, float, str]:
    """Roles in their usual order; within one what both have first, then the larger value."""
    unit = pair[1] or pair[2]
    assert unit is not None
    role = base_role(unit["role"])
    place = ROLES.index(role) if role in ROLES else len(ROLES)
    kind = {"id": "0", "shape": "1", "first": "2", "second": "3"}[pair[0]]
    return place, kind, -abs(unit["value"]), unit["id"]
