"""What a comparison says: who is who, and one sentence on what is the same and what differs."""

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from imir_lens.figures.style import ROLES, base_role, number, shorten
from imir_lens.report.comparison_units import SIDES

NOTICED: Final = 0.1  # share of the larger value from which a difference is put into words
_LONGEST: Final = 48
_PHRASES: Final = {
    "in_context": "in context",
    "in_weights": "from memory",
    "mixed": "both in context and from memory",
    "causal_bma": "by averaging over causal graphs",
}
_STRONGER: Final = {
    "alpha": "looks {} more sharply",
    "beta": "matches more sharply",
    "gamma": "copies more strongly",
    "delta": "recalls from memory more strongly",
}
_STEP: Final = re.compile(r"step_0*(\d+)(\.\w+)?")
Data = Mapping[str, Any]


def names(data: Data) -> tuple[str, str]:
    """Return how the two models are called: `step 400`, a file name, or as much of a path as tells them apart.

    Where even the whole paths are the same, so are the names.
    """
    parts = [re.split(r"[/\\]", data[side]["model"]["source"].rstrip("/\\")) for side in SIDES]
    steps = _steps(data)
    if steps is not None:
        return f"step {steps[0]:,}", f"step {steps[1]:,}"
    for depth in range(1, max(map(len, parts)) + 1):
        one, two = ("/".join(part[-depth:]) for part in parts)
        if one != two:
            return shorten(one, _LONGEST), shorten(two, _LONGEST)
    return shorten(one, _LONGEST), shorten(two, _LONGEST)


def _called(data: Data) -> tuple[str, str]:
    """Return names that tell the models apart in a sentence."""
    one, two = names(data)
    return (one, two) if one != two else ("A", "B")


def sample_note(data: Data) -> str:
    """Say of how much two models, or two checkpoints, are evidence."""
    if data["same_report"]:
        return "All differences below are zero."
    if _steps(data) is not None:
        return "Two checkpoints of one run: another seed may take another way, or the same at other steps."
    return "Two models are two samples: what differs may be the seed, which only several seeds of each can tell."


def headline(data: Data) -> str:
    """Say in one sentence whether mechanism and circuit are the same, and what differs most.

    Args:
        data: a comparison, see `comparison_schema.json`; its own `headline` is not read.
    """
    if data["same_report"]:
        return "Both reports are the same: a report compared with itself."
    mechanisms = [data[side]["verdict"]["mechanism"] for side in SIDES]
    called, tasks = _called(data), [shorten(data[side]["task"]["name"], _LONGEST) for side in SIDES]
    if mechanisms[0] == mechanisms[1]:
        if mechanisms[0] == "not_detected":
            return f"No mechanism was detected in {called[0]}, nor in {called[1]}."
        both = f"Both do {tasks[0]}" if tasks[0] == tasks[1] else f"{_does(called, tasks)}, both"
        return f"{both} {_PHRASES[mechanisms[0]]}, {_circuits(data)}{_strongest(data, called)}."
    if "not_detected" in mechanisms:
        silent = mechanisms.index("not_detected")
        found = 1 - silent
        said = f"does {tasks[found]} {_PHRASES[mechanisms[found]]}, with {_listed(_roles(data, found))}"
        parts = [f"{called[found]} {said}", f"in {called[silent]} no mechanism was detected"]
        return f"{_sentence('; '.join(parts if found == 0 else parts[::-1]))}."
    second = "it" if tasks[0] == tasks[1] else tasks[1]
    one, two = (_PHRASES[mechanism] for mechanism in mechanisms)
    said = f"{called[0]} does {tasks[0]} {one}; {called[1]} does {second} {two}{_changed(data)}"
    return f"{_sentence(said)}."


def same_units(data: Data) -> int:
    """Return how many rows of units stand for a unit of both circuits."""
    return sum(row["match"] in ("id", "shape") for row in data["units"])


