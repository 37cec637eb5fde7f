"""The command line: what goes where, and one line for every bad input."""

import json
import os
import pickle
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from click.testing import CliRunner, Result

import imir_lens
from imir_lens.cli import cli
from imir_lens.commands.shared import parse_fields
from imir_lens.errors import CoordinateError, OptionError
from imir_lens.tasks import make_task
from imir_lens.training.recipes import Recipe, default_config

DATA = Path(__file__).parent / "data"
RECALL = DATA / "recall_2l.pt"
QUICK = ("--contexts", "48", "--bootstraps", "0")


def call(*arguments: object) -> Result:
    return CliRunner().invoke(cli, [str(argument) for argument in arguments])


def refused(result: Result) -> str:
    """The one line of a refusal."""
    assert result.exit_code == 2, result.output
    assert isinstance(result.exception, SystemExit)
    assert result.stdout == ""
    assert result.stderr.startswith("imir-lens: ")
    lines = result.stderr.splitlines()
    assert len(lines) == 1
    return lines[0]


def payload() -> dict:
    checkpoint = imir_lens.load_checkpoint(RECALL)
    return {"state_dict": checkpoint.state_dict, "cfg": checkpoint.config}


def saved(directory: Path, content: object) -> Path:
    path = directory / "model.pt"
    torch.save(content, path)
    return path


class Foreign:
    """Unpickling it would leave a file behind."""

    def __init__(self, mark: Path) -> None:
        self.mark = mark

    def __reduce__(self):
        return Path.touch, (self.mark,)


def missing(directory: Path) -> Path:
    return directory / "absent.pt"


def truncated(directory: Path) -> Path:
    path = directory / "model.pt"
    content = RECALL.read_bytes()
    path.write_bytes(content[: len(content) // 2])
    return path


def text_file(directory: Path) -> Path:
    path = directory / "model.pt"
    path.write_text("these are not weights")
    return path


def numbers(directory: Path) -> Path:
    return saved(directory, [1, 2, 3])


def empty_directory(directory: Path) -> Path:
    (directory / "nothing").mkdir()
    return directory / "nothing"


def foreign_pickle(directory: Path) -> Path:
    path = directory / "model.pt"
    path.write_bytes(pickle.dumps({"state_dict": Foreign(directory / "executed")}))
    return path


def foreign_archive(directory: Path) -> Path:
    return saved(directory, {"state_dict": payload()["state_dict"], "cfg": Foreign(directory / "executed")})


def bare_state(directory: Path) -> Path:
    return saved(directory, payload()["state_dict"])


def contradiction(directory: Path) -> Path:
    content = payload()
    return saved(directory, {**content, "cfg": {**content["cfg"], "d_model": 64}})


def not_a_number(directory: Path) -> Path:
    content = payload()
    content["state_dict"]["blocks.0.attn.W_Q"][0, 3, 5] = torch.nan
    return saved(directory, content)


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (missing, "no such file or directory"),
        (truncated, "truncated"),
        (text_file, "not a"),
        (numbers, "expected a state dict"),
        (empty_directory, "a directory without a checkpoint"),
        (foreign_pickle, "not a checkpoint"),
        (foreign_archive, "was executed"),
        (bare_state, "--model"),
        (contradiction, "its cfg asks for [64, 64]"),
        (not_a_number, "'blocks.0.attn.W_Q' has 1 values that are NaN"),
    ],
)
def test_a_bad_checkpoint_is_refused(make, said, tmp_path):
    checkpoint, out = make(tmp_path), tmp_path / "report"
    line = refused(call("analyze", checkpoint, "--task", "recall", "--out", out))
    assert checkpoint.name in line
    assert said in line
    assert not out.exists()
    assert not (tmp_path / "executed").exists()


