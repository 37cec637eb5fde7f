"""`imir-lens verify`: what it writes, what it prints, and what it refuses."""

import json
from pathlib import Path

import pytest
import torch
from calling import RECALL, call, contents, refused

from imir_lens.causal.construction import construct
from imir_lens.causal.files import config_for, save_causal
from imir_lens.causal.training import train_causal
from imir_lens.causal.transformer import CausalTransformer, initialise
from imir_lens.tasks.causal_tree import CausalTree

TASK = CausalTree(d=4, positions=6, examples=2)
SIZES = ("--task", "causal_tree", "--set", "d=4", "--set", "positions=6", "--set", "examples=2")
FEW = ("--contexts", "64")


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    path = tmp_path_factory.mktemp("model") / "exact.safetensors"
    save_causal(path, construct(TASK))
    return path


@pytest.fixture(scope="module")
def verified(model, tmp_path_factory):
    out = tmp_path_factory.mktemp("verified") / "report"
    out.mkdir()
    (out / "notes.txt").write_text("mine")
    (out / "report.md").write_text("old")
    result = call("verify", model, *SIZES, *FEW, "--out", out, "--force", "--json", "--seed", "4")
    assert result.exit_code == 0, result.stderr
    return out, result


def test_verify_writes_the_report_and_prints_its_gist_as_json(verified):
    out, result = verified
    told, kept = json.loads(result.stdout), json.loads((out / "report.json").read_text())
    assert told["verdict"]["mechanism"] == "causal_bma"
    assert told["verdict"]["evidence_level"] == "predicted ablations"
    assert {key: told[key] for key in ("verdict", "behaviour", "parameters", "task", "seed")} == {
        key: kept[key] for key in ("verdict", "behaviour", "parameters", "task", "seed")
    }
    assert (kept["seed"], kept["evaluation"]["contexts"], kept["task"]["knobs"]["d"]) == (4, 64, 4)
    assert kept["command"].startswith("imir-lens verify ") and "--seed 4" in kept["command"]
    assert Path(told["report"]) == out / "report.html"
    assert "vary the number of examples" in result.stderr


def test_verify_with_force_replaces_the_report_and_nothing_else(verified):
    out, _ = verified
    assert (out / "notes.txt").read_text() == "mine"
    assert (out / "report.md").read_text() != "old"
    assert {p.name for p in out.iterdir()} == {"notes.txt", "report.html", "report.json", "report.md", "figures"}
    figures = {"attention", "posterior", "examples", "kernel", "errors", "copyers", "ablations"}
    assert {p.stem for p in (out / "figures").iterdir()} == figures


def test_the_same_call_gives_the_same_files(model, verified, tmp_path):
    result = call("verify", model, *SIZES, *FEW, "--out", tmp_path / "again", "--quiet", "--seed", "4")
    assert (result.exit_code, result.stdout, result.stderr) == (0, "", "")
    first, second = (json.loads((place / "report.json").read_text()) for place in (verified[0], tmp_path / "again"))
    first.pop("command"), second.pop("command")
    assert first == second


def test_report_rebuilds_a_verification_from_its_json(verified):
    out, _ = verified
    before = contents(out)
    (out / "report.html").unlink()
    (out / "figures" / "kernel.svg").write_text("spoilt")
    result = call("report", out)
    assert result.exit_code == 0, result.stderr
    assert "verdict   causal_bma" in result.stdout and "evidence  predicted ablations" in result.stdout
    assert contents(out) == before


def test_a_run_of_training_knows_its_task(tmp_path):
    train_causal(TASK, steps=4, batch=8, run=tmp_path / "run")
    result = call("verify", tmp_path / "run", *FEW, "--test-examples", "1,3", "--out", tmp_path / "out")
    assert result.exit_code == 0, result.stderr
    assert "verdict   not_detected" in result.stdout
    assert "knobs as in the run: d=4 positions=6 examples=2" in result.stderr
    kept = json.loads((tmp_path / "out" / "report.json").read_text())
    assert [point["examples"] for point in kept["behaviour"]["curve"]] == [1, 2, 3]


def test_an_untrained_model_is_not_called_bma(tmp_path):
    fresh = CausalTransformer(config_for(TASK))
    initialise(fresh, torch.Generator().manual_seed(1))
    save_causal(tmp_path / "fresh.pt", fresh)
    result = call("verify", tmp_path / "fresh.pt", *SIZES, *FEW, "--out", tmp_path / "out")
    assert result.exit_code == 0 and "verdict   not_detected" in result.stdout
    assert "  NO " in result.stdout


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (("--task", "causal_tree"), "d_input=4"),
        ((*SIZES, "--set", "positions=9"), "n_positions=6"),
        ((*SIZES, "--set", "examples=5"), "n_examples=2"),
        (("--task", "recall"), "no hidden causal graph"),
        (("--task", "causal_tre"), "causal_tree"),
        (("--task", "lag_chain"), "example"),
        ((), "--task"),
        ((*SIZES, "--contexts", "0"), "contexts"),
        ((*SIZES, "--test-examples", "1,x"), "--test-examples"),
        ((*SIZES, "--test-examples", "0"), "at least 1"),
        ((*SIZES, "--set", "gamma=2"), "gamma"),
    ],
)
def test_bad_input_is_one_line(model, arguments, named, tmp_path):
    assert named in refused(call("verify", model, *arguments, "--out", tmp_path / "out", "--quiet"))
    assert not (tmp_path / "out").exists()


def test_an_ordinary_checkpoint_of_another_layout_is_refused(tmp_path):
    line = refused(call("verify", RECALL, "--task", "causal_tree", "--out", tmp_path / "out"))
    assert "n_ctx=24" in line and "60 positions" in line


def test_a_full_directory_is_left_alone_without_force(model, tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    assert "--force" in refused(call("verify", model, *SIZES, "--out", tmp_path, "--quiet"))
    assert contents(tmp_path) == {"notes.txt": b"mine"}
