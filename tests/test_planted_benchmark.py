"""The planted benchmark: its truth is what was planted, peers compute what they say, ours finds the circuits."""

from collections import Counter
from dataclasses import replace
from statistics import mean

import pytest
import torch

from benchmarks.planted import run, tables, transformer_lens_eap
from benchmarks.planted.attribution_patching import _gradient
from benchmarks.planted.design import full_design, size_sweep
from benchmarks.planted.families import FAMILIES
from benchmarks.planted.finding import Case
from benchmarks.planted.graph import EdgeGraph, Truth, edges_of
from benchmarks.planted.models import DECOYS, HEADS, LAYERS, NOISES, WIDTHS, Spec, build
from benchmarks.planted.patching import EdgePatcher
from benchmarks.planted.run import DETECTORS
from benchmarks.planted.scores import coordinate_scores, roc_auc
from benchmarks.planted.through import largest_through
from imir_lens.evaluation import at_queries, score_logits
from imir_lens.ids import CoordinateId
from imir_lens.models.constructions import induction_circuit
from imir_lens.projector import ImirProjector
from imir_lens.search import Meter
from imir_lens.surrogate import Surrogate

SPEC = Spec("recall in-context", 3, 2, 128, 0.1, "unread", seed=5)


@pytest.fixture(scope="module")
def case() -> Case:
    return Case.of(build(SPEC))


@pytest.fixture(scope="module")
def patcher(case: Case) -> EdgePatcher:
    return EdgePatcher(case.lens.weights, case.planted.graph, case.contexts)


def test_ours_finds_the_small_set_and_beats_chance() -> None:
    rows = run(small=True)
    assert not any(row["excluded"] for row in rows)

    def scores(detector: str, field: str) -> list[float]:
        return [row[field] for row in rows if row["detector"] == detector and row[field] is not None]

    assert len(scores("ours", "f1")) == 6
    assert all(f1 == 1 for f1 in scores("ours", "f1"))  # noise is at most 10 % here
    assert min(scores("ours", "head_auc")) >= 0.99
    assert min(scores("ours", "edge_auc")) >= 0.98
    assert abs(mean(scores("random", "edge_auc")) - 0.5) <= 0.15
    assert abs(mean(scores("random", "head_auc")) - 0.5) <= 0.3  # five models of a few heads each
    assert mean(scores("random", "f1")) < 0.05
    assert mean(scores("random", "cmd")) > 0.4 > mean(scores("ours", "cmd"))
    first = next(iter(tables(rows).values()))
    assert [line["detector"] for line in first if line["detector"] in DETECTORS] == [line["detector"] for line in first]
    assert first[0]["seconds / ours (median)"] == 1


def test_the_design_covers_every_axis() -> None:
    specs = full_design(0)
    assert len(specs) >= 150
    assert len(set(specs)) == len(specs)
    for field, values in (
        ("family", FAMILIES),
        ("n_layers", LAYERS),
        ("n_heads", HEADS),
        ("d_model", WIDTHS),
        ("noise", NOISES),
        ("decoy", DECOYS),
    ):
        count = Counter(getattr(spec, field) for spec in specs)
        assert set(count) == set(values)
        assert min(count.values()) >= len(specs) / len(values) / 2
    assert {(spec.n_layers, spec.n_heads) for spec in size_sweep(0)} >= {(5, 4), (2, 2)}


def test_edges_of_an_induction_head() -> None:
    truth = Truth.of(induction_circuit())
    assert set(map(str, truth.heads)) == {"L0H0", "L1H0"}
    assert set(map(str, truth.edges)) == {
        "tokens→L0H0.v",
        "tokens→L1H0.q",
        "tokens→L1H0.k",
        "tokens→L1H0.v",
        "L0H0→L1H0.k",
        "L1H0→logits",
    }
    assert edges_of(CoordinateId.parse("L0H0/score/q:res/k:res/offset+1")) == set()  # positions only
    assert set(map(str, edges_of(CoordinateId.parse("readout/via:L0H1.L2H0/same")))) == {
        "tokens→L0H1.v",
        "L0H1→L2H0.v",
        "L2H0→logits",
    }


@pytest.mark.parametrize("shape", [(2, 1), (3, 2), (4, 3)])
def test_the_graph_holds_every_edge_once(shape: tuple[int, int]) -> None:
    layers, heads = shape
    graph = EdgeGraph(layers, heads)
    expected = sum(3 * heads * (1 + layer * heads) for layer in range(layers)) + 1 + layers * heads
    assert len(graph.edges) == len(set(graph.edges)) == expected
    assert [place for layer in range(layers + 1) for place in range(expected)[graph.block(layer)]] == list(
        range(expected)
    )
    assert {edge.reader.layer for edge in graph.edges[graph.block(1)] if edge.reader} == {1}


