"""The surrogate against a naive run of the same coordinates, and against models whose weights hold nothing else."""

import pytest
import torch
from brute_force import named, rows, surrogate_logits, surrogate_patterns
from rich_circuit import RICH
from toy_task import ToyTask, relations, toy_batch

from imir_lens import terms as terms_module
from imir_lens.coordinates import Coordinates, CoordinateSpace
from imir_lens.evaluation import at_queries, cross_entropy
from imir_lens.ids import Head, Path
from imir_lens.lens_model import open_model
from imir_lens.models.constructions import hop_circuit, induction_circuit, memory_circuit, mixed_circuit, plant
from imir_lens.paths import PathTable
from imir_lens.projector import ImirProjector
from imir_lens.surrogate import Surrogate
from imir_lens.tasks import make_task
from imir_lens.terms import Reads

P = 5
SHAPES = [(1, 2), (2, 2), (3, 1)]


def random_coordinates(
    n_layers: int, n_heads: int, *, share: float = 1.0, paths: PathTable | None = None
) -> Coordinates:
    space = CoordinateSpace(paths or PathTable.full(n_layers, n_heads), relations(), P)
    values = 0.7 * torch.randn(space.size, dtype=torch.float64)
    return Coordinates(space, torch.where(torch.rand(space.size) < share, values, 0.0))


@pytest.mark.parametrize("share", [1.0, 0.2])
@pytest.mark.parametrize(("n_layers", "n_heads"), SHAPES)
def test_logits_equal_the_naive_run(n_layers, n_heads, share):
    coordinates, batch = random_coordinates(n_layers, n_heads, share=share), toy_batch(4, length=P)
    found = Surrogate(coordinates.space).logits(coordinates.values, batch)
    naive = surrogate_logits(relations(), named(coordinates), batch.tokens, n_layers=n_layers, n_heads=n_heads)
    torch.testing.assert_close(found, rows(naive, batch.queries))
    assert float(found.std()) > 0.1


@pytest.mark.parametrize(("n_layers", "n_heads"), SHAPES)
def test_patterns_equal_the_naive_run_in_every_head(n_layers, n_heads):
    coordinates, batch = random_coordinates(n_layers, n_heads, share=0.3), toy_batch(4, length=P)
    found = Surrogate(coordinates.space).patterns(coordinates.values, batch)
    naive = surrogate_patterns(relations(), named(coordinates), batch.tokens, n_layers=n_layers, n_heads=n_heads)
    assert {(head.layer, head.index) for head in found} == set(naive)
    for head, pattern in found.items():
        torch.testing.assert_close(pattern, naive[head.layer, head.index])
        assert float(pattern.triu(1).abs().max()) == 0


def test_a_cut_table_reads_the_same_as_zeros_in_the_full_one():
    cut = PathTable.full(3, 1).restricted([Path.parse("L0H0.L2H0"), Path.parse("L1H0")])
    coordinates, batch = random_coordinates(3, 1, paths=cut), toy_batch(4, length=P)
    full = CoordinateSpace(PathTable.full(3, 1), relations(), P)
    values = torch.zeros(full.size, dtype=torch.float64)
    for name, value in named(coordinates).items():
        values[full.place(name)] = value
    found = Surrogate(coordinates.space).logits(coordinates.values, batch)
    torch.testing.assert_close(found, Surrogate(full).logits(values, batch))


def test_following_all_paths_changes_nothing():
    few = ["L0H0/score/q:res/k:res/offset+1", "L2H0/score/q:L0H0/k:L0H0/assoc", "readout/via:L2H0/same"]
    coordinates, batch = random_coordinates(3, 1).only(few), toy_batch(4, length=P)
    surrogate = Surrogate(coordinates.space)
    everything = Reads.of(coordinates.space, coordinates.space.active)
    sparse = Reads.of(coordinates.space, coordinates.values != 0)
    assert (len(sparse.keys[Head(2, 0)]), len(everything.keys[Head(2, 0)])) == (1, 4)
    dense = surrogate.logits(coordinates.values, batch, reads=everything)
    torch.testing.assert_close(surrogate.logits(coordinates.values, batch), dense)


def test_the_last_layer_at_queries_only_equals_all_of_its_rows():
    coordinates, batch = random_coordinates(2, 2), toy_batch(6, length=P)
    surrogate = Surrogate(coordinates.space)
    reads = Reads.of(coordinates.space, coordinates.values != 0)
    whole, _ = surrogate._run(coordinates.values, batch, reads, all_rows=True)
    torch.testing.assert_close(surrogate.logits(coordinates.values, batch), whole)


