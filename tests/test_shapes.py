"""Shapes of circuits: equal up to head relabelling, and nothing else."""

from collections import Counter
from itertools import permutations

import pytest
import torch

from imir_lens.detection import detect
from imir_lens.ids import CoordinateId
from imir_lens.lens_model import open_model
from imir_lens.models.constructions import (
    hop_circuit,
    induction_circuit,
    inversion_circuit,
    memory_circuit,
    plant,
    retrieval_circuit,
    shared_circuit,
)
from imir_lens.projector import ImirProjector
from imir_lens.roles import Unit, assign_roles
from imir_lens.shapes import circuit_shape, shape_jaccard
from imir_lens.tasks import make_task


def units(circuit: dict[str, float]) -> list[Unit]:
    ids = [(CoordinateId.parse(name), value) for name, value in circuit.items()]
    roles = assign_roles(ids, lambda path: 0.1 if path.heads else 1.0)
    return [Unit(name, place, roles[name], value) for place, (name, value) in enumerate(ids)]


def shape(circuit: dict[str, float], **options: bool) -> Counter:
    return circuit_shape(units(circuit), **options)


def test_a_shape_is_roles_and_ids_without_head_indices():
    assert shape(induction_circuit(heads={"alpha": "L0H2", "beta": "L1H10"})) == Counter(
        {
            ("alpha", "L0/score/q:res/k:res/offset+1"): 1,
            ("beta", "L1/score/q:res/k:L0/same"): 1,
            ("gamma", "readout/via:L1/same"): 1,
            ("auxiliary", "L1/score/q:res/k:res/same"): 1,
        }
    )
    assert shape(memory_circuit()) == Counter({("delta", "readout/via:res/assoc"): 1})
    assert shape(inversion_circuit())["gamma", "readout/via:L0.L1/same"] == 1
    assert shape(shared_circuit("gamma"))["gamma", "readout/via:L1/same"] == 2  # two heads with one job count twice
    assert shape(hop_circuit(2))["beta", "L2/score/q:L1/k:L0/same"] == 1  # numbered roles are compared by their base


def test_named_leaves_out_the_auxiliaries():
    assert set(shape(induction_circuit())) - set(shape(induction_circuit(), named=True)) == {
        ("auxiliary", "L1/score/q:res/k:res/same")
    }
    assert shape(induction_circuit(not_itself=0.0)) == shape(induction_circuit(), named=True)


@pytest.mark.parametrize("order", list(permutations(range(3))))
def test_head_relabelled_copies_have_the_same_shape(order):
    first = retrieval_circuit(heads={"alpha_1": "L0H0", "alpha_2": "L0H1", "beta_1": "L1H2"})
    again = retrieval_circuit(
        heads={"alpha_1": f"L0H{order[0]}", "alpha_2": f"L0H{order[1]}", "beta_1": f"L1H{order[2]}"}
    )
    assert shape_jaccard(shape(first), shape(again)) == 1
    assert (set(first) == set(again)) == (order == (0, 1, 2))


@pytest.mark.parametrize(
    ("other", "jaccard"),
    [
        (induction_circuit(not_itself=0.0), 3 / 4),
        (induction_circuit(heads={"alpha": "L1H0", "beta": "L2H0"}), 0),  # layers count
        (memory_circuit(), 0),
        (inversion_circuit(), 1 / 7),
        (hop_circuit(2), 3 / 8),
        (induction_circuit() | induction_circuit(heads={"alpha": "L0H1", "beta": "L1H1"}), 1 / 2),
        ({}, 0),
    ],
)
def test_different_circuits_have_less_than_one(other, jaccard):
    assert shape_jaccard(shape(induction_circuit()), shape(other)) == pytest.approx(jaccard)
    assert shape_jaccard(shape(other), shape(induction_circuit())) == pytest.approx(jaccard)


def test_nothing_found_twice_is_no_agreement():
    assert shape_jaccard(Counter(), Counter()) == 0


def test_detected_circuits_of_relabelled_models_have_one_shape():
    task = make_task("recall")
    found = []
    for alpha, beta in (("L0H0", "L1H1"), ("L0H1", "L1H0")):
        circuit = induction_circuit(heads={"alpha": alpha, "beta": beta})
        model = plant(task, circuit, n_layers=2, n_heads=2, generator=torch.Generator().manual_seed(0))
        coordinates = ImirProjector.for_task(task).fit(open_model(model).weights).coordinates_
        found.append(detect(coordinates, task.sample(128, torch.Generator().manual_seed(0))).units)
    first, second = ({str(unit.id) for unit in units} for units in found)
    assert not first & second
    assert shape_jaccard(*map(circuit_shape, found)) == 1
