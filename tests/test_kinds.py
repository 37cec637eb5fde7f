"""Removal by kind: which coordinates it takes, what it costs, and that shuffled values cost something else."""

import pytest
import torch
from hand_built import induction
from toy_task import ToyTask, random_model, toy_batch

from imir_lens.analysis import run_analysis
from imir_lens.kinds import KINDS, remove_by_kind
from imir_lens.lens_model import open_model
from imir_lens.projector import ImirProjector
from imir_lens.report.build import report_data
from imir_lens.report.document import Report


@torch.no_grad()
def test_a_circuit_needs_the_kinds_of_its_units_and_no_other() -> None:
    built = induction()
    model, batch = open_model(built.model()), built.batch(256)
    coordinates = ImirProjector.for_task(built.task).fit(model.weights).coordinates_
    found = {one.kind: one for one in remove_by_kind(model, coordinates, batch)}
    for kind in ("offset", "match", "copy"):
        assert found[kind].model.loss > 1, kind
        # The same values elsewhere are another matter: most places of a kind do nothing here.
        assert found[kind].shuffled != found[kind].model
    for kind in set(found) - {"offset", "match", "copy"}:
        assert found[kind].model.accuracy > 0.95, kind


@torch.no_grad()
def test_the_kinds_share_no_coordinate_and_leave_little_out() -> None:
    from imir_lens.kinds import _of_kind

    coordinates = ImirProjector.for_task(ToyTask(), min_coordinate=0.0).fit(random_model(2, 2).weights).coordinates_
    masks = torch.stack([_of_kind(coordinates.space, kind) for kind in KINDS])
    assert int(masks.sum(0).max()) == 1
    left = ~masks.any(0) & coordinates.space.active
    names = {str(coordinates.space.id(place)) for place in left.nonzero().squeeze(1).tolist()}
    # The token where it stands, and what is not read through a head or not about one token.
    assert all(name.endswith("q:res/k:res/same") or name.startswith("readout/") for name in names)
    found = remove_by_kind(random_model(2, 2), coordinates, toy_batch(8))
    assert [one.kind for one in found] == list(KINDS)
    assert all(one.coordinates > 0 for one in found)


@pytest.fixture(scope="module")
def without_surrogate(monkeypatch_module):
    """A model that does its task while the search is kept from finding anything."""
    built = induction()
    monkeypatch_module.setattr("imir_lens.detection._WORTH_SEARCHING", 2.0)
    return run_analysis(open_model(built.model()), built.task, contexts=128, bootstraps=0)


@pytest.fixture(scope="module")
def monkeypatch_module():
    with pytest.MonkeyPatch.context() as patch:
        yield patch


def test_where_no_circuit_is_found_the_report_says_what_is_needed(without_surrogate, tmp_path) -> None:
    found = without_surrogate
    assert found.verdict.mechanism == "not_detected"
    assert {one.kind for one in found.kinds} >= {"offset", "match", "copy"}
    assert "In part: accuracy falls when all coordinates of a kind are removed" in found.verdict.text
    for kind in ("offset", "match", "copy"):
        assert f"{kind} (" in found.verdict.text
    report = Report(report_data(found, command="test"), coordinates=found.circuit.coordinates)
    report.save(tmp_path / "report")
    page, words = (tmp_path / "report" / "report.html").read_text(), (tmp_path / "report" / "report.md").read_text()
    for text in (page, words):
        assert "All coordinates of a kind, removed from the model" in text
        assert "through what heads have moved" in text


def test_a_model_that_does_not_do_the_task_is_not_taken_apart(generator: torch.Generator) -> None:
    built = induction()
    model = built.model()
    for parameter in model.parameters():
        parameter.data.copy_(torch.randn(parameter.shape, generator=generator) * 0.1)
    found = run_analysis(open_model(model), built.task, contexts=64, bootstraps=0)
    assert found.kinds == ()
    assert "In part" not in found.verdict.text
