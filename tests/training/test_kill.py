"""Killed for good, at any moment, training resumes to the very same weights."""

import os
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest
import torch
from small_runs import same_weights, small_run, weights

from imir_lens.checkpoints import load_checkpoint

HERE = Path(__file__).parent
SLOW = """
import sys, time
sys.path.insert(0, {here!r})
import torch
torch.set_num_threads(1)
from small_runs import small_run
small_run(__import__("pathlib").Path({run!r}), progress=lambda step, row: time.sleep(0.02))
"""


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    run = tmp_path_factory.mktemp("whole") / "run"
    small_run(run)
    return run


def exit_signal_of(work):
    """Do the work in a forked process; return the signal that ended it."""
    child = os.fork()
    if child == 0:
        try:
            work()
        finally:
            os._exit(0)  # never back into the test runner
    return os.WTERMSIG(os.waitpid(child, 0)[1])


class HalfFile:
    """A file that writes half of what it is given and then ends the process by SIGKILL, which cannot be caught."""

    def __init__(self, file):
        self.file = file

    def __enter__(self):
        return self

    def __exit__(self, *error):
        self.file.close()

    def write(self, data):
        self.file.write(data[: len(data) // 2])
        self.file.flush()
        os.kill(os.getpid(), signal.SIGKILL)


def small_run_killed_while_writing(run, name, occurrence):
    """Train, and die in the middle of writing the file `name` for the `occurrence`-th time. Runs in a child process."""
    mkstemp, fdopen = tempfile.mkstemp, os.fdopen
    seen = 0

    def watched(*args, prefix, **kwargs):
        nonlocal seen
        seen += prefix == f".{name}."
        if seen == occurrence:
            os.fdopen = lambda *a: HalfFile(fdopen(*a))
        return mkstemp(*args, prefix=prefix, **kwargs)

    tempfile.mkstemp = watched
    small_run(run)


def assert_nothing_is_half_written(run):
    files = [*run.glob("checkpoints/*.pt"), *run.glob("state.pt")]
    assert files
    for file in files:
        assert torch.load(file, weights_only=True)["state_dict"]


def assert_resumes_like(run, whole):
    resumed = small_run(run, resume=True)
    assert same_weights(weights(run), weights(whole))
    assert same_weights(resumed.model.state_dict(), weights(whole))
    assert (run / "metrics.jsonl").read_bytes() == (whole / "metrics.jsonl").read_bytes()
    assert sorted(p.name for p in run.rglob("*")) == sorted(p.name for p in whole.rglob("*"))  # no litter


def test_a_run_killed_between_checkpoints_resumes_to_the_same_weights(tmp_path, whole):
    run = tmp_path / "run"
    process = subprocess.Popen([sys.executable, "-c", SLOW.format(here=str(HERE), run=str(run))])
    deadline = time.monotonic() + 120
    while not (run / "checkpoints" / "step_00000010.pt").exists():
        assert process.poll() is None, "ended by itself"
        assert time.monotonic() < deadline
        time.sleep(0.01)
    time.sleep(0.1)
    os.kill(process.pid, signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    assert not (run / "checkpoints" / "step_00000030.pt").exists()
    assert_nothing_is_half_written(run)
    assert load_checkpoint(run / "state.pt").step in (10, 20)
    assert_resumes_like(run, whole)


@pytest.mark.parametrize(
    ("name", "occurrence", "resumed_at"),
    [("step_00000020.pt", 1, 10), ("state.pt", 6, 10), ("step_00000030.pt", 1, 20)],
)
def test_a_run_killed_while_writing_leaves_no_half_written_file(tmp_path, whole, name, occurrence, resumed_at):
    run = tmp_path / "run"
    assert exit_signal_of(lambda: small_run_killed_while_writing(run, name, occurrence)) == signal.SIGKILL
    assert [p for p in run.rglob(".*.tmp") if p.stat().st_size > 0]  # the half that was written has another name
    assert_nothing_is_half_written(run)
    if name != "state.pt":
        assert not (run / "checkpoints" / name).exists()
    assert load_checkpoint(run / "state.pt").step == resumed_at
    assert_resumes_like(run, whole)


def test_a_line_of_metrics_that_was_cut_short_is_dropped(tmp_path, whole):
    run = tmp_path / "run"

    def stop(step, row):
        if step == 14:
            raise RuntimeError("power cut")

    with pytest.raises(RuntimeError):
        small_run(run, progress=stop)
    with (run / "metrics.jsonl").open("a") as file:
        file.write('{"step": 12, "lo')
    assert_resumes_like(run, whole)


def test_a_run_killed_before_its_first_state_starts_anew(tmp_path, whole):
    run = tmp_path / "run"
    small_run(run, steps=1)
    (run / "state.pt").unlink()
    assert_resumes_like(run, whole)
