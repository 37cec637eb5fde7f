"""`imir-lens analyze` and `imir-lens report`: what they write and what they print."""

import json
import shutil
from pathlib import Path

import pytest
import torch
from calling import QUICK, RECALL, call, contents, refused

import imir_lens


@pytest.fixture(scope="module")
def analysed(tmp_path_factory):
    """A report of the real checkpoint, made with --json over someone's older files."""
    out = tmp_path_factory.mktemp("analysed") / "report"
    out.mkdir()
    (out / "notes.txt").write_text("mine")
    (out / "report.md").write_text("old")
    result = call("analyze", RECALL, "--task", "recall", *QUICK, "--out", out, "--force", "--json", "--seed", "4")
    assert result.exit_code == 0, result.stderr
    return out, result


def test_analyze_writes_the_report_and_prints_its_gist_as_json(analysed):
    out, result = analysed
    told = json.loads(result.stdout)
    kept = json.loads((out / "report.json").read_text())
    assert told["verdict"]["mechanism"] == "in_context"
    assert {key: told[key] for key in ("verdict", "circuit", "evaluation", "task", "seed")} == {
        key: kept[key] for key in ("verdict", "circuit", "evaluation", "task", "seed")
    }
    assert Path(told["report"]) == out / "report.html"
    assert kept["seed"] == 4
    assert kept["evaluation"]["contexts"] == 48
    assert kept["circuit"]["stability"]["n"] == 0
    assert kept["command"].startswith(f"imir-lens analyze {RECALL} --task recall --contexts 48")
    assert "search for the circuit" in result.stderr


def test_analyze_with_force_replaces_the_report_and_nothing_else(analysed):
    out, _ = analysed
    assert (out / "notes.txt").read_text() == "mine"
    assert (out / "report.md").read_text() != "old"
    assert {p.name for p in out.iterdir()} == {
        *("notes.txt", "report.html", "report.json", "report.md", "coordinates.safetensors", "figures")
    }


def test_report_rebuilds_what_is_made_from_json(analysed, tmp_path):
    out = tmp_path / "report"
    shutil.copytree(analysed[0], out)
    before = contents(out)
    (out / "report.html").unlink()
    (out / "figures" / "circuit.svg").write_text("spoilt")
    result = call("report", out)
    assert result.exit_code == 0
    assert "verdict   in_context" in result.stdout
    assert f"report    {out / 'report.html'}" in result.stdout
    assert "L1H0/score/q:res/k:L0H0/same" in result.stdout
    assert result.stderr == ""
    assert contents(out) == before
    told = json.loads(call("report", out, "--json").stdout)
    assert told["verdict"]["mechanism"] == "in_context"


def test_report_refuses_what_is_not_a_report(tmp_path):
    assert "report.json" in refused(call("report", tmp_path / "absent"))
    (tmp_path / "report.json").write_text("{}")
    assert "report.json" in refused(call("report", tmp_path))
    assert contents(tmp_path) == {"report.json": b"{}"}


def test_quiet_says_nothing_on_either_stream(analysed):
    result = call("report", analysed[0], "--quiet")
    assert (result.exit_code, result.stdout, result.stderr) == (0, "", "")
    assert call("report", analysed[0], "--quiet", "--json").stdout.startswith("{")


def test_a_bare_state_dict_is_analysed_with_its_config_given(tmp_path):
    out = tmp_path / "report"
    fields = ("--model", "normalization_type=none", "--model", "use_attn_scale=true")
    bare = tmp_path / "bare.pt"
    torch.save(imir_lens.load_checkpoint(RECALL).state_dict, bare)
    result = call("analyze", bare, "--task", "recall", *fields, *QUICK, "--out", out, "--quiet")
    assert result.exit_code == 0, result.stderr
    assert json.loads((out / "report.json").read_text())["verdict"]["mechanism"] == "in_context"
