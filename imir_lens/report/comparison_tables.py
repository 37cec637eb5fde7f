"""The tables of a comparison, as text: HTML and Markdown show the same ones."""

from collections.abc import Callable, Mapping
from typing import Any, Final

from imir_lens.figures.style import Real, base_role, number
from imir_lens.report.comparison_units import SIDES
from imir_lens.report.comparison_words import same_units
from imir_lens.report.summary import KeyNumber
from imir_lens.report.tables import Column, Table, provenance_table

Data = Mapping[str, Any]
_MATCHES: Final = {"id": "A and B", "shape": "A and B, other head", "first": "A only", "second": "B only"}
_A_B: Final = ("A", "B")


def key_tiles(data: Data) -> list[KeyNumber]:
    """The numbers a reader wants first."""
    ids, shapes = data["jaccard"]["id"], data["jaccard"]["shape"]
    by_id = f"{number(ids)} by id, " if data["by_id"] else ""
    how = f"Jaccard index {by_id}{number(shapes)} by role and shape" if shapes is not None else "no circuit in either"
    tiles = [
        KeyNumber("units in both circuits", f"{same_units(data)} of {len(data['units'])}", how),
        KeyNumber("loss of the model", _pair(data, _loss("model")), "nats, A | B"),
        KeyNumber("accuracy", _pair(data, _accuracy), "A | B"),
        KeyNumber("faithfulness", _pair(data, lambda side: side["circuit"]["faithfulness"]), "A | B"),
    ]
    found = data["coordinates"]
    if found["cosine"] is not None:
        note = f"of all {found['total']['first']:,} coordinates of A and B; 1: the same direction"
        tiles.append(KeyNumber("cosine", number(found["cosine"]), note))
    return tiles


def _pair(data: Data, read: Callable[[Data], Real | None]) -> str:
    return " | ".join(number(read(data[side])) for side in SIDES)


def _loss(name: str) -> Callable[[Data], Real | None]:
    return lambda side: (side["evaluation"].get(name) or {}).get("loss")


def _accuracy(side: Data) -> Real:
    accuracy: Real = side["evaluation"]["model"]["accuracy"]
    return accuracy


_NUMBERS: Final[tuple[tuple[str, str, Callable[[Data], Real | None]], ...]] = (
    ("loss of the model", "nats, as it is", _loss("model")),
    ("accuracy of the model", "share of right answers", _accuracy),
    ("loss of the surrogate", "nats, the coordinates alone", _loss("projection")),
    ("loss with the circuit only", "nats, is it enough?", _loss("circuit")),
    ("loss without the circuit", "nats, is it needed?", _loss("without_circuit")),
    (
        "faithfulness",
        "share of the loss gap that the circuit alone closes",
        lambda side: side["circuit"]["faithfulness"],
    ),
    (
        "completeness",
        "share of the loss gap that opens without the circuit",
        lambda side: side["circuit"]["completeness"],
    ),
    ("stability", "bootstrap Jaccard index", lambda side: side["circuit"]["stability"]["bootstrap_jaccard"]),
    ("units in the circuit", "coordinates that it needs", lambda side: len(side["circuit"]["units"])),
    ("coordinates", "in all, of the model", lambda side: side["search"]["coordinates_total"]),
    ("scores not explained", "share of variance", lambda side: side["unexplained"]["score_variance"]),
    ("readout not explained", "share of variance", lambda side: side["unexplained"]["readout_variance"]),
    ("mass on the words", "share of probability", lambda side: side["evaluation"].get("vocabulary_mass")),
    ("chance", "nats, the best answer that ignores the context", _loss("chance")),
    ("Bayes", "nats, the best answer from the context", _loss("bayes")),
)
_COUNTS: Final = ("units in the circuit", "coordinates")


def numbers_table(data: Data) -> Table:
    """The key numbers of both reports with their differences."""
    columns = (Column("what"), Column("what it is"), *(Column(title, "number") for title in ("A", "B", "B − A")))  # noqa: RUF001
    table = Table("Key numbers of A and B", columns)
    for title, note, read in _NUMBERS:
        values = [read(data[side]) for side in SIDES]
        if values == [None, None]:
            continue
        if title in _COUNTS:
            row = [f"{value:,}" for value in values]
            gap = int((values[1] or 0) - (values[0] or 0))
            table.rows.append([title, note, *row, f"{gap:+,}".replace("-", "\N{MINUS SIGN}") if gap else "0"])
        else:
            table.rows.append([title, note, *map(number, values), number(_difference(*values), signed=True)])
    return table


def _difference(one: Real | None, two: Real | None) -> Real | None:
    return None if one is None or two is None else two - one


