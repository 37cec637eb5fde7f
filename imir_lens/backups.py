"""Backups: what carries the behaviour when the circuit, or one of its roles, is taken out.

A minimal circuit holds only one of two heads that do the same job. So whatever was found is removed: all of it, and
each role together with everything that reads through the heads it drives (a head without its pattern still writes, and
what it writes then is noise to its readers). As long as the behaviour survives, what carries it now is searched for in
the same way and added.
"""

from collections.abc import Callable

import torch
from jaxtyping import Bool
from torch import Tensor

from imir_lens.coordinates import Coordinates
from imir_lens.evaluation import Score
from imir_lens.ids import Path
from imir_lens.roles import BASE_ROLES, base_of, units_of
from imir_lens.search import Meter, minimal_subset

# The behaviour survives a removal when these shares of what the projection gains over "nothing" are left, in accuracy
# and in loss: accuracy alone can hang on a residue of the readout, loss alone on hedging. Without one role, guessing
# among the words of the context can keep half of the accuracy (two pairs), so only near-complete survival counts as a
# backup. Without the whole circuit no such guess is left, and a second mechanism may serve only some contexts.
_SURVIVES_ROLE = Score(loss=0.9, accuracy=0.8)
_SURVIVES_ALL = Score(loss=0.2, accuracy=0.4)
# Where two mechanisms overlap, the behaviour survives without one although nothing takes its place: the search then
# finds the other mechanism, and small coordinates that hedge the contexts which only the lost one served. Backups are
# what the survival hangs on, by this share of what the projection gains.
_CARRIES = 0.2


def add_backups(
    meter: Meter,
    first: list[int],
    everything: Bool[Tensor, " coordinate"],
    budget: float,
    stay: Callable[[Path], float],
) -> list[int]:
    """Return the circuit with its backups: removing all of it, or all of a role, takes the behaviour away.

    Args:
        meter: of the search.
        first: places of the minimal circuit.
        everything: the coordinates that take part.
        budget: as in the search; each backup is minimal within the budget of what is left.
        stay: for roles, see `base_role`.

    A coordinate that joins what is left only to hedge is no backup and is not added.
    """
    places = list(first)
    settled: set[frozenset[int]] = set()
    while True:
        survived = [
            group
            for group, share in _groups(meter, places, stay)
            if group not in settled and _survives(meter, everything & ~meter.mask(sorted(group)), everything, share)
        ]
        if not survived:
            return places
        rest = everything & ~meter.mask(sorted(survived[0]))
        found, _ = minimal_subset(meter, meter.ranking(meter.attribution(rest), rest), rest, budget)
        if _carries(meter, [place for place in found if place in places], found, everything):
            places += [place for place in found if place not in places]
        settled.add(survived[0])


def _groups(meter: Meter, places: list[int], stay: Callable[[Path], float]) -> list[tuple[frozenset[int], Score]]:
    """List the whole circuit and its roles, each with the shares that count as survival."""
    if not places:
        return []
    space = meter.surrogate.space
    units = units_of(Coordinates(space, meter.values), places, stay)
    groups = [(frozenset(places), _SURVIVES_ALL)]
    for role in BASE_ROLES[:-1]:
        members = [unit for unit in units if base_of(unit.role) == role]
        if members:
            readers = space.reading_through({unit.id.head for unit in members if unit.id.head is not None})
            group = frozenset(unit.place for unit in members) | frozenset(readers.nonzero().squeeze(1).tolist())
            groups.append((group, _SURVIVES_ROLE))
    return groups


def _carries(meter: Meter, known: list[int], found: list[int], everything: Bool[Tensor, " coordinate"]) -> bool:
    """Whether what was found is lost again with only its known members left."""
    nothing, projection = meter.score(torch.zeros_like(everything)), meter.score(everything)
    lost = meter.score(meter.mask(known)).loss - meter.score(meter.mask(found)).loss
    return lost >= _CARRIES * (nothing.loss - projection.loss)


def _survives(
    meter: Meter, rest: Bool[Tensor, " coordinate"], everything: Bool[Tensor, " coordinate"], share: Score
) -> bool:
    return keeps(meter.score(rest), meter.score(torch.zeros_like(rest)), meter.score(everything), share)


def keeps(left: Score, nothing: Score, projection: Score, share: Score) -> bool:
    """Whether a score keeps at least these shares of what the projection gains over "nothing", loss and accuracy."""
    accurate = left.accuracy - nothing.accuracy >= share.accuracy * (projection.accuracy - nothing.accuracy)
    return accurate and nothing.loss - left.loss >= share.loss * (nothing.loss - projection.loss)
