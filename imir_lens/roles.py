"""Roles: what a coordinate does in a circuit, in the field's terms.

- **alpha**: attends at a fixed offset, and another unit reads what it fetched ("look one back");
- **beta**: matches tokens ("match the token"): through an upstream head that moved them, or where they stand, when a
  gamma reads what its head attends to;
- **gamma**: copies the token a head attended to its own logit ("copy it");
- **delta**: raises the fixed associate of the current token ("memorised association");
- **auxiliary**: everything else a circuit needs.

alpha, beta, gamma and delta are positive coordinates; a head pushed *away* from something is auxiliary.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from imir_lens.coordinates import Coordinates
from imir_lens.ids import CoordinateId, Head, Path

BASE_ROLES = ("alpha", "beta", "gamma", "delta", "auxiliary")
ASSOCIATIONS = ("assoc", "assoc-reverse")
# Content is "moved" by a path when less than half of it, on average over queries, comes from the query's own position.
_STAYS = 0.5


@dataclass(frozen=True)
class Unit:
    """One coordinate of a circuit."""

    id: CoordinateId
    place: int
    role: str
    value: float


def base_role(
    unit: CoordinateId,
    value: float,
    circuit: Sequence[tuple[CoordinateId, float]],
    stay: Callable[[Path], float],
) -> str:
    """Return the base role of one coordinate as a member of a circuit.

    Args:
        unit: the coordinate.
        value: its value.
        circuit: ids and values of the circuit it belongs to (with or without itself).
        stay: mean share of a path's content that comes from the query's own position (1 for the empty path).
    """
    if value <= 0:
        return "auxiliary"
    if unit.head is not None:
        if unit.offset is not None and unit.offset != 0 and _is_read(unit.head, circuit):
            return "alpha"
        matches = unit.relation.startswith("same") and (_moves(unit, stay) or _is_copied(unit.head, circuit, stay))
        return "beta" if matches else "auxiliary"
    if unit.relation.startswith("same") and _moves(unit, stay):
        return "gamma"
    if unit.relation in ASSOCIATIONS and not _moves(unit, stay):
        return "delta"
    return "auxiliary"


def assign_roles(units: Sequence[tuple[CoordinateId, float]], stay: Callable[[Path], float]) -> dict[CoordinateId, str]:
    """Return each unit's role; a base role held in several layers is numbered in layer order (beta_1, beta_2)."""
    base = {unit: base_role(unit, value, units, stay) for unit, value in units}
    out = {}
    for unit, role in base.items():
        layers = sorted({_layer(other) for other, theirs in base.items() if theirs == role})
        numbered = role != "auxiliary" and len(layers) > 1
        out[unit] = f"{role}_{layers.index(_layer(unit)) + 1}" if numbered else role
    return out


def base_of(role: str) -> str:
    """Return the base of a numbered role: `beta_2` → `beta`."""
    return role.partition("_")[0]


def _moves(unit: CoordinateId, stay: Callable[[Path], float]) -> bool:
    return any(path.heads and stay(path) < _STAYS for path in unit.paths)


def _is_read(head: Head, circuit: Sequence[tuple[CoordinateId, float]]) -> bool:
    return any(head in path.heads for unit, _ in circuit for path in unit.paths)


def _is_copied(head: Head, circuit: Sequence[tuple[CoordinateId, float]], stay: Callable[[Path], float]) -> bool:
    """Whether a gamma of the circuit reads through the head."""
    return any(
        unit.head is None and base_role(unit, value, circuit, stay) == "gamma"
        for unit, value in circuit
        if any(head in path.heads for path in unit.paths)
    )


def _layer(unit: CoordinateId) -> int:
    if unit.head is not None:
        return unit.head.layer
    last = [path.heads[-1].layer for path in unit.paths if path.heads]
    return last[0] if last else -1


def units_of(coordinates: Coordinates, places: Sequence[int], stay: Callable[[Path], float]) -> tuple[Unit, ...]:
    """Return coordinates, by place, as the units of one circuit."""
    values = [(coordinates.space.id(place), float(coordinates.values[place])) for place in places]
    roles = assign_roles(values, stay)
    return tuple(Unit(name, place, roles[name], value) for place, (name, value) in zip(places, values, strict=True))