def _does(called: Sequence[str], tasks: Sequence[str]) -> str:
    return _sentence(f"{called[0]} does {tasks[0]} and {called[1]} {tasks[1]}")


def _sentence(text: str) -> str:
    """Begin with a capital where it begins with one of our words; a file's name stays as it is."""
    return text[0].upper() + text[1:] if text.startswith(("step ", "in ", "no ")) else text


def _circuits(data: Data) -> str:
    """Say how far the circuits of two models with one mechanism agree."""
    rows = data["units"]
    named = [row for row in rows if base_role(row["role"]) != "auxiliary"]
    single = [row for row in rows if row["match"] in SIDES]
    other_heads = any(row["match"] == "shape" for row in rows) and data["by_id"]
    where = " in other heads" if other_heads else ""
    same = "the same circuit" if data["by_id"] else "circuits of one shape"
    if not single:
        return f"with {same}{where}"
    if named and not any(row in single for row in named):
        return f"with {same}{where} but for auxiliary directions"
    changed = _changed(data)
    shared = f"{same_units(data)} of {len(rows)} units in common"
    return f"with {shared}{changed}" if changed else f"with the same roles and {shared}"


def _changed(data: Data) -> str:
    """Say which named roles only one of the circuits has."""
    first, second = (_roles(data, side) for side in (0, 1))
    gained, lost = [r for r in second if r not in first], [r for r in first if r not in second]
    called, steps = _called(data), _steps(data)
    if steps is not None and steps[0] < steps[1]:
        states = ("new", "gone")
    else:
        states = (f"only in {called[1]}", f"only in {called[0]}")
    parts = [
        f"{_listed(roles)} {'is' if len(roles) == 1 else 'are'} {state}"
        for roles, state in zip((gained, lost), states, strict=True)
        if roles
    ]
    return f": {'; '.join(parts)}" if parts else ""


def _strongest(data: Data, called: tuple[str, str]) -> str:
    """Say which named unit of both circuits differs most, relative to the larger of its values."""
    found = [row for row in data["units"] if row["match"] in ("id", "shape") and base_role(row["role"]) in _STRONGER]
    if not found:
        return ""
    row = max(found, key=_change)
    if _change(row) < NOTICED:
        return f"; no named value differs by {NOTICED:.0%} or more"
    first, second = (row[side]["value"] for side in SIDES)
    winner = called[second > first]
    does = _STRONGER[base_role(row["role"])].format(_distance(row["first"]["id"]))
    return f"; {winner} {does} ({row['role']} {number(first)} against {number(second)})"


def _distance(identifier: str) -> str:
    found = re.search(r"offset([+-]\d+)$", identifier)
    if found is None:
        return "at a fixed distance"
    k = int(found[1])
    return f"{'one position' if abs(k) == 1 else f'{abs(k)} positions'} {'back' if k > 0 else 'ahead'}"


def _change(row: Mapping[str, Any]) -> float:
    most = max(abs(row[side]["value"]) for side in SIDES)
    return abs(row["difference"]) / most if most > 0 else 0.0


def _roles(data: Data, side: int) -> list[str]:
    """Return the base roles of a circuit that have a name, in their usual order."""
    found = {base_role(unit["role"]) for unit in data[SIDES[side]]["circuit"]["units"]}
    return [role for role in ROLES if role in found and role != "auxiliary"]


def _listed(roles: Sequence[str]) -> str:
    if not roles:
        return "no named role"
    return roles[0] if len(roles) == 1 else f"{', '.join(roles[:-1])} and {roles[-1]}"


def _steps(data: Data) -> tuple[int, int] | None:
    """Return the steps of two checkpoints of one directory; None where they are not that."""
    one, two = (re.split(r"[/\\]", data[side]["model"]["source"].rstrip("/\\")) for side in SIDES)
    found = [_STEP.fullmatch(place[-1]) for place in (one, two)]
    if one[:-1] != two[:-1] or found[0] is None or found[1] is None:
        return None
    first, second = int(found[0][1]), int(found[1][1])
    return None if first == second else (first, second)
