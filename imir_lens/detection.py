"""Detection: which few coordinates carry the behaviour.

1. Attribution of every coordinate at once (5 gradient passes on the surrogate).
2. The smallest prefix of that ranking within the loss budget, then exact backward elimination: a 1-minimal circuit.
3. Backups: a minimal circuit holds one of two heads that do the same job. Whatever is found is taken out, all of it and
   role by role; as long as the behaviour survives, what carries it now is searched for and added.

Budget: `loss(circuit) ≤ loss(projection) + budget · (loss(nothing) − loss(projection))`.
"""

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from imir_lens.coordinates import Coordinates
from imir_lens.errors import OptionError
from imir_lens.evaluation import Score
from imir_lens.ids import CoordinateId, Head, Path
from imir_lens.roles import BASE_ROLES, assign_roles, base_of
from imir_lens.search import Meter, minimal_subset
from imir_lens.surrogate import Surrogate
from imir_lens.tasks.base import Batch

_log = logging.getLogger(__name__)

# The behaviour survives a removal when these shares of what the projection gains over "nothing" are left, in accuracy and
# in loss: accuracy alone can hang on a residue of the readout, loss alone on hedging. Without one role, guessing among the
# words of the context can keep half of the accuracy (two pairs), so only near-complete survival counts as a backup.
# Without the whole circuit no such guess is left, and a second mechanism may serve only some contexts.
_SURVIVES_ROLE = Score(loss=0.5, accuracy=0.8)
_SURVIVES_ALL = Score(loss=0.2, accuracy=0.4)
# Coordinates this much smaller than the largest are float32 rounding, and are treated as absent throughout.
_NEGLIGIBLE = 1e-6
# Nothing is searched for when the projection itself does not do the task: it must close this share of the loss.
_WORTH_SEARCHING = 0.1


@dataclass(frozen=True)
class Unit:
    """One coordinate of a circuit."""

    id: CoordinateId
    place: int
    role: str
    value: float


@dataclass(frozen=True)
class Circuit:
    """What detection found.

    Attributes:
        coordinates: of the whole model.
        units: the circuit, in order of attribution.
        attribution: of every coordinate, flat; positive means it lowers the loss.
        budget: share of the loss gap allowed.
        limit: the loss the search had to stay within.
        projection, nothing, surrogate: scores of all coordinates, of none, and of the circuit's, on the search contexts.
        minimal: no single unit can go without breaking the limit.
        backups: ids added because the behaviour survived without the first circuit or one of its roles.
        evaluations, gradient_passes, seconds: what the search cost.
    """

    coordinates: Coordinates
    units: tuple[Unit, ...]
    attribution: Float[Tensor, " coordinate"]
    budget: float
    limit: float
    projection: Score
    nothing: Score
    surrogate: Score
    minimal: bool
    backups: tuple[str, ...]
    evaluations: int
    gradient_passes: int
    seconds: float

    @property
    def mask(self) -> Bool[Tensor, " coordinate"]:
        """Which coordinates belong to the circuit."""
        mask = torch.zeros(self.coordinates.space.size, dtype=torch.bool)
        mask[[unit.place for unit in self.units]] = True
        return mask

    def by_role(self) -> dict[str, list[Unit]]:
        """Units of each base role, in the order alpha, beta, gamma, delta, auxiliary; absent roles are left out."""
        groups = {role: [unit for unit in self.units if base_of(unit.role) == role] for role in BASE_ROLES}
        return {role: units for role, units in groups.items() if units}

    def __str__(self) -> str:
        if not self.units:
            return "Circuit: nothing detected"
        rows = "\n".join(f"  {unit.role:<10} {unit.value:+9.3f}  {unit.id}" for unit in self.units)
        return f"Circuit of {len(self.units)} units (surrogate loss {self.surrogate.loss:.3g} nats):\n{rows}"

    __repr__ = __str__


def detect(
    coordinates: Coordinates,
    batch: Batch,
    *,
    budget: float = 0.01,
    candidates: Bool[Tensor, " coordinate"] | None = None,
    stay: Callable[[Path], float] | None = None,
) -> Circuit:
    """Find the circuit among a model's coordinates.

    Args:
        coordinates: of the model.
        batch: the search contexts.
        budget: share of the loss between "projection" and "nothing" that the circuit may give up.
        candidates: coordinates to search among (default: all); the others are left out throughout.
        stay: mean share of a path's content from the query's own position, for roles; default, the surrogate's own.

    Raises:
        OptionError: when the budget is not in (0, 1).
    """
    if not 0 < budget < 1:
        raise OptionError(f"budget must lie between 0 and 1, got {budget}")
    started = time.perf_counter()
    surrogate = Surrogate(coordinates.space)
    meter = Meter(surrogate, coordinates.values, batch)
    everything = coordinates.values.abs() > _NEGLIGIBLE * coordinates.values.abs().max()
    if candidates is not None:
        everything &= candidates
    nothing, projection = meter.score(torch.zeros_like(everything)), meter.score(everything)
    limit = _limit(projection, nothing, budget)
    attribution = torch.zeros_like(coordinates.values)
    first: list[int] = []
    places: list[int] = []
    if nothing.loss - projection.loss > _WORTH_SEARCHING * nothing.loss:
        attribution = meter.attribution(everything)
        stay = stay or path_stay(surrogate.patterns(coordinates.values, batch[:64]), batch[:64])
        first = minimal_subset(meter, _ranking(attribution, everything), limit)
        places = _with_backups(meter, first, everything, budget, stay)
        _log.debug("circuit of %d, %d with backups, after %d evaluations", len(first), len(places), meter.evaluations)
    places.sort(key=lambda place: -abs(float(attribution[place])))
    return Circuit(
        coordinates=coordinates,
        units=_units(coordinates, places, stay) if stay else (),
        attribution=attribution,
        budget=budget,
        limit=limit,
        projection=projection,
        nothing=nothing,
        surrogate=meter.score(meter.mask(places)),
        minimal=len(places) == len(first),
        backups=tuple(str(coordinates.space.id(place)) for place in places if place not in first),
        evaluations=meter.evaluations,
        gradient_passes=meter.gradient_passes,
        seconds=time.perf_counter() - started,
    )


