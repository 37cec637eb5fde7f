"""Separate circuits: sets of coordinates without a common member, each of which does the whole task alone.

A circuit with its backups says what has to be removed for the behaviour to go; it does not say whether the backups are
a second mechanism or a second head of the same one. So the minimal circuit is taken out, and among all that is left
another is searched for, until none does the task. Circuits that share a unit (two previous-token heads that feed one
matching head, say) are not separate: without the first, nothing is left that works.

Each search is greedy, so there may be more separate circuits than are found, never fewer.
"""

import logging
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch

from imir_lens.ablation import ablate_mask
from imir_lens.backups import keeps
from imir_lens.detection import NEGLIGIBLE, Circuit, path_stay
from imir_lens.errors import OptionError
from imir_lens.evaluation import Score, score_logits
from imir_lens.ids import Path
from imir_lens.lens_model import LensModel
from imir_lens.roles import units_of
from imir_lens.search import Meter, minimal_subset
from imir_lens.surrogate import Surrogate
from imir_lens.tasks.base import Batch

_log = logging.getLogger(__name__)

# A circuit is sufficient with these shares of what the projection gains over "nothing", in loss and in accuracy.
_SUFFICES = Score(loss=0.9, accuracy=0.8)
# What is left is searched only when all of it together keeps these shares: less strict, since what hurts is dropped.
_WORTH_SEARCHING = Score(loss=0.2, accuracy=0.4)
_MOST = 16


@dataclass(frozen=True)
class Sufficiency:
    """One of several separate circuits, tested alone on contexts that the search never saw.

    Attributes:
        circuit: its units, and what the search for it cost.
        surrogate: the surrogate with nothing but these units.
        model: the real model with every coordinate but these removed.
    """

    circuit: Circuit
    surrogate: Score
    model: Score


def separate_circuits(
    circuit: Circuit,
    batch: Batch,
    *,
    stay: Callable[[Path], float] | None = None,
    most: int = _MOST,
) -> tuple[Circuit, ...]:
    """Return circuits without a common unit, each minimal and sufficient alone on the surrogate.

    The first is the given one without its backups. One circuit means that there is no second, none that nothing was
    detected. Where a circuit has no backups nothing is evaluated: detection has then seen that the behaviour is gone
    without it.

    Args:
        circuit: as detected.
        batch: the search contexts.
        stay: as in `detect`.
        most: how many to look for at most.

    Raises:
        OptionError: when `most` is below 1.
    """
    if most < 1:
        raise OptionError(f"expected to look for at least 1 circuit, got most={most}")
    if not circuit.backups:
        return (circuit,) if circuit.units else ()
    coordinates, size = circuit.coordinates, circuit.coordinates.values.abs()
    surrogate = Surrogate(coordinates.space)
    meter = Meter(surrogate, coordinates.values, batch)
    stay = stay or path_stay(surrogate.patterns(coordinates.values, batch[:64]), batch[:64])
    rest = size > NEGLIGIBLE * size.max()
    attribution, limit = circuit.attribution, circuit.limit
    places = [unit.place for unit in circuit.units if str(unit.id) not in circuit.backups]
    found: list[Circuit] = []
    while keeps(meter.score(meter.mask(places)), circuit.nothing, circuit.projection, _SUFFICES):
        found.append(
            replace(
                circuit,
                units=units_of(coordinates, places, stay),
                attribution=attribution,
                limit=limit,
                surrogate=meter.score(meter.mask(places)),
                minimal=True,
                backups=(),
                evaluations=meter.evaluations,
                gradient_passes=meter.gradient_passes,
            )
        )
        rest &= ~meter.mask(places)
        if len(found) == most:
            _log.warning("stopped after %d separate circuits; there may be more", most)
            break
        if not keeps(meter.score(rest), circuit.nothing, circuit.projection, _WORTH_SEARCHING):
            break
        attribution = meter.attribution(rest)
        places, limit = minimal_subset(meter, meter.ranking(attribution, rest), rest, circuit.budget)
    _log.debug("%d separate circuits after %d evaluations", len(found), meter.evaluations)
    return tuple(found)


def verify_separate(model: LensModel, circuits: tuple[Circuit, ...], batch: Batch) -> tuple[Sufficiency, ...]:
    """Test each of several circuits alone, in the surrogate and in the real model.

    Args:
        model: the real model.
        circuits: as `separate_circuits` returns them.
        batch: test contexts, not those of the search.
    """
    out = []
    for circuit in circuits:
        coordinates, mask = circuit.coordinates, circuit.mask
        surrogate = Surrogate(coordinates.space)
        with torch.no_grad():
            alone = score_logits(surrogate.logits(torch.where(mask, coordinates.values, 0.0), batch), batch)
        in_model = score_logits(ablate_mask(model, coordinates, (coordinates.values != 0) & ~mask, batch), batch)
        out.append(Sufficiency(circuit, alone, in_model))
    return tuple(out)
