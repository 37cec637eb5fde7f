import copy
import math

import pytest
from jsonschema import Draft202012Validator
from sample_report import KINDS, sample_report

from imir_lens.report.validation import ReportError, load_schema, validate


def test_the_schema_is_itself_valid():
    Draft202012Validator.check_schema(load_schema())


@pytest.mark.parametrize("kind", KINDS)
def test_samples_are_valid(kind):
    validate(sample_report(kind))


def test_fields_may_be_added():
    report = sample_report()
    report["extra"] = 1
    report["circuit"]["backups"] = ["readout/via:L1H0/same"]
    report["circuit"]["units"][0]["extra"] = {"a": 1}
    validate(report)


def _required(report, place=()):
    """Paths of every key of every object, one element of each list."""
    if isinstance(report, dict) and place[-1:] not in (("knobs",), ("attention",), ("per_head",)):
        for key, value in report.items():
            yield (*place, key)
            yield from _required(value, (*place, key))
    elif isinstance(report, list) and report and isinstance(report[0], dict):
        yield from _required(report[0], (*place, 0))


OPTIONAL = {("circuit", "roles", 0, "accuracy_if_removed")}
PLACES = [place for place in _required(sample_report()) if place not in OPTIONAL]


def test_many_fields_are_required():
    assert len(PLACES) > 90


@pytest.mark.parametrize("place", PLACES, ids=lambda place: ".".join(map(str, place)))
def test_every_field_is_required(place):
    report = sample_report()
    at = report
    for key in place[:-1]:
        at = at[key]
    del at[place[-1]]
    with pytest.raises(ReportError, match=f"'{place[-1]}' is a required property") as error:
        validate(report)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("place", "value", "said"),
    [
        (("schema",), "imir-lens/report/2", "report.schema"),
        (("verdict", "mechanism"), "magic", "'magic' is not one of"),
        (("circuit", "units", 0, "role"), "omega", "'omega' does not match"),
        (("circuit", "units", 0, "role"), "auxiliary_1", "'auxiliary_1' does not match"),
        (("coordinates", 3, "in_circuit"), "yes", "'yes' is not of type 'boolean'"),
        (("coordinates", 3, "value"), None, "report.coordinates[3].value"),
        (("coordinates", 3, "value"), math.nan, "report.coordinates[3].value is nan"),
        (("circuit", "faithfulness"), -math.inf, "report.circuit.faithfulness is -inf"),
        (("evaluation", "model", "accuracy"), 1.2, "report.evaluation.model.accuracy"),
        (("evaluation", "contexts"), 512.5, "report.evaluation.contexts"),
        (("model", "sha256"), "abc", "report.model.sha256"),
        (("examples", 0, "query"), 14, "report.examples[0].query is 14: expected a position below 14"),
        (("examples", 0, "attention", "L0H0"), [[1.0]], "expected 14 rows"),
        (("examples", 1, "attention", "L0H0", 2, 0), 1.5, "report.examples[1].attention.L0H0: expected numbers"),
        (("examples", 1, "attention", "L0H0", 2, 0), "x", "report.examples[1].attention.L0H0: expected numbers"),
        (("examples", 1, "attention"), {"head": []}, "'head' does not match"),
        (("examples",), [copy.deepcopy(sample_report()["examples"][0])] * 5, "report.examples"),
        (("coordinates",), [sample_report()["coordinates"][0]] * 201, "report.coordinates"),
        (("circuit", "roles", 0, "units"), ["readout/via:L9H9/same"], "'readout/via:L9H9/same' is not one of"),
    ],
)
def test_a_wrong_value_is_refused_at_its_place(place, value, said):
    report = sample_report()
    at = report
    for key in place[:-1]:
        at = at[key]
    at[place[-1]] = value
    with pytest.raises(ReportError) as error:
        validate(report)
    assert said in str(error.value)
    assert "\n" not in str(error.value)
    assert len(str(error.value)) < 300


def test_a_report_that_is_no_object_is_refused():
    with pytest.raises(ReportError, match="is not of type 'object'"):
        validate({**sample_report(), "circuit": []})
