"""From an analysis to a report: valid, and every number where it belongs."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from imir_lens.analysis import Analysis, run_analysis
from imir_lens.lens_model import open_model
from imir_lens.models.constructions import plant
from imir_lens.report.build import report_data
from imir_lens.report.circuit_rows import coordinate_rows
from imir_lens.report.validation import validate
from imir_lens.tasks import make_task

DATA = Path(__file__).parent.parent / "data"


@pytest.fixture(scope="module")
def analysis() -> Analysis:
    return run_analysis(open_model(DATA / "recall_2l.pt"), make_task("recall"), contexts=48, bootstraps=1)


@pytest.fixture(scope="module")
def nothing() -> Analysis:
    """A model that only prefers words to filler."""
    task = make_task("recall", vocab=16, pairs=2, length=8)
    model = plant(task, {"readout/via:const/word": 1.0}, n_layers=2, n_heads=1)
    return run_analysis(open_model(model), task, contexts=16, bootstraps=2)


def test_reports_are_valid_and_survive_json(analysis, nothing):
    for each in (analysis, nothing):
        report = report_data(each, command="imir-lens analyze")
        validate(report)
        assert json.loads(json.dumps(report)) == report


def test_units_carry_their_own_losses(analysis):
    report = report_data(analysis, command="")
    units = report["circuit"]["units"]
    assert [unit["id"] for unit in units] == [str(unit.id) for unit in analysis.circuit.units]
    for row in units:
        removal = analysis.evidence.units[row["id"]]
        assert row["value"] == analysis.circuit.coordinates[row["id"]]
        assert row["loss_if_removed"] == {"surrogate": removal.surrogate.loss, "model": removal.model.loss}
        assert row["accuracy_if_removed"]["model"] == removal.model.accuracy
        assert row["words"]
    roles = report["circuit"]["roles"]
    assert sorted(name for role in roles for name in role["units"]) == sorted(unit["id"] for unit in units)
    for row in roles:
        assert row["loss_if_removed"]["model"] == analysis.evidence.roles[row["role"]].model.loss


def test_evaluation_names_each_score(analysis):
    found, evidence = report_data(analysis, command="")["evaluation"], analysis.evidence
    assert found["model"] == evidence.model.as_dict() and found["projection"] == evidence.projection.as_dict()
    assert found["circuit"] == evidence.circuit.as_dict() != found["without_circuit"]
    assert found["without_circuit"] == evidence.without_circuit.as_dict()
    assert found["chance_ablated"] == evidence.without_all.as_dict()
    assert (found["bayes"], found["chance"]) == (analysis.bayes.as_dict(), analysis.chance.as_dict())
    assert (found["contexts"], found["search_seed"], found["test_seed"]) == (48, 0, 1)


def test_coordinates_are_ranked_and_hold_the_circuit(analysis):
    rows = report_data(analysis, command="")["coordinates"]
    sizes = [abs(row["attribution"]) for row in rows]
    assert sizes == sorted(sizes, reverse=True) and 100 < len(rows) <= 200
    inside = {row["id"]: row["role"] for row in rows if row["in_circuit"]}
    assert inside == {str(unit.id): unit.role for unit in analysis.circuit.units}
    for row in rows[:20]:
        assert row["value"] == analysis.circuit.coordinates[row["id"]]
    assert len({row["id"] for row in rows}) == len(rows)


def test_a_circuit_outside_the_top_is_still_listed(analysis):
    shuffled = analysis.circuit.attribution.clone()
    shuffled[analysis.circuit.mask] = 1e-9  # ranked behind everything
    rows = coordinate_rows(replace(analysis.circuit, attribution=shuffled), most=6)
    assert len(rows) == 6
    assert {row["id"] for row in rows if row["in_circuit"]} == {str(unit.id) for unit in analysis.circuit.units}


def test_unexplained_is_one_minus_explained(analysis):
    found = report_data(analysis, command="")["unexplained"]
    assert found["score_variance"] == 1 - analysis.explained.scores > 0
    assert found["per_head"] == {str(head): 1 - share for head, share in analysis.explained.heads.items()}


def test_examples_show_contexts_as_the_model_read_them(analysis):
    examples = report_data(analysis, command="")["examples"]
    assert len(examples) == 4
    for index, example in enumerate(examples):
        batch, task = analysis.test_batch, analysis.task
        assert example["tokens"] == task.decode(batch.tokens[index]) and example["query"] == 23
        assert example["tokens"][-1] == task.decode(batch.tokens[index, -1:])[0]
        assert example["target"] == task.decode(batch.targets[index])[0]
        law = analysis.model.logits(batch.tokens[index : index + 1])[0, -1].softmax(-1)
        assert example["probability"] == pytest.approx(float(law.max()), abs=1e-4)
        assert example["prediction"] == task.decode(law.argmax().unsqueeze(0))[0]
        for rows in example["attention"].values():
            pattern = torch.tensor(rows, dtype=torch.float64)
            assert float(pattern.triu(1).abs().max()) == 0
            torch.testing.assert_close(pattern.sum(1), torch.ones(24, dtype=torch.float64), atol=0.02, rtol=0)
    assert set(examples[0]["attention"]) == {"L0H0", "L1H0"}


def test_a_report_about_nothing_claims_nothing(nothing):
    report = report_data(nothing, command="")
    assert report["verdict"]["mechanism"] == "not_detected" and report["circuit"]["units"] == []
    for empty in ("circuit", "without_circuit"):
        assert report["evaluation"][empty] is None
    assert report["circuit"]["faithfulness"] is None and report["circuit"]["stability"]["bootstrap_jaccard"] is None
    assert report["examples"] == [] and report["circuit"]["roles"] == []
    assert report["coordinates"][0]["id"] == "readout/via:const/word"  # by size instead
    assert all(not row["in_circuit"] and row["role"] == "auxiliary" for row in report["coordinates"])
