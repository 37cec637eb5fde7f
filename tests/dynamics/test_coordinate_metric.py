"""The metric against one real step of gradient descent on a disentangled transformer's weights."""

import pytest
import torch
from surrogate_cases import mask_of, small_recall, space_of

from imir_lens.coordinates import Coordinates
from imir_lens.dynamics.coordinate_metric import coordinate_metric
from imir_lens.dynamics.coordinate_sets import lift, mask_of_roles, reference_roles
from imir_lens.errors import OptionError
from imir_lens.evaluation import at_queries, cross_entropy
from imir_lens.lens_model import open_model
from imir_lens.models.planting import plant_disentangled
from imir_lens.projector import ImirProjector
from imir_lens.surrogate import Surrogate
from imir_lens.tasks import make_task
from imir_lens.terms import Reads

CIRCUIT = {
    "L0H0/score/q:res/k:res/offset+1": 1.5,
    "L0H0/score/q:res/k:res/same": 0.7,
    "L1H0/score/q:res/k:L0H0/same": 2.0,
    "L1H0/score/q:const/k:res/word": 0.5,
    "L1H0/score/q:L0H0/k:L0H0/offset+2": 0.5,
    "readout/via:L1H0/same": 2.5,
    "readout/via:res/assoc": 1.0,
}
RATE = 1e-3


def measured_and_predicted(metric_of):
    """How far one step on the weights moves every coordinate, and how far the metric says it does."""
    task = small_recall(vocab=17, f_r=0.0, f_v=0.5)
    batch = task.sample(256, torch.Generator().manual_seed(0))
    model = plant_disentangled(task, CIRCUIT, n_layers=2, n_heads=1).double()
    projector = ImirProjector.for_task(task, min_coordinate=-1.0)
    before = projector.fit(model.circuit_weights()).coordinates_
    space = before.space
    cross_entropy(at_queries(model(batch.tokens), batch), batch).backward()
    with torch.no_grad():
        for value in model.parameters():
            value.sub_(RATE * value.grad)
    moved = (projector.transform(model.circuit_weights()).values - before.values) / RATE
    values = before.values.clone().requires_grad_(True)
    cross_entropy(Surrogate(space).logits(values, batch, reads=Reads.of(space, space.active)), batch).backward()
    predicted = torch.zeros_like(moved)
    predicted[space.active] = -metric_of(space) @ values.grad[space.active]
    return space, _fixed(space, moved), _fixed(space, predicted)


def _fixed(space, values):
    """Offsets are given up to a constant of each block: subtract the mean over those that can act."""
    out = values.clone()
    n_tokens = len(space.relations.names)
    for head in space.paths.heads:
        block = space.block("score", head)
        view, active = block.view(out)[..., n_tokens:], block.view(space.active)[..., n_tokens:]
        mean = (view * active).sum(-1, keepdim=True) / active.sum(-1, keepdim=True)
        view.copy_(torch.where(active, view - mean, 0.0))
    return out


def test_a_step_on_the_weights_moves_every_coordinate_as_the_metric_says():
    space, moved, predicted = measured_and_predicted(coordinate_metric)
    for block in space.blocks:
        torch.testing.assert_close(block.view(predicted), block.view(moved), atol=2e-4, rtol=2e-3)
        assert float(block.view(moved).abs().max()) > 1e-3


def test_plain_gradient_descent_on_the_coordinates_goes_elsewhere():
    _, moved, predicted = measured_and_predicted(lambda space: torch.eye(space.n_active, dtype=torch.float64))
    scale = (moved @ predicted) / (predicted @ predicted)  # even at the best common rate
    assert float((moved - scale * predicted).norm() / moved.norm()) > 0.3


def test_the_metric_of_some_coordinates_is_that_part_of_the_whole():
    task = small_recall(f_r=0.5)
    space = space_of(task)
    chosen = torch.rand(space.size, generator=torch.Generator().manual_seed(0)) < 0.3
    chosen &= space.active
    whole, part = coordinate_metric(space), coordinate_metric(space, chosen)
    kept = chosen[space.active]
    torch.testing.assert_close(part, whole[kept][:, kept])
    torch.testing.assert_close(whole, whole.T)
    assert float(torch.linalg.eigvalsh(whole).min()) > -1e-12


def test_roles_of_the_reference_circuit():
    task = make_task("recall", f_r=0.0, f_v=0.5, vocab=17, pairs=3, length=9)
    assert reference_roles(task) == {
        "alpha": ("L0H0/score/q:res/k:res/offset+1",),
        "beta": ("L1H0/score/q:res/k:L0H0/same",),
        "gamma": ("readout/via:L1H0/same",),
        "delta": ("readout/via:res/assoc",),
        "auxiliary": ("L1H0/score/q:res/k:res/same",),
    }
    space = space_of(task)
    wanted = mask_of(space, ("L1H0/score/q:res/k:L0H0/same", "readout/via:res/assoc"))
    assert torch.equal(mask_of_roles(task, space, ("beta", "delta")), wanted)
    assert int(mask_of_roles(task, space).sum()) == 4
    assert "delta" not in reference_roles(small_recall())
    with pytest.raises(OptionError, match="did you mean 'gamma'"):
        mask_of_roles(task, space, ("gama",))


@pytest.mark.parametrize("disentangled", [False, True])
def test_lifted_coordinates_project_to_themselves(disentangled):
    task = small_recall()
    space = space_of(task)
    values = torch.zeros(space.size)
    for name, value in CIRCUIT.items():
        if "assoc" not in name and "const" not in name:
            values[space.place(name)] = value
    model = lift(task, Coordinates(space, values), disentangled=disentangled)
    projector = ImirProjector.for_task(task, min_coordinate=-1.0)
    found = projector.fit(open_model(model).weights).coordinates_
    torch.testing.assert_close(found.values, values, atol=1e-4, rtol=1e-4)
