"""The projector against dense blocks of random models, entry by entry; its algebra; cutting; its errors."""

from dataclasses import replace
from statistics import fmean, median

import pytest
import torch
from brute_force import carried, chains, contrasts_by_loops, score_block, unlabel
from torch import Tensor
from toy_task import ToyTask, random_model, relations

from imir_lens.coordinates import Coordinates
from imir_lens.errors import CoordinateError, NotFittedError
from imir_lens.ids import CoordinateId, Head, Path
from imir_lens.lens_model import open_model
from imir_lens.models.constructions import plant
from imir_lens.projector import ImirProjector
from imir_lens.relations import TokenRelations
from imir_lens.weights import CircuitWeights

P = 6
EVERYTHING = {"min_coordinate": -1.0}


def project(weights: CircuitWeights, **options: object) -> Coordinates:
    return ImirProjector(relations(), P, **{**EVERYTHING, **options}).fit(weights).coordinates_


def expected(weights: CircuitWeights, name: CoordinateId, queries: tuple[int, ...] | None) -> float:
    """One coordinate by its definition."""
    rel, last = relations(), weights.n_layers - 1
    parts = str(name).split("/")
    if parts[0] == "readout":
        if name.key is None:
            return _class_contrast(rel, _constant(weights, last + 1, queries) @ weights.W_U + weights.b_U, parts[2])
        chain = unlabel(str(name.key))
        return contrasts_by_loops(rel, carried(weights, chain, weights.W_E) @ weights.W_U)[parts[2]]
    head, key = (name.head.layer, name.head.index), unlabel(str(name.key))
    if name.query is None:
        asks = _constant(weights, head[0], queries) @ weights.W_Q[head] + weights.b_Q[head]
        answers = carried(weights, key, weights.W_E) @ weights.W_K[head] / weights.scale
        return _class_contrast(rel, answers @ asks, parts[-1])
    query = unlabel(str(name.query))
    if name.offset is None:
        return contrasts_by_loops(rel, score_block(weights, head, query, key, weights.W_E))[parts[-1]]
    block = score_block(weights, head, query, key, weights.W_pos[:P])
    rows = queries if queries and head[0] == last and not query else range(P)
    means = {}
    for k in range(-(P - 1) if query else 0, P):
        pairs = [float(block[i, i - k]) for i in rows if 0 <= i - k < P]
        if pairs:
            means[k] = fmean(pairs)
    return means[name.offset] - median(means.values()) if name.offset in means else 0.0


def _constant(weights: CircuitWeights, layer: int, queries: tuple[int, ...] | None) -> Tensor:
    """Mean position content and biases at the entry of a layer, path by path."""
    mean = weights.W_pos[:P].mean(0)
    total = torch.zeros_like(mean)
    for chain in chains(weights.n_layers, weights.n_heads):
        if chain and chain[-1][0] >= layer:
            continue
        direct = queries and not chain and layer >= weights.n_layers - 1
        total += carried(weights, chain, weights.W_pos[list(queries)].mean(0) if direct else mean)
        for written in range(layer):
            if not chain or chain[0][0] > written:
                bias = weights.b_O[written] + sum(
                    weights.b_V[written, h] @ weights.W_O[written, h] for h in range(weights.n_heads)
                )
                total += carried(weights, chain, bias)
    return total


def _class_contrast(rel: TokenRelations, values: Tensor, name: str) -> float:
    return float(values[rel.classes[name]].mean() - values[rel.classes[rel.reference]].mean())


@pytest.mark.parametrize("queries", [None, (3, 5)])
@pytest.mark.parametrize(("n_layers", "n_heads"), [(1, 1), (2, 2), (3, 1)])
def test_coordinates_are_means_over_dense_blocks(n_layers, n_heads, queries):
    weights = random_model(n_layers, n_heads).weights
    coordinates = project(weights, query_positions=queries)
    assert len(coordinates.space.paths) == (n_heads + 1) ** n_layers
    names = list(coordinates)
    if len(names) > 250:  # every kind is met many times
        names = [names[k] for k in torch.randperm(len(names))[:250]]
    for name in names:
        assert coordinates[name] == pytest.approx(expected(weights, name, queries), abs=1e-9), name
    assert sum(abs(coordinates[name]) > 0.1 for name in names) > len(names) / 4


