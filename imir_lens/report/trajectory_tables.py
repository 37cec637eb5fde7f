"""The words and tables of a trajectory: HTML and Markdown show the same ones, and the CSV all numbers."""

from collections.abc import Mapping
from itertools import groupby
from typing import Any, Final

from imir_lens.figures.style import number, role_symbol
from imir_lens.report.summary import KeyNumber
from imir_lens.report.tables import Column, Table

MISSING: Final = number(None)


def headline(data: Mapping[str, Any]) -> str:
    """Say in one sentence what emerged, in which order, and when the loss fell."""
    found = data["emergence"]
    if not found["order"]:
        return "No role emerged."
    groups = [" and ".join(role_symbol(role) for role in group) for group in found["order"]]
    times = []
    for group, roles in zip(groups, found["order"], strict=True):
        when = next(role["emergence"] for role in data["roles"] if role["role"] == roles[0])
        unresolved = " (no checkpoint tells them apart)" if len(roles) > 1 else ""
        times.append(f"{group} at step {when['step']}{unresolved}")
    never = f"; {' and '.join(map(role_symbol, found['never']))} did not emerge" if found["never"] else ""
    return f"Emerged: {', then '.join(times)}{never}. {_fall(found)}"


def _fall(found: Mapping[str, Any]) -> str:
    if found["loss"] is None:
        return "The loss did not fall."
    text = f"The loss had fallen by half at step {found['loss']['step']}"
    lag = found["lag"]
    if lag is None:
        return f"{text}."
    if lag == 0:
        return f"{text}, when the last role emerged."
    return f"{text}, {abs(lag)} steps {'after' if lag > 0 else 'before'} the last role emerged."


def key_numbers(data: Mapping[str, Any]) -> list[KeyNumber]:
    """The numbers a reader wants first."""
    first, last = data["checkpoints"][0], data["checkpoints"][-1]
    out = [KeyNumber("checkpoints", str(len(data["checkpoints"])), f"steps {first['step']:,} to {last['step']:,}")]
    out += [
        KeyNumber(
            f"{role_symbol(role['role'])} emerges",
            MISSING if role["emergence"] is None else f"step {role['emergence']['step']:,}",
            f"{_since(role['emergence'])}; ends at {number(role['final'])} nats",
        )
        for role in data["roles"]
    ]
    fall = data["emergence"]["loss"]
    out.append(
        KeyNumber(
            "loss falls by half",
            MISSING if fall is None else f"step {fall['step']:,}",
            f"{_since(fall)}; from {number(first['loss'])} to {number(last['loss'])} nats",
        )
    )
    return out


def _since(when: Mapping[str, Any] | None) -> str:
    if when is None:
        return "never"
    return "from the first checkpoint on" if when["after"] is None else f"after step {when['after']:,}"


def roles_table(data: Mapping[str, Any]) -> Table:
    """When each role emerged."""
    columns = (
        Column("role", "role"),
        Column("units", "code"),
        Column("first", "number", "value (nats)"),
        Column("last", "number", "value (nats)"),
        Column("not at step", "number", "emerged"),
        Column("from step", "number", "emerged"),
    )
    table = Table("Roles, and when they emerged", columns)
    for role in data["roles"]:
        when = role["emergence"] or {"after": None, "step": None}
        values = [number(role["values"][0]), number(role["final"])]
        table.rows.append([role["role"], "\n".join(role["units"]), *values, *map(_step, (when["after"], when["step"]))])
    return table


def swaps_table(data: Mapping[str, Any]) -> Table:
    """Which roles moved from one head to another."""
    columns = (Column("from step", "number"), Column("heads"), Column("roles"), Column("units", "code"))
    table = Table("Roles that moved to other heads", columns)

    def move(swap: Mapping[str, Any]) -> tuple[int, str]:
        return swap["step"], ", ".join(f"{old} → {new}" for old, new in swap["heads"])

    for (step, heads), group in groupby(sorted(data["swaps"], key=move), key=move):
        swaps = list(group)
        roles = ", ".join(dict.fromkeys(role_symbol(swap["role"]) for swap in swaps))
        units = "\n".join(f"{swap['former']} → {swap['later']}" for swap in swaps)
        table.rows.append([_step(step), heads, roles, units])
    return table


def coordinates_table(data: Mapping[str, Any]) -> Table:
    """All coordinates that are followed."""
    columns = (
        Column("role"),
        Column("coordinate", "code"),
        Column("followed as one of the"),
        Column("first", "number", "value (nats)"),
        Column("last", "number", "value (nats)"),
        Column("emerged at step", "number"),
    )
    table = Table("Coordinates followed, by themselves", columns)
    for row in data["coordinates"]:
        role = MISSING if row["role"] is None else f"{role_symbol(row['role'])} {row['role']}"
        step = None if row["emergence"] is None else row["emergence"]["step"]
        values = [number(row["values"][0]), number(row["values"][-1])]
        table.rows.append([role, row["id"], ", ".join(row["of"]), *values, _step(step)])
    return table


def rule_note(data: Mapping[str, Any]) -> str:
    """State the rules."""
    found, least = data["emergence"], data["settings"]["minimum"]
    return (
        f"Emerged: {found['rule']}; a role's value is the sum over its units, and one that ends below {number(least)} "
        f"nats has not emerged. Loss: {found['loss_rule']}. Both are known up to the distance of the checkpoints, and "
        "the first depends on the final value: what is still growing emerges later in a longer run."
    )


def provenance_table(data: Mapping[str, Any]) -> Table:
    """Where the trajectory comes from."""
    model, made, task = data["model"], data["created_with"], data["task"]
    settings, space = data["settings"], data["space"]
    knobs = ", ".join(f"{name} {value}" for name, value in task["knobs"].items())
    cut = f"{space['cut']:,} cut (the largest coordinate there is {number(space['largest_cut'])})"
    rows = [
        ["run", data["run"]["source"]],
        ["last checkpoint", f"{model['source']} ({model['family']}), SHA-256 {model['sha256']}"],
        ["task", task["name"] + (f": {knobs}" if knobs else "")],
        ["contexts", f"{settings['contexts']:,} held out, the same for every checkpoint; seed {data['seed']}"],
        ["circuit", "at every checkpoint" if settings["detect_every"] else "at the last checkpoint"],
        ["coordinates", f"{space['coordinates']:,} over {space['paths']:,} paths; {cut}"],
        ["made with", ", ".join(f"{name} {version}" for name, version in made.items())],
    ]
    return Table("Provenance", (Column(""), Column("")), rows)


def csv_rows(data: Mapping[str, Any]) -> list[list[Any]]:
    """Return a row for each checkpoint: loss, attention, roles and coordinates."""
    heads = [head["head"] for head in data["checkpoints"][0]["heads"]]
    masses = ("copy_mass", "match_mass", "answer_mass")
    head = ["step", "file", "loss", "accuracy", "unexplained_scores", "unexplained_readout"]
    head += [f"{name} {mass}" for name in heads for mass in masses]
    head += [role["role"] for role in data["roles"]] + [row["id"] for row in data["coordinates"]]
    rows: list[list[Any]] = [head]
    for at, point in enumerate(data["checkpoints"]):
        unexplained = point["unexplained"]
        row = [point[name] for name in ("step", "file", "loss", "accuracy")]
        row += [unexplained["scores"], unexplained["readout"]]
        row += [found[mass] for found in point["heads"] for mass in masses]
        rows.append(row + [series["values"][at] for series in (*data["roles"], *data["coordinates"])])
    return rows


def _step(step: int | None) -> str:
    return MISSING if step is None else f"{step:,}"
