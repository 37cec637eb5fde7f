"""The head table on circuits whose heads are known."""

import pytest
import torch
from rich_circuit import RICH
from toy_task import ToyTask

from imir_lens.detection import detect
from imir_lens.explained import capture, explain
from imir_lens.heads import HeadSummary, summarise_heads
from imir_lens.lens_model import open_model
from imir_lens.models.constructions import induction_circuit, plant
from imir_lens.projector import ImirProjector
from imir_lens.tasks import make_task
from imir_lens.tasks.base import Task


def table(task: Task, circuit: dict[str, float]) -> dict[str, HeadSummary]:
    model = open_model(plant(task, circuit, n_layers=2, n_heads=2))
    projector = ImirProjector.for_task(task)
    coordinates = projector.fit(model.weights).coordinates_
    batch = task.sample(48, torch.Generator().manual_seed(0))
    captured = capture(model, coordinates.space.paths.heads, batch)
    found = detect(coordinates, batch)
    rows = summarise_heads(coordinates, found, explain(captured, coordinates, batch), captured.patterns, batch)
    return {str(row.head): row for row in rows}


@pytest.fixture(scope="module")
def recall() -> dict[str, HeadSummary]:
    return table(make_task("recall"), induction_circuit(alpha=8.0, heads={"alpha": "L0H1", "beta": "L1H0"}))


def test_a_previous_token_head(recall):
    row = recall["L0H1"]
    assert (row.offset, row.labels) == (1, ("alpha",))
    assert row.copy_mass > 0.95 and row.match == 0 and row.copying == pytest.approx(0, abs=1e-6)


def test_a_matching_head(recall):
    row = recall["L1H0"]
    assert row.match == pytest.approx(60, abs=1e-3) and row.copying == pytest.approx(30, abs=1e-3)
    assert {"beta", "gamma"} <= set(row.labels) <= {"beta", "gamma", "auxiliary"}


def test_heads_without_a_part_have_no_label(recall):
    for name in ("L0H0", "L1H1"):
        assert recall[name].labels == () and recall[name].copying == 0 == recall[name].match
        assert recall[name].score_r2 == 1


def test_the_preferred_offset_is_the_largest_of_those_behind():
    more = {"L0H1/score/q:res/k:res/offset+3": 2.0, "L0H1/score/q:res/k:res/offset+0": 1.0}
    rows = table(ToyTask(), RICH | more | {"L1H0/score/q:res/k:res/same": 9.0})
    assert [rows[name].offset for name in ("L0H0", "L0H1", "L1H1")] == [1, 3, 2]
    assert rows["L1H0"].match == pytest.approx(4.0, abs=1e-4)  # through another head; 9 is the token itself
    assert rows["L1H0"].copying == pytest.approx(3.0, abs=1e-4)
    assert rows["L1H1"].copying == 0  # it copies what L0H0 fetched, not the token itself


def test_copy_mass_is_the_mean_attention_at_the_offset():
    """A head that knows nothing but offset+2 in a last layer, whose rows are read at the queries only."""
    task = ToyTask()
    model = open_model(plant(task, {"L1H0/score/q:res/k:res/offset+2": 1.5}, n_layers=2, n_heads=2))
    projector = ImirProjector.for_task(task)
    coordinates = projector.fit(model.weights).coordinates_
    batch = task.sample(48, torch.Generator().manual_seed(0))
    captured = capture(model, coordinates.space.paths.heads, batch)
    found, shares = detect(coordinates, batch), explain(captured, coordinates, batch)
    rows = {str(r.head): r for r in summarise_heads(coordinates, found, shares, captured.patterns, batch)}
    e = float(torch.tensor(1.5).exp())
    queries = batch.queries[batch.mask]  # from 3 on, so the place two back is always there
    assert rows["L1H0"].offset == 2
    assert rows["L1H0"].copy_mass == pytest.approx(float((e / (queries + e)).mean()), rel=1e-5)
    # An even head: the mean over all rows of 1/(i+1).
    assert rows["L0H0"].offset == 0
    assert rows["L0H0"].copy_mass == pytest.approx(sum(1 / (i + 1) for i in range(7)) / 7, rel=1e-5)
