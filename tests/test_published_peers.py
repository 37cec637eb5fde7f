"""The published package on planted models: its scores are those of the formulas, and importing it leaves no trace."""

import sys
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import transformer_lens

from benchmarks.planted import published_import, published_peers
from benchmarks.planted.acdc import acdc
from benchmarks.planted.attribution_patching import eap, eap_ig
from benchmarks.planted.finding import Case
from benchmarks.planted.graph import Edge, EdgeGraph
from benchmarks.planted.models import Spec, build
from benchmarks.planted.patching import EdgePatcher
from benchmarks.planted.published_peers import QueriedTransformer
from imir_lens.compat import hooked_transformer_class
from imir_lens.ids import Head

needs_package = pytest.mark.skipif(
    not published_peers.available(), reason="needs auto-circuit: see benchmarks/planted/published_peers.py"
)


@pytest.fixture(scope="module")
def case() -> Case:
    return Case.of(build(Spec("recall in-context", 3, 2, 64, 0.1, "random", seed=6)))


@pytest.fixture(scope="module")
def patcher(case: Case) -> EdgePatcher:
    return EdgePatcher(case.lens.weights, case.planted.graph, case.contexts)


def test_stand_ins_last_as_long_as_the_import() -> None:
    names = ("transformer_lens.HookedTransformer", "transformer_lens.past_key_value_caching")
    before = dict(vars(transformer_lens)), [sys.modules.get(name) for name in names], hooked_transformer_class()

    class Model:
        pass

    with pytest.raises(RuntimeError, match="inside"), published_import._stand_ins(Model):
        assert hooked_transformer_class() is Model
        assert sys.modules[names[1]].HookedTransformerKeyValueCache is not None
        raise RuntimeError("inside")
    assert before == (
        dict(vars(transformer_lens)),
        [sys.modules.get(name) for name in names],
        hooked_transformer_class(),
    )


def test_without_a_requirement_it_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(published_import, "NEEDED", ())
    assert published_import.installed()
    monkeypatch.setattr(published_import, "NEEDED", ("torch", "no-such-distribution"))
    assert not published_import.installed()


def test_the_model_it_gets_is_the_planted_one_from_any_layer(case: Case, patcher: EdgePatcher) -> None:
    clean = case.contexts.clean
    model = QueriedTransformer.like(case.planted.model, case.contexts)
    expected = patcher.clean_logits[clean.mask]
    with torch.no_grad():
        logits, cache = model.run_with_cache(clean.tokens)
        starts = [model(cache[f"blocks.{layer}.hook_resid_pre"], start_at_layer=layer) for layer in range(3)]
        astray = model(cache["blocks.2.hook_resid_pre"], start_at_layer=1)
    assert model.forwards == 5
    assert "blocks.1.attn.hook_result" in cache and "blocks.1.hook_q_input" in cache
    for found in (logits, *starts):
        assert torch.allclose(found, expected, atol=1e-3)
    assert not torch.allclose(astray, expected, atol=1.0)
    model(clean.tokens)
    assert model.forwards == 8  # with gradients


@pytest.mark.parametrize(
    ("source", "reader", "expected"),
    [
        ((None, "blocks.0.hook_resid_pre"), (1, "blocks.2.hook_k_input"), Edge(None, Head(2, 1), "k")),
        ((1, "blocks.0.attn.hook_result"), (0, "blocks.1.hook_v_input"), Edge(Head(0, 1), Head(1, 0), "v")),
        ((0, "blocks.1.attn.hook_result"), (None, "blocks.2.hook_resid_post"), Edge(Head(1, 0), None, "")),
    ],
)
def test_an_edge_of_theirs_is_one_of_ours(source: tuple[Any, str], reader: tuple[Any, str], expected: Edge) -> None:
    src, dest = (SimpleNamespace(head_idx=head, module_name=name) for head, name in (source, reader))
    assert published_peers._edge(SimpleNamespace(src=src, dest=dest)) == expected


@needs_package
def test_it_has_the_same_edges_and_transformer_lens_is_left_as_it_was(case: Case) -> None:
    before = hooked_transformer_class()
    prepared = published_peers._Prepared.of(case)
    edges = [published_peers._edge(edge) for edge in prepared.model.edges]
    assert hooked_transformer_class() is before
    assert len(edges) == len(set(edges))
    assert set(edges) == set(case.planted.graph.edges)
    assert set(edges) != set(EdgeGraph(3, 1).edges)


@needs_package
def test_its_eap_is_ours(case: Case) -> None:
    theirs = published_peers.published_eap(case)
    assert theirs.edges.max() > 0.1
    assert torch.allclose(theirs.edges, eap(case).edges, atol=1e-3, rtol=1e-3)
    assert not torch.allclose(theirs.edges, eap_ig(case).edges, atol=1e-3, rtol=1e-1)
    assert theirs.evaluations == 4  # the corrupted run, and a gradient


@needs_package
def test_its_integrated_gradients_run_from_no_cut_to_all(case: Case, patcher: EdgePatcher) -> None:
    expected = torch.zeros_like(patcher.everything)
    for step in range(6):
        kept = torch.full_like(expected, 1 - step / 5).requires_grad_()
        (gradient,) = torch.autograd.grad(case.contexts.difference(patcher.run(kept)[0]), kept)
        expected += gradient
    theirs = published_peers.published_integrated_gradients(case)
    assert torch.allclose(theirs.edges, expected.abs(), atol=1e-2, rtol=1e-3)
    assert not torch.allclose(theirs.edges, 6 * published_peers.published_eap(case).edges, atol=1e-2, rtol=1e-1)
    assert theirs.evaluations == 19  # the corrupted run, and six gradients


@needs_package
def test_its_acdc_finds_the_circuits_of_ours(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    circuits = []
    for tau in (0.01, 3.0):  # at the larger one an edge of the circuit is lost
        monkeypatch.setattr("benchmarks.planted.acdc.TAUS", (tau,))
        ours, theirs = acdc(case), published_peers.published_acdc(case, (tau,))
        kept = theirs.edges > tau
        assert kept.any() and not kept.all()
        assert torch.equal(kept, ours.edges > 0)
        assert theirs.evaluations == ours.evaluations + 2
        circuits.append(kept)
    assert not torch.equal(*circuits)