def path_stay(
    patterns: dict[Head, Float[Tensor, "context position position"]], batch: Batch
) -> Callable[[Path], float]:
    """Return a function: mean share of a path's content at the queries that comes from the query's own position."""

    def stay(path: Path) -> float:
        row = torch.nn.functional.one_hot(batch.queries, batch.tokens.shape[1]).to(next(iter(patterns.values())).dtype)
        for head in reversed(path.heads):
            row = row @ patterns[head]
        return float(row.gather(2, batch.queries.unsqueeze(2)).squeeze(2)[batch.mask].mean())

    return stay


def bootstrap_jaccard(circuit: Circuit, batch: Batch, *, n: int, generator: torch.Generator, top: int = 200) -> float:
    """Mean Jaccard index between the circuit and those detected on bootstrap samples of the contexts.

    Each of the n runs searches again among the `top` coordinates of largest attribution.
    """
    if not circuit.units:
        return 0.0
    candidates = circuit.mask.clone()
    candidates[circuit.attribution.abs().topk(min(top, len(circuit.attribution))).indices] = True
    found = {unit.place for unit in circuit.units}
    total = 0.0
    for _ in range(n):
        sample = torch.randint(len(batch), (len(batch),), generator=generator)
        again = detect(circuit.coordinates, batch[sample], budget=circuit.budget, candidates=candidates)
        places = {unit.place for unit in again.units}
        total += len(found & places) / len(found | places)
    return total / n


def _limit(projection: Score, nothing: Score, budget: float) -> float:
    return projection.loss + budget * max(0.0, nothing.loss - projection.loss)


def _ranking(attribution: Float[Tensor, " coordinate"], chosen: Bool[Tensor, " coordinate"]) -> list[int]:
    """Places by |attribution|, most first: a gate can look harmful on the way from nothing to all, and still be needed."""
    order = attribution.abs().masked_fill(~chosen, -torch.inf).argsort(descending=True, stable=True)
    return order[: int(chosen.sum())].tolist()


def _units(coordinates: Coordinates, places: list[int], stay: Callable[[Path], float]) -> tuple[Unit, ...]:
    values = [(coordinates.space.id(place), float(coordinates.values[place])) for place in places]
    roles = assign_roles(values, stay)
    return tuple(Unit(name, place, roles[name], value) for place, (name, value) in zip(places, values, strict=True))


def _with_backups(
    meter: Meter,
    first: list[int],
    everything: Bool[Tensor, " coordinate"],
    budget: float,
    stay: Callable[[Path], float],
) -> list[int]:
    """Add what carries the behaviour when the circuit, or one of its roles, is taken out."""
    nothing = meter.score(torch.zeros_like(everything))
    places = list(first)
    settled: set[frozenset[int]] = set()
    while True:
        group = _surviving_group(meter, places, everything, stay, settled)
        if group is None:
            return places
        rest = everything & ~meter.mask(sorted(group))
        ranking = _ranking(meter.attribution(rest), rest)
        found = minimal_subset(meter, ranking, _limit(meter.score(rest), nothing, budget))
        places += [place for place in found if place not in places]
        settled.add(group)


def _surviving_group(
    meter: Meter,
    places: list[int],
    everything: Bool[Tensor, " coordinate"],
    stay: Callable[[Path], float],
    settled: set[frozenset[int]],
) -> frozenset[int] | None:
    """Return a group (the whole circuit, or a role) without which the behaviour goes on; None when there is none."""
    if not places:
        return None
    nothing, projection = meter.score(torch.zeros_like(everything)), meter.score(everything)
    units = _units(Coordinates(meter.surrogate.space, meter.values), places, stay)
    groups = [(frozenset(places), _SURVIVES_ALL)]
    for role in BASE_ROLES[:-1]:
        members = frozenset(unit.place for unit in units if base_of(unit.role) == role)
        groups += [(members, _SURVIVES_ROLE)] if members else []
    for group, share in groups:
        if group not in settled:
            left = meter.score(everything & ~meter.mask(sorted(group)))
            accurate = left.accuracy - nothing.accuracy >= share.accuracy * (projection.accuracy - nothing.accuracy)
            if accurate and nothing.loss - left.loss >= share.loss * (nothing.loss - projection.loss):
                return group
    return None
