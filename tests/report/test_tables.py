import pytest
from sample_report import sample_report

from imir_lens.report import summary, tables
from imir_lens.report.html import render_html
from imir_lens.report.markdown import render_markdown
from imir_lens.report.validation import ReportError, validate


def test_the_units_table_has_losses_and_accuracies_side_by_side():
    table = tables.units_table(sample_report())
    assert table.groups == [("", 4)] or [name for name, _ in table.groups][-2:] == [
        "loss if removed (nats)",
        "accuracy if removed",
    ]
    assert sum(span for _, span in table.groups) == len(table.columns)
    beta = table.rows[0]
    assert beta[:3] == ["beta", "L1H0/score/q:res/k:L0H0/same", "+27.7"]
    assert beta[4:] == ["11.9", "13.2", "0.0110", "0.0200"]


def test_the_evaluation_table_names_all_six_and_what_was_not_measured():
    rows = tables.evaluation_table(sample_report("not_detected")).rows
    assert [row[0] for row in rows] == ["model", "surrogate", "circuit only", "without circuit", "Bayes", "chance"]
    assert rows[0][1:3] == ["4.61", "0.0190"]
    assert rows[2][1] == rows[3][2] == "–"
    report = sample_report()
    report["evaluation"]["chance_ablated"] = {"loss": 5.0, "accuracy": 0.0}
    assert tables.evaluation_table(report).rows[4][:2] == ["nothing kept", "5.00"]


def test_roles_list_their_units_and_missing_accuracies_are_blank():
    report = sample_report("memory")
    del report["circuit"]["roles"][0]["accuracy_if_removed"]
    row = tables.roles_table(report).rows[0]
    assert row[0] == "delta"
    assert row[2].split("\n") == ["readout/via:L0H0.L1H0/assoc", "readout/via:res/assoc"]
    assert row[3:] == ["2.20", "2.90", "–", "–"]


def test_the_heads_table_shows_every_head():
    rows = tables.heads_table(sample_report("deep")).rows
    assert len(rows) == 15
    assert rows[0][:4] == ["L0H0", "0.940", "+1", "0.972"]
    assert rows[0][-1] == "previous token"


def test_provenance_names_seeds_sizes_and_versions():
    told = {row[0]: row[1] for row in tables.provenance_table(sample_report()).rows}
    assert told["seeds"] == "0 (search contexts 0, test contexts 1)"
    assert told["made with"] == "imir_lens 0.1.0, transformer_lens 4.3.0, torch 2.13.0"
    assert "pairs 8" in told["task"]
    assert told["search"] == "16 evaluations, 5 gradient passes, 0.820 s"


def test_key_numbers_fit_the_outcome():
    labels = [key.label for key in summary.key_numbers(sample_report())]
    assert labels[0] == "units in the circuit"
    assert "without the circuit" in labels
    assert "without the circuit" not in [key.label for key in summary.key_numbers(sample_report("not_detected"))]


def test_an_absence_is_explained_by_the_accuracies_the_verdict_goes_by():
    report = sample_report("not_detected")
    evaluation = report["evaluation"]
    evaluation["chance"]["accuracy"], evaluation["bayes"]["accuracy"] = 0.2, 1.0
    reasons = {
        (0.59, 0.9): "does not solve",
        (0.61, 0.59): "lies outside",
        (0.61, 0.61): "passed the checks",
    }
    for (model, projection), reason in reasons.items():
        for loss in (1e-3, 9.0):  # a model may be right and unsure, or wrong and nearly right
            evaluation["model"] = {"loss": loss, "accuracy": model}
            evaluation["projection"] = {"loss": loss, "accuracy": projection}
            assert reason in dict(summary.not_detected_notes(report))["What this says"]
    for contexts, reason in ((31, "but 31 contexts to search on are too few to tell how"), (32, "passed the checks")):
        evaluation["search_contexts"] = contexts
        assert reason in dict(summary.not_detected_notes(report))["What this says"]
    evaluation["search_contexts"] = 31
    evaluation["bayes"]["accuracy"] = 0.2  # nothing to gain: the model gains nothing
    evaluation["model"]["accuracy"] = 0.2
    assert "does not solve" in dict(summary.not_detected_notes(report))["What this says"]


def with_separate_circuits(*sufficient: bool) -> dict:
    report = sample_report("mixed")
    names = [unit["id"] for unit in report["circuit"]["units"]]
    report["circuit"]["separate"] = [
        {
            "units": names[k : k + 2],
            "loss": {"surrogate": 0.01, "model": 0.02},
            "accuracy": {"surrogate": 0.999, "model": 0.987},
            "sufficient": one,
        }
        for k, one in enumerate(sufficient)
    ]
    return report


def test_separate_circuits_are_counted_and_listed():
    said = {
        (): "",
        (True,): "",
        (True, True): "2 circuits without a common unit each do the task alone in the surrogate, and they are each "
        "sufficient in the real model",
        (True, True, False): "and 2 of them are each sufficient",
        (True, False): "but in the real model, with everything else removed, 1 of them is sufficient",
        (False, False): "none of them is sufficient",
    }
    for sufficient, words in said.items():
        report = with_separate_circuits(*sufficient)
        note, table = summary.separate_note(report), tables.separate_table(report)
        assert words in note and bool(note) == (table is not None) == bool(words)
    assert table is not None and [row[-1] for row in table.rows] == ["no", "no"]
    assert table.rows[0][1].split("\n") == report["circuit"]["separate"][0]["units"]
    assert summary.separate_note(sample_report()) == "" and tables.separate_table(sample_report()) is None


def test_html_and_markdown_show_separate_circuits():
    report = with_separate_circuits(True, True)
    validate(report)
    for page in (render_html, render_markdown):
        assert "2 circuits without a common unit" in page(report)
        assert "Separate circuits, each with everything else removed" in page(report)
        assert "Separate circuits" not in page(sample_report("mixed"))
    del report["circuit"]["separate"][1]["units"]
    with pytest.raises(ReportError, match="'units' is a required property"):
        validate(report)