def test_chunks_of_contexts_add_up_to_the_batch(monkeypatch):
    coordinates, batch = random_coordinates(2, 1), toy_batch(7, length=P)
    surrogate = Surrogate(coordinates.space)
    logits, patterns = surrogate.logits(coordinates.values, batch), surrogate.patterns(coordinates.values, batch)
    monkeypatch.setattr(terms_module, "_CHUNK_NUMBERS", 3 * 4 * P * P)  # three contexts of four paths
    torch.testing.assert_close(surrogate.logits(coordinates.values, batch), logits)
    again = surrogate.patterns(coordinates.values, batch)
    assert all(torch.allclose(again[head], patterns[head]) for head in patterns)


def test_nothing_at_all_attends_evenly_and_says_nothing():
    space, batch = CoordinateSpace(PathTable.full(2, 1), relations(), P), toy_batch(3, length=P)
    surrogate, zero = Surrogate(space), torch.zeros(space.size)
    assert float(surrogate.logits(zero, batch).abs().max()) == 0
    even = torch.ones(P, P).tril() / torch.arange(1, P + 1).unsqueeze(1)
    for pattern in surrogate.patterns(zero, batch).values():
        torch.testing.assert_close(pattern, even.expand(3, -1, -1))


def test_gradients_equal_finite_differences():
    """In every block, at coordinates that are zero as well as at others."""
    coordinates, batch = random_coordinates(2, 2, share=0.6), toy_batch(5, length=P)
    space, surrogate = coordinates.space, Surrogate(coordinates.space)
    reads = Reads.of(space, space.active)
    loss = lambda values: cross_entropy(surrogate.logits(values, batch, reads=reads), batch)  # noqa: E731
    values = coordinates.values.clone().requires_grad_()
    (gradient,) = torch.autograd.grad(loss(values), values)
    places = [
        int(place)
        for block in space.blocks
        for place in block.start + torch.randperm(block.size)[:6]
        if space.active[place]
    ]
    assert len({bool(coordinates.values[place] == 0) for place in places}) == 2
    for place in places:
        step = torch.zeros_like(coordinates.values)
        step[place] = 1e-5
        slope = (loss(coordinates.values + step) - loss(coordinates.values - step)) / 2e-5
        assert float(gradient[place]) == pytest.approx(float(slope), abs=1e-8), space.id(place)
    assert float(gradient.abs().max()) > 1e-3


def test_gradients_reach_offsets_that_are_all_zero():
    given = random_coordinates(2, 1).only(["L0H0/score/q:res/k:res/same", "readout/via:L0H0/same"])
    batch, surrogate = toy_batch(5, length=P), Surrogate(given.space)
    values = given.values.clone().requires_grad_()
    reads = Reads.of(given.space, given.space.active)
    (gradient,) = torch.autograd.grad(surrogate.logits(values, batch, reads=reads).square().sum(), values)
    assert abs(float(gradient[given.space.place("L0H0/score/q:res/k:res/offset+1")])) > 1e-5


PLANTED = {
    "rich": (ToyTask(), RICH, 2, 2),
    "induction": (make_task("recall"), induction_circuit(), 2, 1),
    "memory": (make_task("recall", f_r=0.0, f_v=0.0), memory_circuit(), 1, 1),
    "mixed": (make_task("recall", f_r=0.5, burstiness=0.5), mixed_circuit(), 3, 1),
    "2-hop": (make_task("hop", hops=2), hop_circuit(2), 3, 1),
}


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_model_projects_to_its_circuit_and_equals_its_surrogate(name):
    task, circuit, n_layers, n_heads = PLANTED[name]
    model = open_model(plant(task, circuit, n_layers=n_layers, n_heads=n_heads))
    projector = ImirProjector.for_task(task)
    coordinates = projector.fit(model.weights).coordinates_
    found = {name: value for name, value in named(coordinates).items() if abs(value) > 1e-4}
    assert found == pytest.approx(circuit, abs=1e-4)
    batch = task.sample(16, torch.Generator().manual_seed(1))
    logits = at_queries(model.logits(batch.tokens), batch)
    surrogate = Surrogate(coordinates.space).logits(coordinates.values, batch)
    torch.testing.assert_close(surrogate.log_softmax(-1), logits.log_softmax(-1), atol=1e-4, rtol=0)
    assert float(logits.log_softmax(-1).std()) > 0.5
