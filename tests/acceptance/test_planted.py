"""Models with a planted circuit: detection returns exactly it, values included, among random heads and under noise."""

import pytest
import torch

from imir_lens.detection import Circuit, detect
from imir_lens.lens_model import open_model
from imir_lens.models.constructions import (
    hop_circuit,
    induction_circuit,
    memory_circuit,
    plant,
)
from imir_lens.projector import ImirProjector
from imir_lens.tasks import make_task
from imir_lens.tasks.base import Task

MEMORY = {"vocab": 65, "f_r": 0.0, "f_v": 0.0}
# Rare pairs need the context, absent common ones need memory, and few queries (rare and absent) can only be hedged.
MIXED = {"vocab": 65, "f_r": 0.25, "burstiness": 0.85}
CASES = {
    "induction": (make_task("recall"), induction_circuit(), 2),
    "memory": (make_task("recall", **MEMORY), memory_circuit(), 2),
    "mixed": (make_task("recall", **MIXED), induction_circuit(gamma=20.0) | memory_circuit(delta=20.0), 2),
    "2-hop": (make_task("hop", hops=2), hop_circuit(2), 3),
    "3-hop": (make_task("hop", hops=3), hop_circuit(3), 4),
}
ROLES = {
    "induction": {"alpha", "beta", "gamma"},
    "memory": {"delta"},
    "mixed": {"alpha", "beta", "gamma", "delta"},
    "2-hop": {"alpha", "beta", "gamma"},
    "3-hop": {"alpha", "beta", "gamma"},
}


def _detect(task: Task, circuit: dict[str, float], **options: object) -> Circuit:
    model = plant(task, circuit, generator=torch.Generator().manual_seed(3), **options)  # type: ignore[arg-type]
    projector = ImirProjector.for_task(task)
    projector.fit(open_model(model).weights)
    return detect(projector.coordinates_, task.sample(256, torch.Generator().manual_seed(0)))


def _assert_exact(found: Circuit, circuit: dict[str, float], case: str) -> None:
    assert {str(unit.id) for unit in found.units} == set(circuit)  # precision = recall = 1
    assert set(found.by_role()) - {"auxiliary"} == ROLES[case]


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize(("n_layers", "n_heads"), [(None, 1), (5, 1), (5, 3)])
def test_planted_circuit_is_recovered_with_its_values(case: str, n_layers: int | None, n_heads: int) -> None:
    task, circuit, least = CASES[case]
    found = _detect(task, circuit, n_layers=n_layers or least, n_heads=n_heads)
    _assert_exact(found, circuit, case)
    for unit in found.units:
        assert unit.value == pytest.approx(circuit[str(unit.id)], abs=1e-4)


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize(("n_heads", "noise"), [(1, 0.0), (1, 0.1), (3, 0.1)])
def test_random_heads_and_noise_do_not_change_the_answer(case: str, n_heads: int, noise: float) -> None:
    task, circuit, _ = CASES[case]
    found = _detect(task, circuit, n_layers=5, n_heads=n_heads, other_heads="random", noise=noise)
    _assert_exact(found, circuit, case)
    for unit in found.units:
        planted = circuit[str(unit.id)]
        # Random heads leave the planted blocks as they are; noise moves them, by about its own share.
        assert unit.value == pytest.approx(planted, abs=1e-4 if noise == 0 else max(1.0, 0.1 * abs(planted)))


def test_numbered_roles_follow_the_hops() -> None:
    task, circuit, least = CASES["3-hop"]
    roles = {str(unit.id): unit.role for unit in _detect(task, circuit, n_layers=least, n_heads=1).units}
    assert roles["L1H0/score/q:res/k:L0H0/same"] == "beta_1"
    assert roles["L2H0/score/q:L1H0/k:L0H0/same"] == "beta_2"
    assert roles["L3H0/score/q:L2H0/k:L0H0/same"] == "beta_3"
    assert roles["readout/via:L3H0/same"] == "gamma"