def test_the_foreign_pickle_would_have_acted(tmp_path):
    with foreign_pickle(tmp_path).open("rb") as file:
        pickle.load(file)
    assert (tmp_path / "executed").exists()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--task", "recall", "--set", "vocab=128"), "the model's vocabulary has 64"),
        (("--task", "recall", "--set", "length=40"), "n_ctx is 24"),
        (("--task", "recal"), "unknown task 'recal'; did you mean 'recall'?"),
        (("--task", "recall", "--set", "vocb=64"), "no knob 'vocb'; did you mean 'vocab'?"),
        (("--task", "recall", "--set", "vocab=many"), "takes int; found 'many'"),
        (("--task", "recall", "--set", "vocab"), "expected KNOB=VALUE"),
        (("--task", "recall", "--set", "pairs=50"), "pairs=50"),
        ((), "give --task NAME"),
        (("--task", "recall", "--budget", "0"), "budget must lie between 0 and 1"),
        (("--task", "recall", "--budget", "1.5"), "got 1.5"),
        (("--task", "recall", "--budget", "nan"), "got nan"),
        (("--task", "recall", "--budget", "tiny"), "'tiny' is not a valid float"),
        (("--task", "recall", "--contexts", "0"), "contexts"),
        (("--task", "recall", "--bootstraps", "-1"), "bootstraps"),
        (("--task", "recall", "--seed", "-1"), "-1"),
        (("--task", "recall", "--model", "n_heads"), "expected FIELD=VALUE"),
        (("--task", "recall", "--model", "n_haeds=2"), "n_haeds"),
        (("--task", "recall", "--config", "absent.json"), "absent.json"),
        (("--task", "recall", "--device", "nowhere"), "device 'nowhere'"),
        (("--task", "recall", "--device", "meta"), "device 'meta'"),
        (("--taks", "recall"), "'--taks'"),
        (("--task", "recall", "unexpected"), "unexpected"),
    ],
)
def test_a_bad_option_of_analyze_is_refused(arguments, said, tmp_path):
    out = tmp_path / "report"
    assert said in refused(call("analyze", RECALL, "--out", out, *arguments, "--quiet"))
    assert not out.exists()


@pytest.mark.parametrize("name", ["recall_rotary_ln.pt", "recall_ln_mlp"])
def test_a_model_that_is_not_covered_yet_is_refused(name, tmp_path):
    line = refused(call("analyze", DATA / name, "--task", "recall", "--out", tmp_path / "report", "--quiet"))
    assert "the analysis does not support" in line
    assert "yet" in line


def test_an_unknown_coordinate_is_refused(generator):
    model, task = imir_lens.open_model(RECALL), make_task("recall")
    projector = imir_lens.ImirProjector(task.relations, task.n_positions).fit(model.weights)
    batch = task.sample(2, generator)
    for identifier in ("L0H7/score/q:res/k:res/same", "L1H0/scores/same", "readout/via:L1H0/some"):
        with pytest.raises(CoordinateError) as caught:
            imir_lens.ablate(model, projector.coordinates_, [identifier], batch)
        assert len(str(caught.value).splitlines()) == 1


def contents(directory: Path) -> dict[str, bytes]:
    return {str(p.relative_to(directory)): p.read_bytes() for p in directory.rglob("*") if p.is_file()}


@pytest.mark.parametrize("command", [("analyze", RECALL, "--task", "recall"), ("demo",)])
def test_an_output_place_that_cannot_be_used_is_refused_before_any_work(command, tmp_path, monkeypatch):
    monkeypatch.setattr("imir_lens.pipeline.analyze", None)  # would be called, and fail, after the check
    monkeypatch.setattr("imir_lens.training.loop.train", None)
    file, full = tmp_path / "file", tmp_path / "full"
    file.write_text("mine")
    full.mkdir()
    (full / "mine.txt").write_text("mine")
    before = contents(tmp_path)
    assert "full' exists" in refused(call(*command, "--out", full))
    assert "is a file" in refused(call(*command, "--out", file))
    assert "is a file" in refused(call(*command, "--out", file / "below" / "it"))
    assert "cannot write" in refused(call(*command, "--out", tmp_path / ("long" * 100)))
    assert contents(tmp_path) == before


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_directory_without_write_permission_is_refused(tmp_path):
    tmp_path.chmod(0o500)
    assert "permission denied" in refused(call("demo", "--out", tmp_path / "report"))


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
    result = call("analyze", bare_state(tmp_path), "--task", "recall", *fields, *QUICK, "--out", out, "--quiet")
    assert result.exit_code == 0, result.stderr
    assert json.loads((out / "report.json").read_text())["verdict"]["mechanism"] == "in_context"


def test_debug_shows_where_an_error_was_raised():
    result = call("analyze", "absent.pt", "--task", "recall", "--out", "report", "--debug")
    assert result.exit_code == 2
    assert "Traceback" in result.stderr
    assert result.stderr.splitlines()[-1] == "imir-lens: absent.pt: no such file or directory"


def test_a_mistake_of_ours_is_not_dressed_up_as_one_of_the_user(monkeypatch, analysed):
    def fail(directory):
        raise ZeroDivisionError("ours")

    monkeypatch.setattr("imir_lens.report.document.Report.rebuild", fail)
    result = call("report", analysed[0])
    assert result.exit_code == 1
    assert isinstance(result.exception, ZeroDivisionError)


def test_ctrl_c_ends_with_130(monkeypatch, analysed):
    def interrupt(directory):
        raise KeyboardInterrupt

    monkeypatch.setattr("imir_lens.report.document.Report.rebuild", interrupt)
    result = call("report", analysed[0])
    assert (result.exit_code, result.stderr.strip()) == (130, "imir-lens: interrupted")


