"""`imir-lens train TASK --causal`."""

import json
from pathlib import Path

import pytest
import torch
from calling import call, refused

from imir_lens.causal import train_causal
from imir_lens.tasks import CausalTree

TREE = ("--set", "d=3", "--set", "positions=5", "--set", "examples=3")
FEW = ("--steps", "4", "--batch", "8")


def test_it_trains_what_the_library_trains_and_verify_knows_the_task_of(tmp_path):
    run = tmp_path / "tree"
    result = call("train", "causal_tree", "--causal", *TREE, *FEW, "--seed", "3", "--out", run, "--json")
    assert result.exit_code == 0, result.stderr
    told = json.loads(result.stdout)
    assert told["step"] == 4 and told["bma"]["parent_loss"] < told["uniform"]["parent_loss"]
    assert "step 4/4  loss" in result.stderr and "parent loss" in result.stderr
    task = CausalTree(d=3, positions=5, examples=3)
    again = train_causal(task, steps=4, batch=8, seed=3)
    assert told["model"] == {key: again.curve[-1][key] for key in ("loss", "parent_loss")}
    saved = torch.load(told["checkpoint"], weights_only=True)
    assert saved["cfg"]["architecture"] == "imir-lens/causal"
    assert all(torch.equal(saved["state_dict"][name], weight) for name, weight in again.model.state_dict().items())

    result = call("verify", run, "--out", tmp_path / "report", "--contexts", "32")
    assert result.exit_code == 0, result.stderr
    assert "knobs as in the run: d=3 positions=5" in result.stderr


def test_a_run_goes_on_as_it_was_started(tmp_path):
    run = tmp_path / "tree"
    fixed = ("--model", "n_heads=2", "--lr", "0.01")
    assert call("train", "causal_tree", "--causal", *TREE, *FEW, *fixed, "--out", run, "--quiet").exit_code == 0
    done = call("train", "causal_tree", "--out", run, "--resume", "--json", "--quiet")
    assert done.exit_code == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["step"] == 4 and Path(told["checkpoint"]).is_file()
    record = json.loads((run / "run.json").read_text())
    assert (record["model"]["n_heads"], record["training"]["learning_rate"]) == (2, 0.01)
    longer = refused(call("train", "causal_tree", "--out", run, "--resume", "--steps", "8"))
    assert "decay" in longer or "steps" in longer


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("recall", "--causal"), "task 'recall' has no hidden causal graph: expected one like causal_tree"),
        (("causal_tree", "--causal", *TREE, "--checkpoint-every", "2"), "--checkpoint-every is not for --causal"),
        (("causal_tree", "--causal", *TREE, "--model", "n_layers=3"), "n_layers, which a causal transformer does not"),
        (("causal_tree", "--causal", "--set", "d=1"), "d"),
        (("causal_tree", "--causal", *TREE, "--lr", "-1"), "learning_rate must be a positive number: found -1"),
    ],
    ids=["recall", "checkpoint-every", "n_layers", "d", "lr"],
)
def test_bad_input_is_one_line_and_nothing_is_written(arguments, words, tmp_path):
    run = tmp_path / "run"
    assert words in refused(call("train", *arguments, "--out", run))
    assert not run.exists()
