"""Following a circuit's units over checkpoints and over heads, so that a swap of heads is seen as a swap.

The heads of a layer are interchangeable. A unit's *family* is all that become it when heads are renamed within their
layers: `L0H0/score/q:res/k:res/offset+1` and `L0H1/score/q:res/k:res/offset+1` are one family, and so are
`L1H0/score/q:res/k:L0H0/same` and `…/k:L0H1/same`. A member of the family **holds** the unit's place at a checkpoint
when it has at least half of the unit's final value, with its sign.

Units are followed from the last checkpoint backwards. The holder stays as long as it holds; where it does not, the free
member of the family nearest in value takes over, if one holds. The step at which the later one is first there is then a
**swap**, and not the end of one circuit and the beginning of another.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product

from imir_lens.coordinates import CoordinateSpace
from imir_lens.errors import CoordinateError
from imir_lens.ids import CoordinateId, Head, Path

_HEAD_INDEX = re.compile(r"(L\d+)H\d+")
_MOST_MEMBERS = 20_000  # of a family; a model with more has its units followed by id alone


@dataclass(frozen=True)
class Track:
    """One unit along training.

    Attributes:
        unit: its id at the last checkpoint.
        role: its role there.
        carriers: the member of its family that stands for it at each checkpoint; before any held, the first that did.
        held: whether that member held it.
        values: the carrier's value at each checkpoint.
    """

    unit: str
    role: str
    carriers: tuple[str, ...]
    held: tuple[bool, ...]
    values: tuple[float, ...]


@dataclass(frozen=True)
class Swap:
    """A unit that moved to another member of its family.

    Attributes:
        step: first recorded step at which the later member holds it, and the former does not.
        after: last recorded step at which the former did.
        role: the unit's role.
        former, later: ids.
    """

    step: int
    after: int
    role: str
    former: str
    later: str

    @property
    def heads(self) -> tuple[tuple[str, str], ...]:
        """The heads that changed: (from, to)."""
        pairs = zip(heads_of(CoordinateId.parse(self.former)), heads_of(CoordinateId.parse(self.later)), strict=True)
        return tuple(dict.fromkeys((str(old), str(new)) for old, new in pairs if old != new))


def heads_of(unit: CoordinateId) -> list[Head]:
    """Return the heads a coordinate names, in the order of its id."""
    own = [] if unit.head is None else [unit.head]
    return own + [head for path in unit.paths for head in path.heads]


def family_of(unit: str, space: CoordinateSpace) -> list[str]:
    """Return the members of a unit's family that a space has, itself first.

    Distinct heads of the unit become distinct heads of the same layers. A family that would be too large is the unit.
    """
    identifier = CoordinateId.parse(unit)
    heads = list(dict.fromkeys(heads_of(identifier)))
    if space.paths.n_heads ** len(heads) > _MOST_MEMBERS:
        return [unit]
    found = [unit]
    for choice in product(range(space.paths.n_heads), repeat=len(heads)):
        renamed = {head: Head(head.layer, index) for head, index in zip(heads, choice, strict=True)}
        if len(set(renamed.values())) < len(heads):
            continue
        member = str(_renamed(identifier, renamed))
        if member == unit:
            continue
        try:
            space.place(member)
        except CoordinateError:
            continue  # one of its paths was cut: no coordinate of the last checkpoint reads through it
        found.append(member)
    return found


def follow(
    units: Iterable[tuple[str, str]],
    values: Mapping[str, Sequence[float]],
    families: Mapping[str, Sequence[str]],
    *,
    share: float = 0.5,
) -> list[Track]:
    """Follow units from the last checkpoint back to the first.

    Args:
        units: ids with their roles, as they are at the last checkpoint.
        values: of every member of every family, at each checkpoint.
        families: by unit.
        share: which share of its final value a unit's holder must have.

    Returns:
        a track for each unit, in order. Units of one family never have the same holder at one checkpoint.
    """
    rows = list(units)
    groups: dict[tuple[str, bool], list[int]] = {}
    for place, (unit, _) in enumerate(rows):
        groups.setdefault((_HEAD_INDEX.sub(r"\1", unit), values[unit][-1] > 0), []).append(place)
    tracks: dict[int, Track] = {}
    for places in groups.values():
        for place, track in zip(
            places, _follow_family([rows[k] for k in places], values, families, share), strict=True
        ):
            tracks[place] = track
    return [tracks[place] for place in range(len(rows))]


def swaps_of(tracks: Iterable[Track], steps: Sequence[int]) -> list[Swap]:
    """Return the swaps of some tracks, by step."""
    found = []
    for track in tracks:
        before: int | None = None
        for at, held in enumerate(track.held):
            if not held:
                continue
            if before is not None and track.carriers[at] != track.carriers[before]:
                found.append(Swap(steps[at], steps[before], track.role, track.carriers[before], track.carriers[at]))
            before = at
    return sorted(found, key=lambda swap: (swap.step, swap.role, swap.former))


def _follow_family(
    rows: Sequence[tuple[str, str]],
    values: Mapping[str, Sequence[float]],
    families: Mapping[str, Sequence[str]],
    share: float,
) -> list[Track]:
    length = len(values[rows[0][0]])
    holder = [unit for unit, _ in rows]
    final = [values[unit][-1] for unit in holder]
    carriers: list[list[str]] = [[] for _ in rows]
    held: list[list[bool]] = [[] for _ in rows]

    def holds(track: int, member: str, at: int) -> bool:
        return final[track] != 0 and values[member][at] / final[track] >= share

    for at in reversed(range(length)):
        there, taken = [], set[str]()
        for track in range(len(rows)):
            there.append(holder[track] not in taken and holds(track, holder[track], at))
            if there[track]:
                taken.add(holder[track])
        lost = [track for track in range(len(rows)) if not there[track]]
        options = sorted(
            (abs(values[member][at] - final[track]), track, member)
            for track in lost
            for member in families[rows[track][0]]
            if member not in taken and holds(track, member, at)
        )
        for _, track, member in options:  # nearest first
            if not there[track] and member not in taken:
                holder[track], there[track] = member, True
                taken.add(member)
        for track in range(len(rows)):
            carriers[track].append(holder[track])
            held[track].append(there[track])
    out = []
    for track, (unit, role) in enumerate(rows):
        names = tuple(reversed(carriers[track]))
        found = tuple(values[name][at] for at, name in enumerate(names))
        out.append(Track(unit, role, names, tuple(reversed(held[track])), found))
    return out


def _renamed(unit: CoordinateId, heads: Mapping[Head, Head]) -> CoordinateId:
    def path(old: Path | None) -> Path | None:
        return None if old is None else Path(tuple(heads[head] for head in old.heads))

    head = None if unit.head is None else heads[unit.head]
    return CoordinateId(head, path(unit.query), path(unit.key), unit.relation)
