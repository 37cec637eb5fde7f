"""Evidence in the model equals evidence in the surrogate where nothing else is in the model."""

import pytest
import torch

from imir_lens.ablation import ablate
from imir_lens.detection import Circuit, detect
from imir_lens.evaluation import score_logits
from imir_lens.evidence import Evidence, gather_evidence
from imir_lens.lens_model import LensModel, open_model
from imir_lens.models.constructions import induction_circuit, plant
from imir_lens.projector import ImirProjector
from imir_lens.tasks import make_task

TASK = make_task("recall")
CIRCUIT = induction_circuit()
TEST = TASK.sample(64, torch.Generator().manual_seed(1))


def study(**options: object) -> tuple[LensModel, Circuit, Evidence]:
    generator = torch.Generator().manual_seed(2)
    model = open_model(plant(TASK, CIRCUIT, n_layers=2, n_heads=2, generator=generator, **options))
    projector = ImirProjector.for_task(TASK)
    coordinates = projector.fit(model.weights).coordinates_
    found = detect(coordinates, TASK.sample(64, torch.Generator().manual_seed(0)))
    return model, found, gather_evidence(model, found, TEST)


@pytest.fixture(scope="module")
def planted() -> tuple[LensModel, Circuit, Evidence]:
    return study()


def test_surrogate_and_model_lose_alike_in_a_planted_model(planted):
    _, _, evidence = planted
    assert set(evidence.units) == set(CIRCUIT) and set(evidence.roles) == {"alpha", "beta", "gamma", "auxiliary"}
    for removal in [*evidence.units.values(), *evidence.roles.values()]:
        assert removal.model.loss == pytest.approx(removal.surrogate.loss, rel=1e-3)
        assert removal.model.loss > evidence.model.loss + 0.1
    assert evidence.projection.loss == pytest.approx(evidence.model.loss, abs=1e-4)


def test_the_circuit_is_sufficient_and_necessary_in_a_planted_model(planted):
    _, _, evidence = planted
    assert evidence.circuit.loss == pytest.approx(evidence.model.loss, abs=1e-4) and evidence.circuit.accuracy == 1
    assert evidence.without_circuit.loss == pytest.approx(evidence.without_all.loss, abs=1e-3)
    assert evidence.without_all.loss == pytest.approx(4.159, abs=0.01)  # log 64: nothing is left
    assert evidence.faithfulness == pytest.approx(1, abs=1e-4) == evidence.completeness


def test_each_removal_is_the_ablation_of_that_unit(planted):
    model, found, evidence = planted
    for unit in found.units:
        logits = ablate(model, found.coordinates, [unit.id], TEST)
        assert evidence.units[str(unit.id)].model == score_logits(logits, TEST)


def test_what_random_heads_add_shows_in_the_model_and_not_in_the_surrogate():
    _, found, evidence = study(other_heads="random", other_scale=2.5, noise=0.1)
    assert {str(unit.id) for unit in found.units} == set(CIRCUIT)
    assert evidence.projection.loss != pytest.approx(evidence.model.loss, abs=1e-4)
    assert abs(evidence.without_all.loss - 4.159) > 0.01  # a remainder that no coordinate explains is kept
    assert evidence.without_circuit.accuracy < 0.2 and evidence.circuit.accuracy > 0.9


def test_without_a_circuit_nothing_is_removed():
    task = make_task("hop", hops=2)
    model = open_model(plant(task, {"readout/via:res/same": 1.0}, n_layers=1, n_heads=1))
    projector = ImirProjector.for_task(task)
    batch = task.sample(32, torch.Generator().manual_seed(0))
    found = detect(projector.fit(model.weights).coordinates_, batch)
    evidence = gather_evidence(model, found, batch)
    assert found.units == () and evidence.units == {} == evidence.roles
    assert evidence.without_circuit == evidence.model
    assert evidence.circuit == evidence.without_all
