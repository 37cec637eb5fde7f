"""A circuit's and a model's coordinates, as figures and as cards for a notebook, before any model is ablated."""

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from imir_lens.figures.attribution import attribution_chart
from imir_lens.figures.circuit_graph import Effects, units_graph
from imir_lens.figures.coordinate_matrix import coordinate_matrix
from imir_lens.figures.figure import Figure
from imir_lens.figures.style import number
from imir_lens.ids import Head
from imir_lens.report.cards import Card, card_name
from imir_lens.report.circuit_rows import coordinate_rows, unit_row
from imir_lens.report.summary import KeyNumber
from imir_lens.report.tables import Column, Table
from imir_lens.report.words import describe

if TYPE_CHECKING:
    from imir_lens.coordinates import Coordinates
    from imir_lens.detection import Circuit

SHOWN: Final = 12
"""Coordinates listed on a card."""
READOUT: Final = "readout"


def circuit_figures(circuit: "Circuit") -> dict[str, Callable[[], Figure]]:
    """Return what draws each figure of a circuit: `circuit`, `attribution`, each head by its name, `readout`.

    Args:
        circuit: of a model.
    """
    roles = {str(unit.id): unit.role for unit in circuit.units}
    return {
        "circuit": partial(_circuit, circuit),
        "attribution": partial(_attribution, circuit),
        **coordinate_figures(circuit.coordinates, roles),
    }


def coordinate_figures(
    coordinates: "Coordinates", roles: dict[str, str] | None = None
) -> dict[str, Callable[[], Figure]]:
    """Return what draws the coordinates of each head, by its name, and of the `readout`.

    Args:
        coordinates: of a model.
        roles: role of each coordinate of a circuit, by id.
    """
    heads: dict[str, Head | None] = {str(head): head for head in coordinates.space.paths.heads}
    return {name: partial(_matrix, coordinates, head, roles) for name, head in (heads | {READOUT: None}).items()}


def circuit_card(circuit: "Circuit") -> Card:
    """Return what a notebook shows of a circuit.

    Args:
        circuit: of a model.
    """
    units = len(circuit.units)
    total = f"of {circuit.coordinates.space.n_active:,} coordinates" + (", minimal" if circuit.minimal else "")
    numbers = [
        KeyNumber("units", str(units), total),
        KeyNumber("loss with the circuit only", number(circuit.surrogate.loss), "nats, in the surrogate"),
        KeyNumber("with all coordinates", number(circuit.projection.loss), "nats"),
        KeyNumber("with none", number(circuit.nothing.loss), "nats"),
        KeyNumber("evaluations", str(circuit.evaluations), f"and {circuit.gradient_passes} gradient passes"),
    ]
    table = Table(
        "Units, by attribution: their share of the fall of the surrogate's loss",
        (
            Column("role", "role"),
            Column("unit", "code"),
            Column("value (nats)", "number"),
            Column("attribution (nats)", "number"),
            Column("what it does"),
        ),
    )
    for unit in circuit.units:
        row = unit_row(unit)
        share = number(float(circuit.attribution[unit.place]), signed=True)
        table.rows.append([row["role"], row["id"], number(unit.value, signed=True), share, row["words"]])
    found = ", ".join(f"{len(group)} {role}" for role, group in circuit.by_role().items())
    headline = f"{units} of {circuit.coordinates.space.n_active:,} coordinates carry the behaviour: {found}."
    drawings = [_graph(circuit, card_name("circuit", *(row[1] + row[2] for row in table.rows)))] if units else []
    note = "Searched in the surrogate. imir_lens.ablate takes units out of the real model; imir_lens.analyze does both."
    return Card("circuit", headline if units else "Nothing was detected.", numbers, drawings, [table], note)


def coordinates_card(coordinates: "Coordinates") -> Card:
    """Return what a notebook shows of a model's coordinates: the largest, and where they are.

    Args:
        coordinates: of a model.
    """
    largest = coordinates.largest(SHOWN)
    table = Table(
        f"The {len(largest)} largest",
        (Column("coordinate", "code"), Column("value (nats)", "number"), Column("what it does")),
        [[str(name), number(value, signed=True), describe(str(name), "auxiliary", value)] for name, value in largest],
    )
    head = next((name.head for name, _ in largest if name.head is not None), None)
    name = card_name(*(f"{row[0]} {row[1]}" for row in table.rows))
    shown = [*([head] if head else []), None]
    drawings = [coordinate_matrix(coordinates, one, name=f"{name}-{one or READOUT}") for one in shown]
    return Card(
        "coordinates",
        f"{coordinates.space.describe().capitalize()}.",
        [],
        drawings,
        [table],
        (f"Drawn: head {head} and the readout. " if head else "Drawn: the readout. ")
        + 'coordinates.figure("L0H0") draws any head.',
    )


def _graph(circuit: "Circuit", name: str = "circuit") -> str:
    shares = {str(unit.id): float(circuit.attribution[unit.place]) for unit in circuit.units}
    notes = {unit: f"Attribution: {number(share)} nats." for unit, share in shares.items()}
    paths = circuit.coordinates.space.paths
    effects = Effects(shares, notes, "a larger attribution, in nats")
    return units_graph([unit_row(unit) for unit in circuit.units], effects, (paths.n_layers, paths.n_heads), name=name)


def _circuit(circuit: "Circuit") -> Figure:
    losses = f"{number(circuit.surrogate.loss)} with these only, {number(circuit.projection.loss)} with all coordinates"
    caption = f"Mean losses of the surrogate in nats, on the search contexts: {losses}, {number(circuit.nothing.loss)}"
    return Figure(_graph(circuit), f"A circuit of {len(circuit.units)} units", f"{caption} with none.")


def _attribution(circuit: "Circuit") -> Figure:
    total = circuit.coordinates.space.n_active
    data: dict[str, Any] = {"coordinates": coordinate_rows(circuit), "search": {"coordinates_total": total}}
    return Figure(
        attribution_chart(data),
        "Attribution of the coordinates",
        f"Each coordinate's share, in nats, of the fall of the surrogate's loss on the search contexts from no "
        f"coordinates to all of them ({total:,}). Coloured: in the circuit.",
    )


def _matrix(coordinates: "Coordinates", head: Head | None, roles: dict[str, str] | None) -> Figure:
    what = f"head {head}: what its scores compare" if head else "the readout: what raises an output"
    return Figure(
        coordinate_matrix(coordinates, head, roles=roles),
        f"Coordinates of {what}",
        f"In nats, from the weights, for contexts of {coordinates.space.n_positions} positions. res: read directly; "
        "L0H0: read through that head.",
    )