def test_transform_is_fit_of_other_weights_on_the_fitted_space():
    projector = ImirProjector(relations(), P, **EVERYTHING).fit(random_model(2, 1).weights)
    other = random_model(2, 1, seed=5).weights
    assert torch.equal(projector.transform(other).values, project(other).values)
    assert not torch.equal(projector.transform(other).values, projector.coordinates_.values)


def test_projecting_a_rebuilt_block_gives_its_coordinates_back():
    projector = ImirProjector(relations(), P, **EVERYTHING).fit(random_model(2, 1, dtype=torch.float32).weights)
    head, query, key = Head(1, 0), Path((Head(0, 0),)), Path()
    tokens, positions = projector.inverse_transform(projector.coordinates_, head, query, key)
    for name, value in contrasts_by_loops(relations(), tokens).items():
        assert value == pytest.approx(projector.coordinates_[CoordinateId(head, query, key, name)], abs=1e-5)
    for k in range(-(P - 1), P):
        diagonal = positions.diagonal(-k)
        value = projector.coordinates_[CoordinateId(head, query, key, f"offset{k:+d}")]
        assert diagonal.tolist() == pytest.approx([value] * len(diagonal))
    assert float(tokens.abs().max()) > 0.1 < float(positions.abs().max())


def test_coordinates_are_linear_in_a_merged_block_up_to_the_gauge():
    a, b = random_model(1, 1).weights, random_model(1, 1, seed=7).weights
    shared = replace(b, W_E=a.W_E, W_pos=a.W_pos, b_V=a.b_V, b_O=a.b_O)
    # A head twice as wide whose merged matrix is the sum of both.
    wide = {name: torch.cat([getattr(a, name), getattr(b, name)], dim=-1) for name in ("W_Q", "W_K", "b_Q", "b_K")}
    unused = {"W_V": a.W_V.repeat(1, 1, 1, 2), "b_V": a.b_V.repeat(1, 1, 2), "W_O": a.W_O.repeat(1, 1, 2, 1)}
    both = project(replace(a, **wide, **unused))
    difference = (both - (project(a) + project(shared))).values
    block = both.space.block("score", Head(0, 0))
    token, offset = block.view(difference)[0, 0].split([15, 2 * P - 1])
    assert float(token.abs().max()) < 1e-9
    assert float((offset[P - 1 :] - offset[-1]).abs().max()) < 1e-9  # medians do not add, but they are one constant
    assert float(both.space.block("score_bias", Head(0, 0)).view(difference).abs().max()) < 1e-9
    assert float(block.view(both.values).abs().max()) > 1


def test_what_no_softmax_sees_is_in_no_coordinate():
    model = random_model(2, 2)
    w = model.weights
    same_for_all_keys = replace(w, b_K=w.b_K + torch.randn(w.b_K.shape))
    same_for_all_outputs = replace(w, W_U=w.W_U + torch.randn(w.d_model, 1), b_U=w.b_U + 3)
    for changed in (same_for_all_keys, same_for_all_outputs):
        torch.testing.assert_close(project(changed).values, project(w).values)
    assert not torch.allclose(project(replace(w, b_Q=w.b_Q + 1)).values, project(w).values)


@pytest.mark.parametrize("queries", [None, (3, 5)])
def test_unexplained_is_the_energy_off_the_relations(queries):
    weights = random_model(2, 1).weights
    projector = ImirProjector(relations(), P, query_positions=queries, **EVERYTHING).fit(weights)
    causal = torch.ones(P, P, dtype=torch.float64).tril()
    for layer in range(2):
        off = total = 0.0
        for query in ((), ((0, 0),))[: layer + 1]:
            for key in ((), ((0, 0),))[: layer + 1]:
                paths = [Path(tuple(Head(*head) for head in chain)) for chain in (query, key)]
                kept = projector.inverse_transform(projector.coordinates_, Head(layer, 0), *paths)
                seen = torch.ones_like(causal) if query else causal.clone()
                if queries and layer == 1 and not query:
                    seen[[row for row in range(P) if row not in queries]] = 0  # rows that nothing reads
                masks = (torch.ones(11, 11, dtype=torch.float64), seen)
                for source, model, mask in zip((weights.W_E, weights.W_pos[:P]), kept, masks, strict=True):
                    block = score_block(weights, (layer, 0), query, key, source)
                    total += _energy(block, mask)
                    off += _energy(block - model, mask)
        assert float(projector.unexplained_[layer, 0]) == pytest.approx(off / total, abs=1e-6)
        assert 0.3 < off / total < 1


