"""Two heads that do the same job are found together, and removed together, by role."""

import pytest
import torch

from imir_lens.analysis import run_analysis
from imir_lens.detection import Circuit, detect
from imir_lens.evidence import gather_evidence
from imir_lens.lens_model import LensModel, open_model
from imir_lens.models.constructions import induction_circuit, memory_circuit, plant, shared_circuit
from imir_lens.projector import ImirProjector
from imir_lens.tasks import make_task

TASK = make_task("recall")


def _open(circuit: dict[str, float], *, n_layers: int = 2, n_heads: int = 2) -> tuple[LensModel, Circuit]:
    generator = torch.Generator().manual_seed(1)
    model = open_model(plant(TASK, circuit, n_layers=n_layers, n_heads=n_heads, generator=generator))
    projector = ImirProjector.for_task(TASK)
    projector.fit(model.weights)
    return model, detect(projector.coordinates_, TASK.sample(256, torch.Generator().manual_seed(0)))


@pytest.mark.parametrize("role", ["alpha", "beta", "gamma"])
def test_heads_that_share_a_role_are_found_together(role: str) -> None:
    circuit = shared_circuit(role)
    model, found = _open(circuit)
    shared = {name for name in circuit if name in {str(unit.id) for unit in found.by_role()[role]}}
    assert len(shared) >= 2
    heads = {name.split("/")[0] if role != "gamma" else name for name in shared}
    assert len(heads) == 2 or role == "beta"
    evidence = gather_evidence(model, found, TASK.sample(256, torch.Generator().manual_seed(1)))
    together = evidence.roles[role].model
    alone = [evidence.units[name].model for name in shared]
    assert evidence.model.accuracy > 0.9
    assert together.loss > evidence.model.loss + 1
    assert all(together.loss > one.loss + 0.3 for one in alone)


def _duplicate(role: str) -> dict[str, float]:
    """Two complete copies of one role's head, each sufficient."""
    first = {"alpha": "L0H0", "beta": "L1H0"}
    second = {"alpha": "L0H1", "beta": "L1H0"} if role == "alpha" else {"alpha": "L0H0", "beta": "L1H1"}
    return induction_circuit(heads=first) | induction_circuit(heads=second)


@pytest.mark.parametrize("role", ["alpha", "beta"])
def test_a_backup_that_a_minimal_circuit_leaves_out_is_added(role: str) -> None:
    circuit = _duplicate(role)
    model, found = _open(circuit)
    assert {str(unit.id) for unit in found.units} == set(circuit)
    assert not found.minimal
    assert set(found.backups) < set(circuit)
    evidence = gather_evidence(model, found, TASK.sample(256, torch.Generator().manual_seed(1)))
    doubled = [str(unit.id) for unit in found.by_role()[role]]
    assert len(doubled) == 2
    # Each alone is dispensable, both together are not: what a one-at-a-time ablation cannot see.
    alone = [evidence.units[name].model for name in doubled]
    assert all(score.accuracy > 0.95 for score in alone)
    assert evidence.roles[role].model.loss > max(score.loss for score in alone)
    if role == "beta":
        assert evidence.roles[role].model.loss > 1 > 20 * max(score.loss for score in alone)
    assert evidence.without_circuit.accuracy < 0.1


def test_a_backup_in_another_layer_is_added() -> None:
    """Its readers are read away with the first head: a head without its pattern would only be noise to them."""
    circuit = induction_circuit(heads={"alpha": "L0H0", "beta": "L2H0"}) | induction_circuit(
        heads={"alpha": "L1H0", "beta": "L2H0"}
    )
    _, found = _open(circuit, n_layers=3, n_heads=1)
    assert {str(unit.id) for unit in found.units} == set(circuit)
    assert {str(unit.id.head) for unit in found.by_role()["alpha"]} == {"L0H0", "L1H0"}


def test_two_mechanisms_that_each_suffice_are_mixed() -> None:
    task = make_task("recall", vocab=33, pairs=4, length=12, f_r=0.0, f_v=0.0)
    circuit = induction_circuit() | memory_circuit(delta=30.0)
    model = open_model(plant(task, circuit, n_layers=2, n_heads=1, generator=torch.Generator().manual_seed(0)))
    analysis = run_analysis(model, task, contexts=128, bootstraps=2)
    assert {str(unit.id) for unit in analysis.circuit.units} == set(circuit)
    assert analysis.circuit.backups
    assert analysis.verdict.mechanism == "mixed"
    assert analysis.evidence.roles["delta"].model.accuracy > 0.95  # the other mechanism carries on
    assert analysis.evidence.without_circuit.accuracy < 0.1


def test_without_redundancy_there_are_no_backups() -> None:
    circuit = induction_circuit()
    _, found = _open(circuit)
    assert found.minimal
    assert found.backups == ()
    assert {str(unit.id) for unit in found.units} == set(circuit)


@pytest.mark.parametrize("seed", [1, 2])
def test_what_only_hedges_without_a_role_is_no_backup(seed: int) -> None:
    # Four in five contexts can be answered by either mechanism, so the behaviour survives without one of beta or gamma.
    task = make_task("recall", vocab=21, pairs=3, length=7, f_r=0.25, burstiness=0.8)
    circuit = induction_circuit(gamma=20.0) | memory_circuit(delta=20.0)
    generator = torch.Generator().manual_seed(seed)
    model = plant(task, circuit, n_layers=2, n_heads=2, other_heads="random", noise=0.2, generator=generator)
    projector = ImirProjector.for_task(task).fit(open_model(model).weights)
    found = detect(projector.coordinates_, task.sample(256, torch.Generator().manual_seed(0)))
    assert {str(unit.id) for unit in found.units} == set(circuit)
    assert found.backups == ()