def test_an_unknown_command_names_the_nearest():
    assert refused(call("analyse")) == "imir-lens: no command 'analyse'; did you mean 'analyze'?"
    assert "choose one of: analyze, demo, report, tasks, train" in refused(call("zzz"))
    assert "--version" in refused(call("--versoin"))


def test_a_hostile_argument_stays_on_one_line_and_does_not_steer_the_terminal():
    line = refused(call("analyze", "a\nb\x1b[31m.pt", "--task", "recall", "--out", "report"))
    assert "\x1b" not in line


def test_help_names_every_command_and_every_common_option():
    shown = call("--help")
    assert shown.exit_code == 0
    assert call().stdout == shown.stdout
    for name, command in cli.commands.items():
        assert f"  {name} " in shown.stdout
        page = call(name, "--help").stdout
        assert all(option in page for option in ("--quiet", "--json", "--device", "--debug")), name
        assert command.help


def test_tasks_lists_all():
    rows = json.loads(call("tasks", "--json").stdout)
    assert [row["name"] for row in rows] == imir_lens.task_names()
    assert "recall  in-context associative recall" in call("tasks", "--quiet").stdout


@pytest.mark.parametrize("name", imir_lens.task_names())
def test_tasks_shows_one(name):
    card = json.loads(call("tasks", name, "--json").stdout)
    task = make_task(name)
    assert {knob["name"]: knob["value"] for knob in card["knobs"]} == task.knobs
    assert all(knob["meaning"] for knob in card["knobs"])
    assert card["reference_circuit"] == list(task.reference_circuit)
    assert card["bayes"]["loss"] < 1e-6 < card["chance"]["loss"]
    shown = call("tasks", name).stdout
    assert card["example"] in shown
    assert all(f"  {knob} " in shown for knob in task.knobs)


def test_tasks_takes_knobs():
    card = json.loads(call("tasks", "recall", "--set", "f_r=0", "--set", "burstiness=0", "--json").stdout)
    assert card["reference_circuit"] == ["readout/via:res/assoc"]
    assert {knob["name"]: knob["value"] for knob in card["knobs"]}["f_r"] == 0
    assert "needs the NAME" in refused(call("tasks", "--set", "f_r=0"))
    assert "did you mean 'hop'" in refused(call("tasks", "hopp"))


SMALL = ("--set", "vocab=20", "--set", "pairs=2", "--set", "length=8", "--model", "d_model=16", "--model", "d_head=8")


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
        (("recall", "--device", "nowhere"), "device 'nowhere'"),
        (("recall", "--resume"), "is not a run"),
    ],
)
def test_a_bad_option_of_train_is_refused(arguments, said, tmp_path):
    run = tmp_path / "run"
    assert said in refused(call("train", *arguments, "--out", run, "--quiet"))
    assert not run.exists()


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


def test_model_settings_are_typed():
    given = ["n_heads=2", "eps=1e-5", "attn_only=True", "normalization_type=none", "act_fn=gelu", "name=a=b"]
    expected = {
        "n_heads": 2,
        "eps": 1e-5,
        "attn_only": True,
        "normalization_type": None,
        "act_fn": "gelu",
        "name": "a=b",
    }
    found = parse_fields(given)
    assert found == expected
    assert [type(value) for value in found.values()] == [type(value) for value in expected.values()]
    for text in ("n_heads", "=2", "n_heads="):
        with pytest.raises(OptionError, match="FIELD=VALUE"):
            parse_fields([text])


def test_the_installed_program_refuses_in_one_line(tmp_path):
    program = Path(sys.executable).with_name("imir-lens")
    line = [program, "analyze", "absent.pt", "--task", "recall", "--out", tmp_path / "report"]
    done = subprocess.run(line, capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "imir-lens: absent.pt: no such file or directory\n"


def test_the_program_survives_a_terminal_that_cannot_show_it_and_a_reader_that_leaves():
    environment = {**os.environ, "PYTHONIOENCODING": "latin-1"}
    program = [sys.executable, "-m", "imir_lens", "tasks", "hop"]
    done = subprocess.run(program, capture_output=True, encoding="latin-1", env=environment)
    assert (done.returncode, done.stderr) == (0, "")
    assert "\\u2192" in done.stdout
    script = f"{sys.executable} -m imir_lens tasks recall --json | true; echo ${{PIPESTATUS[0]}}"
    piped = subprocess.run(["bash", "-c", script], capture_output=True, text=True)
    assert piped.stderr == ""
    assert piped.stdout.strip() in ("0", "1")