def test_a_wide_model_has_the_planted_coordinates_and_decoys_besides() -> None:
    planted = build(replace(SPEC, noise=0.0))
    assert planted.model.cfg.d_model == 128
    case = Case.of(planted)
    coordinates = ImirProjector.for_task(planted.task).fit(case.lens.weights).coordinates_
    for name, value in planted.circuit.items():
        assert coordinates[name] == pytest.approx(value, abs=1e-3)
    large = {str(name) for name, value in coordinates.largest(len(planted.circuit) + 3) if abs(value) > 3}
    assert len(large - planted.truth.coordinates) == 3  # the unread heads: previous token, match, and not itself


def test_noise_is_a_share_of_the_weights() -> None:
    quiet, noisy = build(replace(SPEC, noise=0.0, decoy="none")), build(replace(SPEC, noise=0.2, decoy="none"))
    for name, weight in quiet.model.named_parameters():
        if "W_U" in name or "W_E" in name:
            moved = dict(noisy.model.named_parameters())[name].detach() - weight.detach()
            assert float(moved.norm() / weight.detach().norm()) == pytest.approx(0.2, rel=0.1)


@pytest.mark.parametrize("family", FAMILIES)
def test_every_planted_coordinate_is_needed(family: str) -> None:
    case = Case.of(build(Spec(family, 5, 1, 256, 0.0, "none", seed=3)))
    coordinates = ImirProjector.for_task(case.planted.task).fit(case.lens.weights).coordinates_
    meter = Meter(Surrogate(coordinates.space), coordinates.values, case.contexts.clean)
    places = coordinates.places(list(case.planted.circuit)).tolist()
    whole, nothing = meter.score(meter.mask(places)).loss, meter.score(meter.mask([])).loss
    for place in places:
        without = meter.score(meter.mask([other for other in places if other != place])).loss
        assert without - whole > 0.02 * (nothing - whole)


def test_cutting_nothing_is_the_model_and_cutting_all_is_the_corrupted_run(case: Case, patcher: EdgePatcher) -> None:
    logits = at_queries(case.lens.logits(case.contexts.clean.tokens), case.contexts.clean)
    assert torch.allclose(patcher.clean_logits, logits, atol=1e-3)
    assert score_logits(logits, case.contexts.clean).accuracy > 0.9
    with torch.no_grad():
        cut, _ = patcher.run(torch.zeros_like(patcher.everything))
    corrupted = at_queries(case.lens.logits(case.contexts.corrupt), case.contexts.clean)
    assert torch.allclose(cut, corrupted, atol=1e-3)
    assert not torch.allclose(cut, logits, atol=1.0)
    assert not bool((case.contexts.wrong == case.contexts.clean.targets).any())


def test_starting_at_a_layer_changes_nothing(patcher: EdgePatcher) -> None:
    kept = patcher.everything.clone()
    kept[patcher.graph.block(2)][::3] = 0
    with torch.no_grad():
        whole, late = patcher.run(kept)[0], patcher.run(kept, start=2)[0]
    assert torch.allclose(whole, late, atol=1e-3)
    assert not torch.allclose(late, patcher.clean_logits, atol=1e-2)


@pytest.mark.skipif(not transformer_lens_eap.available(), reason="this TransformerLens scores no edges")
def test_our_gradients_are_those_of_transformer_lens(case: Case) -> None:
    few = replace(
        case.contexts, clean=case.contexts.clean[:4], corrupt=case.contexts.corrupt[:4], wrong=case.contexts.wrong[:4]
    )
    few_case = replace(case, contexts=few)
    theirs = transformer_lens_eap.transformer_lens_eap(few_case).edges
    ours = _gradient(EdgePatcher(case.lens.weights, case.planted.graph, few), few_case, 0.0)
    assert theirs.abs().max() > 0.1
    assert torch.allclose(ours.abs(), theirs, atol=1e-3, rtol=1e-2)


def test_a_weight_on_one_coordinate_falls_on_its_edges_and_heads() -> None:
    planted = build(replace(SPEC, noise=0.0, decoy="none"))
    space = ImirProjector.for_task(planted.task).fit(Case.of(planted).lens.weights).space_
    for name in planted.circuit:
        weight = torch.zeros(space.size)
        weight[space.place(name)] = 2.0
        edges, heads = largest_through(planted.graph, space, weight)
        truth = Truth.of([name])
        assert {edge for edge, score in zip(planted.graph.edges, edges.tolist(), strict=True) if score} == truth.edges
        assert {head for head, score in zip(planted.graph.heads, heads.tolist(), strict=True) if score} == truth.heads


def test_scores_on_known_answers() -> None:
    members = torch.tensor([True, True, False, False])
    assert roc_auc(torch.tensor([4.0, 3.0, 2.0, 1.0]), members) == 1
    assert roc_auc(torch.tensor([1.0, 2.0, 3.0, 4.0]), members) == 0
    assert roc_auc(torch.zeros(4), members) == 0.5
    assert roc_auc(torch.zeros(4), torch.ones(4, dtype=torch.bool)) is None
    assert coordinate_scores({"a", "b"}, {"b", "c", "d"}) == {"precision": 0.5, "recall": 1 / 3, "f1": 0.4}
    assert coordinate_scores(set(), {"a"})["f1"] == 0
