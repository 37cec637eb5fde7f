"""The command line: one line for every bad input, and what becomes of errors."""

import os
import pickle
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from calling import DATA, RECALL, call, contents, refused

import imir_lens
from imir_lens.cli import cli
from imir_lens.errors import CoordinateError
from imir_lens.tasks import make_task


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
        (("--task", "recall", "--model", "n_haeds=2"), "n_haeds=2, a field that is not known here"),
        (("--task", "recall", "--model", "n_haeds=2"), "did you mean 'n_heads'?"),
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


def test_a_model_that_is_not_covered_is_refused(tmp_path):
    path = DATA / "variants" / "v39_dvout.pt"
    line = refused(call("analyze", path, "--task", "recall", "--out", tmp_path / "report", "--quiet"))
    assert f"{path}: the analysis does not support an output vocabulary of another size" in line


def test_an_unknown_coordinate_is_refused(generator):
    model, task = imir_lens.open_model(RECALL), make_task("recall")
    projector = imir_lens.ImirProjector(task.relations, task.n_positions).fit(model.weights)
    batch = task.sample(2, generator)
    for identifier in ("L0H7/score/q:res/k:res/same", "L1H0/scores/same", "readout/via:L1H0/some"):
        with pytest.raises(CoordinateError) as caught:
            imir_lens.ablate(model, projector.coordinates_, [identifier], batch)
        assert len(str(caught.value).splitlines()) == 1


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
    assert "file' is a file" in refused(call(*command, "--out", file / "below" / "it"))
    assert "File name too long" in refused(call(*command, "--out", tmp_path / ("long" * 100)))
    link = tmp_path / "link"
    link.symlink_to(tmp_path / "nothing")
    assert "link' is a link to nothing" in refused(call(*command, "--out", link))
    assert "is a link to nothing" in refused(call(*command, "--out", link / "below"))
    if Path("/proc").is_dir():
        assert "cannot write to '/proc/" in refused(call(*command, "--out", "/proc/below/it"))
    assert contents(tmp_path) == before
    assert sorted(os.listdir(tmp_path)) == ["file", "full", "link"]


@pytest.mark.parametrize(
    ("arguments", "name"),
    [
        (("analyze", RECALL, "--task", "recall", "--out", ""), "--out"),
        (("analyze", "", "--task", "recall", "--out", "report"), "CHECKPOINT"),
        (("analyze", RECALL, "--task", "recall", "--config", "", "--out", "report"), "--config"),
        (("train", "recall", "--out", ""), "--out"),
        (("demo", "--out", ""), "--out"),
        (("report", ""), "DIR"),
    ],
)
def test_an_empty_path_is_not_the_current_directory(arguments, name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    line = refused(call(*arguments))
    assert f"'{name}'" in line
    assert "expected a path, found an empty text" in line
    assert os.listdir(tmp_path) == []


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_directory_without_write_permission_is_refused(tmp_path):
    tmp_path.chmod(0o500)
    assert "Permission denied" in refused(call("demo", "--out", tmp_path / "report"))


def test_debug_shows_where_an_error_was_raised():
    result = call("analyze", "absent.pt", "--task", "recall", "--out", "report", "--debug")
    assert result.exit_code == 2
    assert "Traceback" in result.stderr
    assert result.stderr.splitlines()[-1] == "imir-lens: absent.pt: no such file or directory"


def test_a_mistake_of_ours_is_not_dressed_up_as_one_of_the_user(monkeypatch, tmp_path):
    def fail(directory):
        raise ZeroDivisionError("ours")

    monkeypatch.setattr("imir_lens.report.document.Report.rebuild", fail)
    result = call("report", tmp_path)
    assert result.exit_code == 1
    assert isinstance(result.exception, ZeroDivisionError)


def test_ctrl_c_ends_with_130(monkeypatch, tmp_path):
    def interrupt(directory):
        raise KeyboardInterrupt

    monkeypatch.setattr("imir_lens.report.document.Report.rebuild", interrupt)
    result = call("report", tmp_path)
    assert (result.exit_code, result.stderr.strip()) == (130, "imir-lens: interrupted")


def test_an_unknown_command_names_the_nearest():
    assert refused(call("analyse")) == "imir-lens: no command 'analyse'; did you mean 'analyze'?"
    assert "choose one of: analyze, compare, completion, convert, demo, heads, report, sweep, tasks, train" in refused(
        call("zzz")
    )
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
