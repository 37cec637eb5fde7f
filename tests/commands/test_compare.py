"""`imir-lens compare`."""

import json
import re
from pathlib import Path

import pytest
from calling import DATA, RECALL, call, contents, refused
from documented_commands import fenced
from sample_report import sample_report

from imir_lens.report import Report


@pytest.fixture
def reports(tmp_path):
    return [Report(sample_report(kind)).save(tmp_path / kind) for kind in ("memory", "recall")]


def test_it_says_what_differs_and_writes_the_comparison(reports, tmp_path):
    result = call("compare", *reports, "--out", tmp_path / "out")
    assert result.exit_code == 0, result.output
    assert result.stdout.startswith("memory_2l.pt does recall from memory; recall_2l.pt does it in context")
    assert "gamma             –" in result.stdout
    assert "comparison.html" in result.stdout
    assert set(contents(tmp_path / "out")) == {
        "comparison.html",
        "comparison.json",
        "comparison.md",
        "figures/circuits.svg",
        "figures/coordinates.svg",
    }


def test_as_json_it_prints_the_gist_and_nothing_else(reports, tmp_path):
    result = call("compare", reports[0] / "report.json", reports[1], "--out", tmp_path / "out", "--json", "--quiet")
    data = json.loads(result.stdout)
    saved = json.loads((tmp_path / "out" / "comparison.json").read_text())
    assert {name: data[name] for name in ("headline", "units", "jaccard")} == {
        name: saved[name] for name in ("headline", "units", "jaccard")
    }
    assert saved["command"].startswith("imir-lens compare ")
    assert result.stderr == ""


def test_report_rebuilds_it(reports, tmp_path):
    out = tmp_path / "out"
    assert call("compare", *reports, "--out", out, "--quiet").exit_code == 0
    before = contents(out)
    (out / "comparison.html").write_text("spoilt")
    result = call("report", out)
    assert result.exit_code == 0, result.output
    assert result.stdout.startswith("memory_2l.pt does recall")
    assert contents(out) == before


def test_an_older_comparison_is_kept_without_force(reports, tmp_path):
    out = tmp_path / "out"
    assert call("compare", *reports, "--out", out, "--quiet").exit_code == 0
    before = contents(out)
    assert "--force" in refused(call("compare", reports[0], reports[0], "--out", out))
    assert contents(out) == before
    assert call("compare", reports[0], reports[0], "--out", out, "--force", "--quiet").exit_code == 0
    assert "compared with itself" in (out / "comparison.md").read_text()


OTHERS = {
    "verification": ("report.json", {"schema": "imir-lens/verification/1"}, "a verification of `imir-lens verify`"),
    "atlas": ("atlas.json", {"schema": "imir-lens/atlas/1"}, "a table of heads of `imir-lens heads`"),
    "trajectory": ("trajectory.json", {"schema": "imir-lens/trajectory/1"}, "a trajectory of `imir-lens trajectory`"),
    "comparison": ("comparison.json", {"schema": "imir-lens/comparison/1"}, "a comparison of `imir-lens compare`"),
    "run": ("run.json", {}, "is a run of training: expected a report; make one first with `imir-lens analyze"),
    "nothing": ("notes.txt", {}, "expected a report.json"),
    "damaged": ("report.json", {"schema": "imir-lens/report/1"}, "required property"),
}


@pytest.mark.parametrize("kind", OTHERS)
@pytest.mark.parametrize("side", ["first", "second"])
def test_what_is_not_a_circuit_report_is_refused_and_nothing_is_written(kind, side, reports, tmp_path):
    name, content, said = OTHERS[kind]
    place = tmp_path / "other"
    place.mkdir()
    (place / name).write_text(json.dumps(content))
    given = [place, reports[1]] if side == "first" else [reports[0], place]
    line = refused(call("compare", *given, "--out", tmp_path / "out"))
    assert said in line
    assert "other" in line
    assert not (tmp_path / "out").exists()


def test_a_directory_that_is_not_there_is_named(reports, tmp_path):
    line = refused(call("compare", reports[0], tmp_path / "nowhere", "--out", tmp_path / "out"))
    assert line.endswith("nowhere': No such file or directory; expected the directory that a report is in")


def test_a_checkpoint_is_sent_to_analyze(reports, tmp_path):
    line = refused(call("compare", reports[0], RECALL, "--out", tmp_path / "out"))
    assert "is a checkpoint: expected a report; make one first with `imir-lens analyze" in line
    assert not (tmp_path / "out").exists()


def test_the_worked_example_is_what_the_commands_give(tmp_path, monkeypatch):
    page = (Path(__file__).parents[2] / "docs" / "howto" / "compare.md").read_text(encoding="utf-8")
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "data").symlink_to(DATA)
    monkeypatch.chdir(tmp_path)
    for line in fenced(page, "sh")[0].splitlines():
        # What is compared depends on the weights; fewer contexts find the same circuits.
        fewer = ("--contexts", "48", "--bootstraps", "0") if " analyze " in line else ()
        result = call(*line.split()[1:], *fewer, "--quiet" if fewer else "--json")
        assert result.exit_code == 0, result.output
    told = call("report", "comparison").stdout
    number = re.compile(r"[+\N{MINUS SIGN}]\d[\d.]*")
    shown = fenced(page, "text")[0]
    assert re.sub(r"\s+", " ", number.sub("#", told)) == re.sub(r"\s+", " ", number.sub("#", shown))
    values = [[float(v.replace("\N{MINUS SIGN}", "-")) for v in number.findall(text)] for text in (shown, told)]
    # Another machine's rounding may move the third digit.
    assert values[0] == pytest.approx(values[1], rel=0.02, abs=0.005)


def test_a_comparison_does_not_take_a_reports_place(reports):
    before = contents(reports[0])
    for out in (reports[0], reports[1], reports[0] / ".." / reports[0].name):
        line = refused(call("compare", *reports[:2], "--out", out, "--force"))
        assert "is one of the two reports: give another directory" in line
    assert contents(reports[0]) == before