def _energy(block: Tensor, mask: Tensor) -> float:
    rows = [row[seen > 0] for row, seen in zip(block, mask, strict=True) if seen.any()]
    return sum(float(((row - row.mean()) ** 2).sum()) for row in rows)


def test_nothing_is_told_before_fit():
    projector, weights = ImirProjector(relations(), P), random_model(1, 1).weights
    for ask in (
        lambda: projector.transform(weights),
        lambda: projector.unexplained_,
        lambda: projector.inverse_transform(project(weights), Head(0, 0), Path(), Path()),
    ):
        with pytest.raises(NotFittedError, match=r"call fit\(weights\) first"):
            ask()


def test_a_model_that_does_not_fit_the_task_is_refused():
    weights = random_model(2, 1).weights
    small = replace(weights, W_E=weights.W_E[:9], W_U=weights.W_U[:, :9], b_U=weights.b_U[:9])
    with pytest.raises(CoordinateError, match=r"speaks 11 tokens .* vocabulary has 9: set the task's vocab knob to 9"):
        project(small)
    with pytest.raises(CoordinateError, match=r"have 40 positions .* n_ctx is 9: .* length knob to at most 9"):
        ImirProjector(relations(), 40).fit(weights)
    fitted = ImirProjector(relations(), P).fit(weights)
    with pytest.raises(CoordinateError, match=r"\(layers, heads\) \(2, 1\) as fitted, got \(2, 2\)"):
        fitted.transform(random_model(2, 2).weights)


def test_cutting_keeps_prefixes_and_reports_the_largest_coordinate_cut():
    weights = random_model(3, 2, std=0.3).weights
    whole = ImirProjector(relations(), 2, **EVERYTHING).fit(weights).coordinates_
    projector = ImirProjector(relations(), 2, max_paths=10, min_coordinate=0.0).fit(weights)
    kept = set(projector.space_.paths.paths)
    assert 1 < len(kept) < 27 == len(kept) + projector.n_cut_
    assert all(Path(path.heads[:depth]) in kept for path in kept for depth in range(len(path.heads)))
    cut = [abs(whole[name]) for name in whole if not set(name.paths) <= kept]
    assert projector.cut_ == pytest.approx(max(cut)) and projector.cut_ > 0
    for name in projector.coordinates_:
        assert projector.coordinates_[name] == pytest.approx(whole[name], abs=1e-12), name


def test_small_paths_are_cut_and_none_that_is_not_small():
    weights = random_model(3, 1, std=0.3).weights
    whole = project(weights)
    size = dict.fromkeys(whole.space.paths.paths, 0.0)
    for name in whole:
        for path in name.paths:
            size[path] = max(size[path], abs(whole[name]))
    limit = sorted(size.values())[4]
    projector = ImirProjector(relations(), P, min_coordinate=limit).fit(weights)
    kept = set(projector.space_.paths.paths)
    assert {path for path in size if size[path] > limit} <= kept
    assert projector.cut_ <= limit and projector.n_cut_ > 0
    uncut = ImirProjector(relations(), P, min_coordinate=0.0).fit(weights)
    assert (uncut.n_cut_, uncut.cut_) == (0, 0.0)


def test_a_path_that_only_queries_read_is_kept():
    circuit = {"L1H0/score/q:L0H0/k:res/same": 3.0, "readout/via:L1H0/same": 2.0}
    model = open_model(plant(ToyTask(), circuit, n_layers=2, n_heads=1))
    projector = ImirProjector.for_task(ToyTask()).fit(model.weights)
    assert list(map(str, projector.space_.paths.paths)) == ["res", "L0H0", "L1H0"]
    assert projector.coordinates_["L1H0/score/q:L0H0/k:res/same"] == pytest.approx(3, abs=1e-5)


def test_no_more_paths_are_kept_than_asked_for():
    weights = random_model(3, 2, std=0.3).weights
    for most in (1, 2, 3, 5, 8, 13, 20, 26):
        projector = ImirProjector(relations(), P, max_paths=most, min_coordinate=0.0).fit(weights)
        assert len(projector.space_.paths) <= most


def test_depth_limits_the_paths_of_the_fit():
    projector = ImirProjector(relations(), P, max_depth=1, **EVERYTHING).fit(random_model(3, 1).weights)
    assert list(map(str, projector.space_.paths.paths)) == ["res", "L0H0", "L1H0", "L2H0"]
