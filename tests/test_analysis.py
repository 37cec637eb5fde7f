"""The whole line on a trained checkpoint: what it concludes, and that it concludes the same twice."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from imir_lens.analysis import Analysis, run_analysis
from imir_lens.errors import CoordinateError, OptionError
from imir_lens.evaluation import at_queries, score_logits
from imir_lens.lens_model import LensModel, open_model
from imir_lens.live_models import rebuild
from imir_lens.models.constructions import induction_circuit, plant
from imir_lens.report.build import report_data
from imir_lens.surrogate import Surrogate
from imir_lens.tasks import make_task

DATA = Path(__file__).parent / "data"
SMALL = {"contexts": 48, "bootstraps": 1}
UNITS = {"L0H0/score/q:res/k:res/offset+1", "L1H0/score/q:res/k:L0H0/same", "readout/via:L1H0/same"}


@pytest.fixture(scope="module")
def model() -> LensModel:
    return open_model(DATA / "recall_2l.pt")


@pytest.fixture(scope="module")
def analysis(model: LensModel) -> Analysis:
    return run_analysis(model, make_task("recall"), **SMALL)


def test_a_trained_induction_head_is_found(analysis):
    assert analysis.verdict.mechanism == "in_context"
    assert {str(unit.id) for unit in analysis.circuit.units} >= UNITS
    assert analysis.bayes.accuracy == 1 and analysis.chance.accuracy == pytest.approx(1 / 63)
    assert [str(row.head) for row in analysis.heads] == ["L0H0", "L1H0"]
    assert (analysis.heads[0].offset, analysis.heads[0].labels) == (1, ("alpha",))
    assert analysis.heads[0].copy_mass > 0.9 and 0.3 < analysis.explained.scores < 0.6


def test_search_and_test_contexts_differ(analysis):
    searched, tested = analysis.search_batch.tokens, analysis.test_batch.tokens
    assert len(searched) == len(tested) == 48 and not torch.equal(searched, tested)
    assert torch.equal(searched, make_task("recall").sample(48, torch.Generator().manual_seed(0)).tokens)
    assert torch.equal(tested, make_task("recall").sample(48, torch.Generator().manual_seed(1)).tokens)


def test_scores_are_those_of_the_test_contexts(analysis, model):
    batch, coordinates = analysis.test_batch, analysis.circuit.coordinates
    assert analysis.evidence.model == score_logits(at_queries(model.logits(batch.tokens), batch), batch)
    surrogate = Surrogate(coordinates.space).logits(coordinates.values, batch)
    assert analysis.evidence.projection == score_logits(surrogate, batch)


def comparable(analysis: Analysis) -> dict:
    report = report_data(analysis, command="test")
    del report["created_with"], report["circuit"]["seconds"]
    return report


def test_the_same_seed_gives_the_same_report(analysis, model):
    again = run_analysis(model, make_task("recall"), **SMALL)
    assert comparable(again) == comparable(analysis)


def test_another_seed_gives_other_contexts_and_the_same_circuit(analysis, model):
    other = run_analysis(model, make_task("recall"), seed=7, **SMALL)
    one, two = comparable(analysis), comparable(other)
    assert one["evaluation"]["model"] != two["evaluation"]["model"]
    assert one["examples"] != two["examples"] and two["evaluation"]["test_seed"] == 8
    assert {str(unit.id) for unit in other.circuit.units} >= UNITS
    # Coordinates come from the weights alone.
    assert torch.equal(other.circuit.coordinates.values, analysis.circuit.coordinates.values)


def test_the_gauge_of_a_model_changes_nothing_it_is_judged_by(analysis, model):
    """The same function in other weights: the stream turned, scores and logits shifted by what no softmax sees."""
    w, generator = model.weights, torch.Generator().manual_seed(0)
    turn = torch.linalg.qr(torch.randn(128, 128, generator=generator, dtype=torch.float64)).Q
    double = {name: getattr(w, name).double() for name in ("W_E", "W_pos", "W_Q", "W_K", "W_V", "W_O", "b_O", "W_U")}
    turned = {name: (double[name] @ turn).float() for name in ("W_E", "W_pos", "W_O", "b_O")}
    turned |= {name: (turn.T @ double[name]).float() for name in ("W_Q", "W_K", "W_V", "W_U")}
    shifted = {"b_K": w.b_K + torch.randn(w.b_K.shape, generator=generator), "b_U": w.b_U + 2}
    twin = run_analysis(open_model(rebuild(replace(w, **turned, **shifted))), make_task("recall"), **SMALL)
    one, two = analysis.circuit.coordinates, twin.circuit.coordinates
    torch.testing.assert_close(two.values, one.values, atol=2e-4, rtol=1e-4)
    assert [str(unit.id) for unit in twin.circuit.units] == [str(unit.id) for unit in analysis.circuit.units]
    assert twin.evidence.circuit.loss == pytest.approx(analysis.evidence.circuit.loss, abs=1e-3)


def test_cut_paths_are_named_among_the_caveats(analysis):
    generator = torch.Generator().manual_seed(0)
    task = make_task("recall")
    planted = plant(task, induction_circuit(), n_layers=3, n_heads=2, other_heads="random", generator=generator)
    found = run_analysis(open_model(planted), task, contexts=16, bootstraps=0)
    assert found.projector.n_cut_ > 0
    assert any(f"{found.projector.n_cut_} of 27 paths were cut" in caveat for caveat in found.verdict.caveats)
    assert analysis.projector.n_cut_ == 0 and "were cut" not in " ".join(analysis.verdict.caveats)


def test_induction_with_a_wrong_offset_is_not_detected():
    circuit = {name.replace("offset+1", "offset+2"): value for name, value in induction_circuit().items()}
    model = open_model(plant(make_task("recall"), circuit, n_layers=2, n_heads=1))
    found = run_analysis(model, make_task("recall"), contexts=64, bootstraps=0)
    assert found.verdict.mechanism == "not_detected" and found.circuit.units == ()
    assert found.evidence.model.accuracy < 0.3


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"contexts": 0}, "contexts must lie between 1 and 1000000, got 0"),
        ({"contexts": 2_000_000}, "got 2000000"),
        ({"budget": 0.0}, "budget must lie between 0 and 1, got 0.0"),
        ({"budget": 1.5}, "got 1.5"),
        ({"bootstraps": -1}, "bootstraps must not be negative, got -1"),
    ],
)
def test_options_out_of_range_are_refused(model, options, complaint):
    with pytest.raises(OptionError, match=complaint):
        run_analysis(model, make_task("recall"), **options)


@pytest.mark.parametrize(("knobs", "complaint"), [({"vocab": 65}, "vocab knob to 64"), ({"length": 30}, "at most 24")])
def test_a_task_that_does_not_fit_is_refused(model, knobs, complaint):
    with pytest.raises(CoordinateError, match=complaint):
        run_analysis(model, make_task("recall", **knobs), contexts=8)


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16, torch.float16])
def test_a_model_in_another_precision_has_the_same_circuit(analysis, model, dtype):
    other = open_model(rebuild(model.weights).to(dtype))
    assert other.logits(analysis.test_batch.tokens[:1]).dtype == dtype
    found = run_analysis(other, make_task("recall"), **SMALL | {"bootstraps": 0})
    assert {str(unit.id) for unit in found.circuit.units} == {str(unit.id) for unit in analysis.circuit.units}
    assert found.evidence.circuit.loss == pytest.approx(analysis.evidence.circuit.loss, rel=0.05)
    assert found.evidence.without_circuit.accuracy < 0.1


def test_each_step_is_announced(model):
    steps: list[str] = []
    run_analysis(model, make_task("recall"), contexts=8, bootstraps=0, progress=steps.append)
    assert len(steps) == 4 and steps[0] == "project the weights"
