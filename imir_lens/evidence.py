"""Evidence in the real model: ablate each unit, each role, the circuit, and everything else.

All on contexts the search never saw. Loss and accuracy of the surrogate stand beside those of the model.
"""

from dataclasses import dataclass

import torch
from jaxtyping import Bool
from torch import Tensor

from imir_lens.ablation import ablate_mask
from imir_lens.detection import Circuit
from imir_lens.evaluation import Score, at_queries, score_logits
from imir_lens.lens_model import LensModel
from imir_lens.surrogate import Surrogate
from imir_lens.tasks.base import Batch


@dataclass(frozen=True)
class Removal:
    """Scores after taking something out: of the surrogate (the whole projection), and of the real model."""

    surrogate: Score
    model: Score


@dataclass(frozen=True)
class Evidence:
    """What ablation says.

    Attributes:
        model: the model as it is.
        projection: the surrogate with all coordinates.
        surrogate: the surrogate with the circuit's units alone.
        circuit: the real model with every coordinate outside the circuit removed (sufficiency).
        without_circuit: the real model with the circuit's units removed (necessity).
        without_all: the real model with every coordinate removed: what is left is only what no coordinate explains.
        units: each unit removed alone, by its id.
        roles: all units of a base role removed together.
    """

    model: Score
    projection: Score
    surrogate: Score
    circuit: Score
    without_circuit: Score
    without_all: Score
    units: dict[str, Removal]
    roles: dict[str, Removal]

    @property
    def faithfulness(self) -> float:
        """`(loss(without_all) − loss(circuit)) / (loss(without_all) − loss(model))`: 1 when the circuit suffices."""
        return _share(self.without_all.loss - self.circuit.loss, self.without_all.loss - self.model.loss)

    @property
    def completeness(self) -> float:
        """`(loss(without_circuit) − loss(model)) / (loss(without_all) − loss(model))`: 1 when nothing else matters."""
        return _share(self.without_circuit.loss - self.model.loss, self.without_all.loss - self.model.loss)


def gather_evidence(model: LensModel, circuit: Circuit, batch: Batch) -> Evidence:
    """Run every ablation of a circuit, in the surrogate and in the model.

    Args:
        model: the real model.
        circuit: as detected.
        batch: test contexts, not those of the search.
    """
    coordinates = circuit.coordinates
    surrogate = Surrogate(coordinates.space)
    everything = coordinates.values != 0

    def in_model(removed: Bool[Tensor, " coordinate"]) -> Score:
        return score_logits(ablate_mask(model, coordinates, removed, batch), batch)

    def in_surrogate(removed: Bool[Tensor, " coordinate"]) -> Score:
        with torch.no_grad():
            values = torch.where(removed, 0.0, coordinates.values)
            return score_logits(surrogate.logits(values, batch), batch)

    def removal(places: list[int]) -> Removal:
        removed = torch.zeros_like(everything)
        removed[places] = True
        return Removal(in_surrogate(removed), in_model(removed))

    mask = circuit.mask
    nothing = torch.zeros_like(everything)
    model_score = score_logits(at_queries(model.logits(batch.tokens), batch), batch)
    return Evidence(
        model=model_score,
        projection=in_surrogate(nothing),
        surrogate=in_surrogate(everything & ~mask),
        circuit=in_model(everything & ~mask),
        without_circuit=in_model(mask) if circuit.units else model_score,
        without_all=in_model(everything),
        units={str(unit.id): removal([unit.place]) for unit in circuit.units},
        roles={role: removal([unit.place for unit in units]) for role, units in circuit.by_role().items()},
    )


def _share(part: float, whole: float) -> float:
    return part / whole if whole > 0 else 0.0
