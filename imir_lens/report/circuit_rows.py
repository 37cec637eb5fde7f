"""A circuit as the rows of a report: what its figures and tables read, with or without a model to remove it from."""

from typing import TYPE_CHECKING, Any, Final

from imir_lens.report.words import describe
from imir_lens.roles import Unit, base_of

if TYPE_CHECKING:
    from imir_lens.detection import Circuit

MOST_COORDINATES: Final = 200


def unit_row(unit: Unit) -> dict[str, Any]:
    """Return id, role, value and what the unit does in words."""
    words = describe(str(unit.id), base_of(unit.role), unit.value)
    return {"id": str(unit.id), "role": unit.role, "value": unit.value, "words": words}


def coordinate_rows(circuit: "Circuit", most: int = MOST_COORDINATES) -> list[dict[str, Any]]:
    """Return the coordinates of largest attribution (of largest size where nothing was attributed), with the circuit's.

    Args:
        circuit: of a model.
        most: how many.
    """
    values = circuit.coordinates.values
    roles = {unit.place: unit.role for unit in circuit.units}
    size = circuit.attribution.abs() if bool((circuit.attribution != 0).any()) else values.abs()
    order = size.argsort(descending=True, stable=True)[:most].tolist()
    order = [place for place in order if values[place] != 0 or place in roles]
    missing = [place for place in roles if place not in order]
    order = order[: most - len(missing)] + missing
    return [
        {
            "id": str(circuit.coordinates.space.id(place)),
            # A role is a claim about the circuit; what is outside it claims nothing.
            "role": roles.get(place, "auxiliary"),
            "value": float(values[place]),
            "attribution": float(circuit.attribution[place]),
            "in_circuit": place in roles,
        }
        for place in order
    ]
