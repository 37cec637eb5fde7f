"""Circuits written back into checkpoints."""

from pathlib import Path

import pytest
import torch
from live import live_from_file

from imir_lens.checkpoints import load_transformer, save_checkpoint
from imir_lens.coordinates import Coordinates
from imir_lens.detection import detect
from imir_lens.dynamics.pruning import prune
from imir_lens.errors import CoordinateError, UnsupportedModelError
from imir_lens.lens_model import open_model
from imir_lens.models.constructions import induction_circuit, mixed_circuit, plant
from imir_lens.projector import ImirProjector
from imir_lens.tasks import make_task

DATA = Path(__file__).parent.parent / "data"
RECALL = make_task("recall", vocab=16, pairs=3, length=9)
MIXED = make_task("recall", vocab=17, pairs=3, length=9, f_r=0.5)


def sampled(task, contexts=64, seed=1):
    return task.sample(contexts, torch.Generator().manual_seed(seed))


def coordinates_of(model, task):
    return ImirProjector.for_task(task).fit(open_model(model).weights).coordinates_


@pytest.mark.parametrize(
    ("task", "circuit", "n_layers"), [(RECALL, induction_circuit(), 2), (MIXED, mixed_circuit(), 3)]
)
def test_where_contents_have_room_exactly_the_circuit_is_left(task, circuit, n_layers):
    model = plant(task, circuit, n_layers=n_layers, n_heads=2, other_heads="random")
    coordinates = coordinates_of(model, task)
    found = prune(model, coordinates.only(list(circuit)), sampled(task))
    for name, value in circuit.items():
        assert found.kept[name] == pytest.approx(value, rel=1e-5)
    # The first row, which sees one key and has no key one back, is centred like the others: its constant is no gauge.
    rest = [(str(name), value) for name, value in found.found.largest(20) if str(name) not in circuit]
    assert rest[0] == found.rest
    assert rest[0][0] == "L0H0/score/q:res/k:res/offset+0"
    assert abs(rest[0][1]) < 4 / RECALL.n_positions**2 + 1e-3
    assert abs(rest[1][1]) < 1e-4
    others = [value for name, value in coordinates.largest(200) if str(name) not in circuit]
    assert max(map(abs, others)) > 0.1  # the random heads had coordinates
    assert {(head.layer, head.index) for head in found.ranks} == {(layer, 0) for layer in range(n_layers)}
    assert found.numbers_after < found.numbers_before
    assert found.after.loss == pytest.approx(found.circuit.loss, abs=1e-3)


def test_noise_goes_and_the_circuit_stays():
    circuit = induction_circuit()
    noisy = plant(RECALL, circuit, n_layers=2, n_heads=1, noise=0.3)
    coordinates = coordinates_of(noisy, RECALL)
    found = prune(noisy, coordinates.only(list(circuit)), sampled(RECALL))
    for name in circuit:
        assert found.kept[name] == pytest.approx(coordinates[name], rel=0.02)
    assert found.after.loss < found.before.loss


def test_a_circuit_without_its_beta_does_not_do_the_task():
    circuit = induction_circuit()
    model = plant(RECALL, circuit, n_layers=2, n_heads=1)
    lacking = [name for name in circuit if "k:L0H0/same" not in name]
    found = prune(model, coordinates_of(model, RECALL).only(lacking), sampled(RECALL, 256))
    assert found.before.accuracy > 0.99
    assert found.after.accuracy < 0.7


def test_a_trained_checkpoint_keeps_its_behaviour_with_the_circuit_alone(tmp_path):
    task = make_task("recall")
    model = load_transformer(DATA / "recall_2l.pt")
    before = {name: value.clone() for name, value in model.state_dict().items()}
    circuit = detect(coordinates_of(model, task), sampled(task, 128, 2))
    found = prune(model, circuit, sampled(task, 256))
    assert set(found.wanted) == {str(unit.id) for unit in circuit.units}
    assert found.after.loss < 0.01
    assert found.after.accuracy > 0.995
    kept = [abs(value) for value in found.kept.values()]
    assert abs(found.rest[1]) < min(kept)  # what W_E W_U and overlaps leave is less than any unit of the circuit
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    again = detect(coordinates_of(found.model, task), sampled(task, 128, 2))
    assert {str(unit.id) for unit in again.units} <= set(found.wanted)

    path = tmp_path / "pruned.pt"
    save_checkpoint(path, found.model.state_dict(), found.model.cfg)
    tokens = sampled(task, 8, 3).tokens
    with torch.no_grad():
        torch.testing.assert_close(live_from_file(path)(tokens), found.model(tokens), atol=1e-4, rtol=1e-4)


def test_what_cannot_be_pruned_is_refused():
    model = plant(RECALL, induction_circuit(), n_layers=2, n_heads=1)
    coordinates = coordinates_of(model, RECALL)
    with pytest.raises(CoordinateError, match="empty"):
        prune(model, Coordinates(coordinates.space, torch.zeros(coordinates.space.size)), sampled(RECALL))
    wider = plant(RECALL, induction_circuit(), n_layers=2, n_heads=2)
    with pytest.raises(CoordinateError, match="2 layers of 1 heads, the model has 2 of 2"):
        prune(wider, coordinates, sampled(RECALL))
    with pytest.raises(UnsupportedModelError, match="attention-only"):
        prune(load_transformer(DATA / "recall_rotary_ln.pt"), coordinates, sampled(RECALL))
