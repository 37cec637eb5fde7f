"""`imir-lens trajectory`."""

import json

import pytest
from calling import call, contents, refused
from planted_series import EMERGED, grown, write_series

TASK = ("--task", "recall", "--set", "vocab=24", "--set", "pairs=4", "--set", "length=14", "--contexts", "64")


@pytest.fixture(scope="module")
def series(tmp_path_factory):
    return write_series(tmp_path_factory.mktemp("series") / "grown", grown)


def test_it_writes_a_trajectory_and_says_what_emerged(series, tmp_path):
    result = call("trajectory", series, *TASK, "--out", tmp_path / "out")
    assert result.exit_code == 0, result.output
    places = [result.stdout.index(f"at step {step}") for step in sorted(EMERGED.values())]
    assert places == sorted(places)
    assert "checkpoint 9/9" in result.stderr
    names = {name for name in contents(tmp_path / "out") if not name.startswith("points")}
    made = {"trajectory.json", "trajectory.html", "trajectory.md", "trajectory.csv", "figures/trajectory.svg"}
    assert names == made


def test_as_json_it_prints_the_gist_and_nothing_else(series, tmp_path):
    result = call("trajectory", series, *TASK, "--out", tmp_path / "out", "--json", "--quiet")
    data = json.loads(result.stdout)
    assert {row["role"]: row["emergence"]["step"] for row in data["roles"]} == EMERGED
    assert data["emergence"]["order"] == [["gamma"], ["alpha"], ["beta"]]
    assert result.stderr == ""


def test_the_same_command_gives_the_same_file(series, tmp_path):
    for name in ("a", "b"):
        assert call("trajectory", series, *TASK, "--out", tmp_path / name, "--quiet").exit_code == 0
    a, b = (json.loads((tmp_path / name / "trajectory.json").read_text()) for name in ("a", "b"))
    assert a.pop("command") != b.pop("command")
    assert a == b


def test_after_an_interruption_the_same_command_goes_on(series, tmp_path):
    out = tmp_path / "out"
    assert call("trajectory", series, *TASK, "--out", out, "--quiet").exit_code == 0
    for path in [p for p in out.rglob("*") if p.is_file() and p.parent.name != "points"]:
        path.unlink()
    (out / "figures").rmdir()
    times = {p: p.stat().st_mtime_ns for p in (out / "points").iterdir()}
    assert call("trajectory", series, *TASK, "--out", out, "--quiet").exit_code == 0
    assert {p: p.stat().st_mtime_ns for p in (out / "points").iterdir()} == times


def test_a_directory_that_is_taken_is_not_written_to(series, tmp_path):
    out = tmp_path / "out"
    out.mkdir()
    (out / "mine.txt").write_text("mine")
    assert "--force" in refused(call("trajectory", series, *TASK, "--out", out))
    assert call("trajectory", series, *TASK, "--out", out, "--force", "--quiet").exit_code == 0
    assert (out / "mine.txt").read_text() == "mine"


def test_a_folder_without_a_record_needs_a_task(series, tmp_path):
    assert "--task" in refused(call("trajectory", series, "--out", tmp_path / "out"))
    assert "no numbered checkpoints" in refused(call("trajectory", tmp_path, *TASK, "--out", tmp_path / "out"))
