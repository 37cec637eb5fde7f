"""Detection: which few coordinates carry the behaviour.

1. Attribution of every coordinate at once (5 gradient passes on the surrogate).
2. The smallest prefix of that ranking within the loss budget, then exact backward elimination: a 1-minimal circuit.
3. Backups: a minimal circuit holds one of two heads that do the same job. Whatever is found is taken out, all of it and
   role by role; as long as the behaviour survives, what carries it now is searched for and added.

Budget: `loss(circuit) ≤ best + budget · (loss(nothing) − best)`, with best the loss of the projection, or of the best
prefix seen where coordinates that hurt make the whole projection worse than that.
"""

import logging
import time
from collections.abc import Callable
from dataclasses import dataclass

import torch
from jaxtyping import Bool, Float
from torch import Tensor

from imir_lens.backups import add_backups
from imir_lens.coordinates import Coordinates
from imir_lens.errors import OptionError
from imir_lens.evaluation import Score
from imir_lens.figures.figure import Drawn, Figure
from imir_lens.ids import Head, Path
from imir_lens.roles import BASE_ROLES, Unit, base_of, units_of
from imir_lens.search import Meter, minimal_subset
from imir_lens.surrogate import Surrogate
from imir_lens.tasks.base import Batch

_log = logging.getLogger(__name__)

# Coordinates this much smaller than the largest are float32 rounding, and are treated as absent throughout.
NEGLIGIBLE = 1e-6
# Nothing is searched for when the projection itself does not do the task: it must close this share of the loss.
_WORTH_SEARCHING = 0.1


@dataclass(frozen=True)
class Circuit(Drawn):
    """What detection found. In a notebook it shows itself as a graph.

    Attributes:
        coordinates: of the whole model.
        units: the circuit, in order of attribution.
        attribution: of every coordinate, flat; positive means it lowers the loss.
        budget: share of the loss gap allowed.
        limit: the loss the search had to stay within.
        projection, nothing, surrogate: scores of all coordinates, none, and the circuit's, on the search contexts.
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
        mask = torch.zeros_like(self.coordinates.values, dtype=torch.bool)
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

    def figure_makers(self) -> dict[str, Callable[[], Figure]]:
        """Return what draws each figure: `circuit`, `attribution`, each head's coordinates by its name, `readout`."""
        from imir_lens.report.circuit_card import circuit_figures

        return circuit_figures(self)

    def _repr_html_(self) -> str:
        from imir_lens.report.circuit_card import circuit_card

        return circuit_card(self).html()


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
    everything = coordinates.values.abs() > NEGLIGIBLE * coordinates.values.abs().max()
    if candidates is not None:
        everything &= candidates.to(everything.device)
    nothing, projection = meter.score(torch.zeros_like(everything)), meter.score(everything)
    limit = projection.loss
    attribution = torch.zeros_like(coordinates.values)
    first: list[int] = []
    places: list[int] = []
    if nothing.loss - projection.loss > _WORTH_SEARCHING * nothing.loss:
        attribution = meter.attribution(everything)
        stay = stay or path_stay(surrogate.patterns(coordinates.values, batch[:64]), batch[:64])
        first, limit = minimal_subset(meter, meter.ranking(attribution, everything), everything, budget)
        places = add_backups(meter, first, everything, budget, stay)
        _log.debug("circuit of %d, %d with backups, after %d evaluations", len(first), len(places), meter.evaluations)
    places.sort(key=lambda place: -abs(float(attribution[place])))
    return Circuit(
        coordinates=coordinates,
        units=units_of(coordinates, places, stay) if stay else (),
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


def bootstrap_jaccard(
    circuit: Circuit,
    batch: Batch,
    *,
    n: int,
    generator: torch.Generator,
    stay: Callable[[Path], float] | None = None,
    top: int = 200,
) -> float:
    """Mean Jaccard index between the circuit and those detected on bootstrap samples of the contexts.

    Each of the n runs searches again among the `top` coordinates of largest attribution; `stay` as in `detect`.
    """
    if not circuit.units:
        return 0.0
    candidates = circuit.mask.clone()
    candidates[circuit.attribution.abs().topk(min(top, len(circuit.attribution))).indices] = True
    found = {unit.place for unit in circuit.units}
    total = 0.0
    for _ in range(n):
        sample = torch.randint(len(batch), (len(batch),), generator=generator)
        again = detect(circuit.coordinates, batch[sample], budget=circuit.budget, candidates=candidates, stay=stay)
        places = {unit.place for unit in again.units}
        total += len(found & places) / len(found | places)
    return total / n
