"""`imir-lens train` and `imir-lens demo`."""

import inspect
import json
import re
from pathlib import Path

import pytest
import torch
from calling import QUICK, SMALL, call, refused

import imir_lens
from imir_lens.tasks import make_task
from imir_lens.training.recipes import Recipe, default_config, default_recipe


def test_train_writes_a_run_that_analyze_knows_the_task_of(tmp_path):
    run = tmp_path / "run"
    result = call("train", "recall", "--out", run, *SMALL, "--steps", "3", "--batch", "8", "--lr", "0.01", "--json")
    assert result.exit_code == 0, result.stderr
    told = json.loads(result.stdout)
    assert told["step"] == 3
    assert Path(told["checkpoint"]).is_file()
    assert told["bayes"]["loss"] == 0 < told["model"]["loss"]
    assert "step 3/3" in result.stderr
    record = json.loads((run / "run.json").read_text())
    assert record["training"]["learning_rate"] == 0.01
    assert (record["model"]["d_model"], record["model"]["n_layers"]) == (16, 2)

    for checkpoint, extra in ((run, ()), (Path(told["checkpoint"]), ("--task", "recall", "--set", "pairs=1"))):
        out = tmp_path / f"report-{checkpoint.name}"
        result = call("analyze", checkpoint, *extra, *QUICK, "--out", out)
        assert result.exit_code == 0, result.stderr
        assert "verdict   not_detected" in result.stdout
        knobs = json.loads((out / "report.json").read_text())["task"]["knobs"]
        assert (knobs["vocab"], knobs["pairs"]) == (20, 1 if extra else 2)


def test_train_resumes_with_what_the_run_was_started_with(tmp_path):
    run, straight = tmp_path / "run", tmp_path / "straight"
    options = ("train", "recall", *SMALL, "--batch", "8", "--seed", "5", "--quiet")
    assert call(*options, "--out", run, "--steps", "2").stdout == ""
    assert "already exists" in refused(call(*options, "--out", run, "--steps", "4"))
    assert call("train", "recall", "--out", run, "--resume", "--steps", "4", "--quiet").exit_code == 0
    assert call(*options, "--out", straight, "--steps", "4").exit_code == 0
    resumed, expected = (imir_lens.load_checkpoint(folder).state_dict for folder in (run, straight))
    assert resumed.keys() == expected.keys()
    assert all(torch.equal(resumed[name], expected[name]) for name in expected)
    assert "training.seed=5" in refused(call("train", "recall", "--out", run, "--resume", "--seed", "6"))
    assert "trained on 'recall'" in refused(call("train", "hop", "--out", run, "--resume"))
    (run / "run.json").write_text("{}")
    assert "run.json" in refused(call("train", "recall", "--out", run, "--resume"))
    assert "run.json" in refused(call("analyze", run, "--task", "recall", "--out", tmp_path / "report"))


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("recal",), "did you mean 'recall'?"),
        (("recall", "--steps", "0"), "--steps"),
        (("recall", "--lr", "-1"), "learning_rate"),
        (("recall", "--lr", "inf"), "learning_rate"),
        (("recall", "--model", "d_modle=8"), "did you mean 'd_model'?"),
        (("recall", "--model", "n_ctx=8"), "n_ctx=8"),
        (("recall", "--model", "d_model=10000000"), "a model of 6,640,000,576 numbers"),
        (("recall", "--set", "vocab=100000000000"), "100000000000 tokens: expected at most 1,000,000"),
        (("recall", "--set", "association=seed:99999999999999999999999"), "0 <= N <= 2^62"),
        (("recall", "--device", "nowhere"), "device 'nowhere'"),
        (("recall", "--resume"), "is not a run"),
    ],
)
def test_a_bad_option_of_train_is_refused(arguments, said, tmp_path):
    run = tmp_path / "run"
    assert said in refused(call("train", *arguments, "--out", run, "--quiet"))
    assert not run.exists()


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ((), "analyse    imir-lens analyze {run} --out REPORT"),
        (("n_heads=2",), "analyse    imir-lens analyze {run} --out REPORT"),
        (("positional_embedding_type=rotary", "attn_only=false"), "analyse    imir-lens analyze {run} --out REPORT"),
        (("d_vocab_out=70",), "analyse    not possible: the analysis does not support an output vocabulary"),
    ],
)
def test_the_next_command_is_named_where_there_is_one(fields, said, tmp_path):
    run = tmp_path / "my\nrun"
    options = [word for field in fields for word in ("--model", field)]
    result = call("train", "recall", "--out", run, *SMALL, *options, "--steps", "1", "--batch", "4")
    assert result.exit_code == 0, result.stderr
    line = result.stdout.splitlines()[-1]
    assert said.format(run=f"$'{tmp_path}/my\\x0arun'") in line
    assert ("imir-lens analyze" in line) == ("{run}" in said)


def test_demo_can_be_run_twice(tmp_path, monkeypatch):
    task = make_task("recall", vocab=20, pairs=2, length=8)
    recipe = Recipe(task, default_config(task, d_model=16, d_head=8), {"steps": 2, "batch": 8})
    monkeypatch.setattr("imir_lens.training.recipes.DEMO", recipe)
    out = tmp_path / "demo"
    results = [call("demo", "--out", out) for _ in range(2)]
    for result in results:
        assert result.exit_code == 0, result.stderr
        assert "verdict   not_detected" in result.stdout
        assert f"report    {out / 'report.html'}" in result.stdout
    assert "step 0/2" in results[0].stderr
    assert "step 0/2" not in results[1].stderr
    assert (out / "run" / "checkpoints" / "step_00000002.pt").is_file()
    assert json.loads((out / "report.json").read_text())["command"] == f"imir-lens demo --out {out}"

    other = Recipe(task, recipe.config, {"steps": 2, "batch": 4})
    monkeypatch.setattr("imir_lens.training.recipes.DEMO", other)
    assert "training.batch=8, found 4" in refused(call("demo", "--out", out, "--quiet"))


def test_the_defaults_that_help_speaks_of_are_those_of_the_library():
    page = " ".join(call("train", "--help").stdout.split())
    shown = {name: float(value) for name, value in re.findall(r"--(\w+) [NX] [^-]*?\[default: ([\d.]+)\]", page)}
    library = {name: p.default for name, p in inspect.signature(imir_lens.train).parameters.items()}
    steps = default_recipe(make_task("recall")).options["steps"]
    assert shown == {"steps": steps, "batch": library["batch"], "lr": library["learning_rate"], "seed": library["seed"]}
    page = " ".join(call("analyze", "--help").stdout.split())
    shown = {name: float(value) for name, value in re.findall(r"--(\w+) [NB] [^-]*?\[default: ([\d.]+)\]", page)}
    library = {name: p.default for name, p in inspect.signature(imir_lens.analyze).parameters.items()}
    assert shown == {name: library[name] for name in ("contexts", "budget", "bootstraps", "seed")}