def units_table(data: Data) -> Table:
    """The union of both circuits' units."""
    table = Table(
        "Units of both circuits, each removed alone from its model",
        (
            Column("role", "role"),
            Column("in the circuit of"),
            *(Column(letter, "code", "unit") for letter in _A_B),
            *(Column(title, "number", "value (nats)") for title in ("A", "B", "B − A")),  # noqa: RUF001
            *(Column(letter, "number", "loss without it (nats)") for letter in _A_B),
        ),
    )
    for row in data["units"]:
        sides = [row[side] or {} for side in SIDES]
        where = _MATCHES[row["match"]] if data["by_id"] or row["match"] != "shape" else "A and B, by shape"
        roles = [str(side.get("role", row["role"])) for side in sides]
        if base_role(roles[0]) != base_role(roles[1]):
            where += f"; {roles[1]} in B"
        table.rows.append(
            [
                row["role"],
                where,
                *(side["id"] if side.get("in_circuit") else number(None) for side in sides),
                *(number(side.get("value"), signed=True) for side in sides),
                number(row["difference"], signed=True),
                *(number(side.get("loss_if_removed")) for side in sides),
            ]
        )
    return table


def heads_table(data: Data) -> Table:
    """What the heads that both models have do in each."""
    rows = [{(head["layer"], head["head"]): head for head in data[side]["heads"]} for side in SIDES]
    titles = {"score_r2": "score R²", "offset": "offset", "match": "match", "copying": "copying"}
    columns = [Column(letter, "number", title) for title in titles.values() for letter in _A_B]
    table = Table("Heads that both models have", (Column("head", "code"), *columns))
    for place in sorted(rows[0].keys() & rows[1].keys()):
        cells = [_head_cell(side[place], name) for name in titles for side in rows]
        table.rows.append([f"L{place[0]}H{place[1]}", *cells])
    return table


def heads_note(data: Data) -> str:
    """Say which heads are left out, and what the same name means."""
    sets = [{(head["layer"], head["head"]) for head in data[side]["heads"]} for side in SIDES]
    gone = [f"{len(mine - other)} in {letter} only" for letter, mine, other in zip("AB", sets, sets[::-1], strict=True)]
    left = f" Left out: {', '.join(gone)}." if sets[0] != sets[1] else ""
    return (
        "The heads of a layer are interchangeable: in models trained apart the same name does not mean the same job."
        + left
    )


def _head_cell(head: Data, name: str) -> str:
    value = head[name]
    if name == "offset" and value is not None:
        return f"{value:+d}"
    return number(value)


def made_table(data: Data) -> Table:
    """The provenance of both reports."""
    found = [dict(provenance_table(data[side]).rows) for side in SIDES]
    table = Table("Where A and B come from", (Column("what"), Column("A"), Column("B"), Column("differs")))
    for name in dict.fromkeys([*found[0], *found[1]]):
        values = [side.get(name, number(None)) for side in found]
        table.rows.append([name or "kind of model", *values, "yes" if values[0] != values[1] else "no"])
    return table


def circuits_note(data: Data) -> str:
    """Say what the figure of both circuits shows, and on what."""
    contexts = [
        f"{data[side]['evaluation']['contexts']:,} in {letter}" for side, letter in zip(SIDES, "AB", strict=True)
    ]
    return (
        "Thickness: loss of the model without the unit, on one scale for A and B. "
        f"Test contexts: {' and '.join(contexts)}."
    )


def units_note(data: Data) -> str:
    """Say how units were matched, and what a value outside a circuit is."""
    if not data["units"]:
        return "Neither circuit has a unit."
    parts = ["Units are matched by role and shape, the id without head numbers; ids do not correspond here."]
    if data["by_id"]:
        parts = ["Units are matched by id."]
        if any(row["match"] == "shape" for row in data["units"]):
            parts.append(
                "Where the head differs but role and shape, the id without head numbers, are the same, they are "
                "matched as the same job in another head."
            )
    if any(row[side] and not row[side]["in_circuit"] for row in data["units"] for side in SIDES):
        parts.append("A value without a unit is that of the same coordinate outside that circuit.")
    if data["by_id"] and any(row[side] is None for row in data["units"] for side in SIDES):
        parts.append("A dash for a value: that report does not know it.")
    return " ".join(parts)


def coordinates_note(data: Data) -> str:
    """Say which coordinates the figure draws, which not, and why."""
    found = data["coordinates"]
    drawn = len(found["points"])
    if found["source"] == "none":
        return f"Coordinates are not compared one by one: {found['reason']}."
    if found["source"] == "all":
        said = f"All {found['total']['first']:,} coordinates of both models are known; drawn are {drawn:,}."
        if found["largest_left_out"] is not None:
            largest = number(found["largest_left_out"])
            said += f" The {found['left_out']['first']:,} others are at most {largest} nats in size, in either."
        return said
    listed = ", ".join(
        f"{found['listed'][s]:,} of {found['total'][s]:,} in {x}" for s, x in zip(SIDES, "AB", strict=True)
    )
    gone = " and ".join(f"{found['left_out'][s]:,} in {x} only" for s, x in zip(SIDES, "AB", strict=True))
    return (
        f"Only coordinates that the reports list are known here ({listed}), because {found['reason']}. Drawn are the "
        f"{drawn:,} that both list; {gone} are left out: what a report does not list is unknown, not zero."
    )
