"""Where a reference circuit is found in a detected one, up to what a training run is free to choose.

Free are the heads: those of a layer are interchangeable, parts may stand in other layers as long as their order is
kept, and one head may do the job of two. So every such renaming of the reference's heads is tried, and the one that
finds most units is taken; among equals, the one that needs no head twice, then that of the largest values. Signs are
not free: a head that is pushed away from a place is none that attends to it.
"""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product

from imir_lens.ids import CoordinateId, Head, Path

Circuit = Mapping[CoordinateId, float]
FOUND, EQUIVALENT, MISSING = "found", "equivalent", "missing"


@dataclass(frozen=True)
class Matched:
    """What became of one unit of the reference.

    Attributes:
        reference: the unit.
        how: `found`, the unit itself after renaming; `equivalent`, one of the same form that reads through other
            heads; or `missing`.
        found: the detected unit; None when missing.
    """

    reference: CoordinateId
    how: str
    found: CoordinateId | None


@dataclass(frozen=True)
class Matching:
    """A reference circuit against a detected one.

    Attributes:
        units: one for each unit of the reference, in its order.
        heads: the renaming, from the reference's heads to the model's.
        extra: detected units that match none of the reference's.
    """

    units: tuple[Matched, ...]
    heads: Mapping[Head, Head]
    extra: tuple[CoordinateId, ...]

    def count(self, how: str) -> int:
        """Return how many units of the reference were found in this way."""
        return sum(unit.how == how for unit in self.units)


def match_circuit(reference: Circuit, detected: Circuit) -> Matching:
    """Find a reference circuit's units among the detected ones.

    Args:
        reference: the circuit that is looked for; of its values, the sign counts.
        detected: the circuit that was detected.
    """
    ours = _heads(reference)
    best: tuple[tuple[int, int, int, float], Matching] | None = None
    for heads in _renamings(ours, _heads(detected)):
        matching = _under(heads, reference, detected)
        size = sum(abs(detected[unit.found]) for unit in matching.units if unit.found)
        rank = (matching.count(FOUND), matching.count(EQUIVALENT), len(set(heads.values())), size)
        if best is None or rank > best[0]:
            best = rank, matching
    return best[1] if best else Matching(tuple(Matched(unit, MISSING, None) for unit in reference), {}, tuple(detected))


def form(unit: CoordinateId) -> tuple[bool, str, str, str]:
    """Return what a unit does without saying where: score or readout, what query and key are, and the relation."""
    return unit.is_score, _content(unit.query), _content(unit.key), unit.relation


def _content(path: Path | None) -> str:
    return "const" if path is None else "moved" if path.heads else "own"


def _heads(units: Collection[CoordinateId]) -> list[Head]:
    named = {unit.head for unit in units if unit.head}
    return sorted(named | {head for unit in units for path in unit.paths for head in path.heads})


def _renamings(ours: Sequence[Head], theirs: Sequence[Head]) -> Iterator[dict[Head, Head]]:
    """Yield every map of heads under which a lower layer stays lower."""
    for images in product(theirs, repeat=len(ours)):
        heads = dict(zip(ours, images, strict=True))
        if all(heads[a].layer < heads[b].layer for a in ours for b in ours if a.layer < b.layer):
            yield heads


def _under(heads: Mapping[Head, Head], reference: Circuit, detected: Circuit) -> Matching:
    renamed = {unit: _rename(unit, heads) for unit in reference}
    free = list(detected)  # each stands for one unit only
    found: dict[CoordinateId, tuple[str, CoordinateId]] = {}
    for unit, there in renamed.items():
        if there in free and reference[unit] * detected[there] > 0:
            free.remove(there)
            found[unit] = FOUND, there
    for unit, value in reference.items():
        fits = (other for other in free if form(other) == form(unit) and value * detected[other] > 0)
        if unit not in found and (other := next(fits, None)):
            free.remove(other)
            found[unit] = EQUIVALENT, other
    units = tuple(Matched(unit, *found.get(unit, (MISSING, None))) for unit in reference)
    return Matching(units, heads, tuple(free))


def _rename(unit: CoordinateId, heads: Mapping[Head, Head]) -> CoordinateId:
    def rename(path: Path | None) -> Path | None:
        return None if path is None else Path(tuple(heads[head] for head in path.heads))

    head = None if unit.head is None else heads[unit.head]
    return CoordinateId(head, rename(unit.query), rename(unit.key), unit.relation)
