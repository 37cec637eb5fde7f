"""Paths chosen in models that have too many: their reach by explicit coordinates, and circuits found among them."""

import pytest
import torch
from hand_built import induction
from test_forms import FORMS, MLPS, model_of
from toy_task import ToyTask, random_model, relations, toy_batch

from imir_lens import path_choice
from imir_lens.detection import detect
from imir_lens.lens_model import LensModel, open_model
from imir_lens.linear_stream import measure_stream
from imir_lens.path_choice import choose_paths, is_too_large, n_coordinates
from imir_lens.paths import PathTable
from imir_lens.projector import ImirProjector

N = 7
QUERIES = ToyTask().query_positions


def _reach_by_coordinates(model: LensModel) -> dict[str, float]:
    """The largest token coordinate with the empty path on the other side, from a projection of all paths."""
    stream = measure_stream(model, toy_batch(64, seed=5))
    projector = ImirProjector.for_task(ToyTask(), min_coordinate=0.0).fit(model.weights, stream)
    space, values = projector.space_, projector.coordinates_.values
    n_tokens, reach = len(space.relations.names), {}
    for place, path in enumerate(space.paths.paths[1:], start=1):
        best = float(space.block("readout").view(values)[place].abs().max())
        for head in space.paths.heads:
            if head.layer > path.heads[-1].layer:
                block = space.block("score", head).view(values)[..., :n_tokens].abs()
                best = max(best, float(block[0, place].max()), float(block[place, 0].max()))
        reach[str(path)] = best
    return reach


@torch.no_grad()
@pytest.mark.parametrize(
    "model",
    [random_model(2, 2), model_of(FORMS["partial rotary behind RMS"]), model_of(FORMS["LN"])],
    ids=["plain", "rotary", "LN"],
)
def test_the_reach_of_a_path_is_its_largest_coordinate(model: LensModel) -> None:
    expected = _reach_by_coordinates(model)
    stream = measure_stream(model, toy_batch(64, seed=5))
    for most in range(1, len(expected) + 1):
        choice = choose_paths(
            model.weights,
            stream,
            relations(),
            N,
            QUERIES,
            n_relations=30,
            max_paths=most + 1,
            min_coordinate=0.0,
        )
        left_out = [name for name in expected if name not in map(str, choice.table.paths)]
        assert choice.seen == len(expected) + 1
        assert choice.reach == pytest.approx(max((expected[name] for name in left_out), default=0), rel=1e-6)


@torch.no_grad()
def test_chosen_paths_are_closed_under_prefixes_and_in_the_order_of_a_full_table() -> None:
    model = random_model(3, 2)
    choice = choose_paths(model.weights, None, relations(), N, QUERIES, n_relations=30, max_paths=9, min_coordinate=0.0)
    full = PathTable.full(3, 2)
    assert choice.table.paths == full.restricted(choice.table.paths).paths
    assert 3 < len(choice.table) <= 9


@torch.no_grad()
@pytest.mark.parametrize("name", ["MLP", "parallel MLP", "gated MLP"])
def test_reach_passes_mlps_as_the_projection_does(name: str) -> None:
    """At all rows: the last layer's queries and the readout are projected at the queries' means."""
    model = model_of(MLPS[name], attn_only=False)
    expected = _reach_by_coordinates(model)
    stream = measure_stream(model, toy_batch(64, seed=5))
    choice = choose_paths(
        model.weights, stream, relations(), N, QUERIES, n_relations=30, max_paths=2, min_coordinate=0.0
    )
    (kept,) = (str(path) for path in choice.table.paths if path.heads)
    assert expected[kept] > 0.5 * max(expected.values())


def test_models_are_too_large_by_the_number_of_their_coordinates() -> None:
    assert n_coordinates((1, 3, 9), 2, 10) == 2 * 10 * (1 + 9)
    small, large = random_model(2, 2).weights, random_model(9, 3).weights
    assert not is_too_large(small, 50, None)
    assert is_too_large(large, 50, None)
    assert not is_too_large(large, 50, 1)


@torch.no_grad()
def test_a_circuit_is_found_in_a_model_with_a_million_paths() -> None:
    built = induction()
    model = built.model(n_layers=10, n_heads=4, other_heads="random", other_scale=0.3)
    lens = open_model(model)
    assert is_too_large(lens.weights, 30, None)
    projector = ImirProjector.for_task(built.task).fit(lens.weights)
    assert not projector.looked_at_all_
    assert projector.n_cut_ > 0
    assert projector.space_.size <= path_choice.MOST_COORDINATES
    found = detect(projector.coordinates_, built.batch(128, seed=0))
    assert {str(unit.id) for unit in found.units} == set(built.circuit)


@torch.no_grad()
def test_random_weights_of_that_size_have_no_circuit(generator: torch.Generator) -> None:
    built = induction()
    model = built.model(n_layers=10, n_heads=4)
    for parameter in model.parameters():
        parameter.data.copy_(torch.randn(parameter.shape, generator=generator) * 0.05)
    projector = ImirProjector.for_task(built.task, min_coordinate=1e-4).fit(open_model(model).weights)
    assert not detect(projector.coordinates_, built.batch(128, seed=0)).units
