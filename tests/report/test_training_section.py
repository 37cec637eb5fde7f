"""A report on a run can show its training."""

import json

import pytest
import torch
from planted_series import TASK, grown, write_series

from imir_lens import Report, analyze
from imir_lens.errors import CheckpointError, OptionError
from imir_lens.report.validation import ReportError, validate

QUICK = {"contexts": 64, "bootstraps": 0}


@pytest.fixture(scope="module")
def series(tmp_path_factory):
    return write_series(tmp_path_factory.mktemp("series") / "grown", grown)


@pytest.fixture(scope="module")
def report(series):
    return analyze(series, TASK, along_training=True, **QUICK)


def test_a_report_on_a_run_says_what_emerged_when(report, tmp_path):
    place = report.save(tmp_path / "out")
    page, page_md = (place / "report.html").read_text(), (place / "report.md").read_text()
    for text in (page, page_md):
        assert "Along training" in text and "at step 20, then" in text
    assert (place / "figures" / "trajectory.svg").exists()
    assert Report.load(place).data == report.data


def test_one_that_was_not_asked_to_says_nothing_of_it(series, tmp_path):
    plain = analyze(series, TASK, **QUICK)
    place = plain.save(tmp_path / "out")
    assert "trajectory" not in plain.data
    assert "Along training" not in (place / "report.html").read_text()
    assert not (place / "figures" / "trajectory.svg").exists()


def test_a_damaged_trajectory_is_refused(report):
    data = json.loads(json.dumps(report.data))
    del data["trajectory"]["swaps"]
    with pytest.raises(ReportError, match="swaps"):
        validate(data)


def test_what_is_not_a_run_is_refused_before_any_work(series):
    steps = []
    with pytest.raises(CheckpointError, match="expected a run directory"):
        analyze(series / "step_00080.pt", TASK, along_training=True, progress=steps.append, **QUICK)
    with pytest.raises(OptionError, match="give its path"):
        analyze(torch.nn.Identity(), TASK, along_training=True, progress=steps.append, **QUICK)
    assert steps == []
