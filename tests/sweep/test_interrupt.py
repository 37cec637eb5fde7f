"""Ctrl-C and SIGKILL while a sweep is under way, from outside."""

import json
import os
import signal
import subprocess
import sys
import time

import pytest
from small_sweeps import HERE, SPEC, calls_by_cell, write_spec

from imir_lens.sweep import read_spec, results, run_sweep

SLOW = '[sweep]\ncell = "sweep_cells:slow_training"'
WAITING = """
[sweep]
cell = "sweep_cells:patient"
[sweep.axes]
x = [1, 2]
wait = [false, true]
"""


def start(spec, out, *options):
    line = [sys.executable, "-m", "imir_lens", "sweep", str(spec), "--out", str(out), "--workers", "1", *options]
    environment = {**os.environ, "PYTHONPATH": HERE}
    return subprocess.Popen(line, stderr=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment)


def wait_until(condition, process):
    deadline = time.monotonic() + 120
    while not condition():
        assert process.poll() is None, process.stderr.read()
        assert time.monotonic() < deadline
        time.sleep(0.05)


def lives(process):
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    with open(f"/proc/{process}/stat") as file:
        return file.read().rsplit(")", 1)[1].split()[0] != "Z"


@pytest.fixture
def waiting(tmp_path):
    """A spec of four cells, of which the second and fourth wait for a file."""
    go = tmp_path / "go"
    text = f'go = "{go}"\n{WAITING}'
    spec = tmp_path / "spec.toml"
    spec.write_text(text)
    return spec, tmp_path / "out", go


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_an_interrupted_sweep_is_resumable_and_its_workers_end(waiting, number):
    spec, out, go = waiting
    process = start(spec, out)
    wait_until(lambda: len(list(out.glob("cells/*/process"))) == 2, process)
    started = {int(file.read_text()) for file in out.glob("cells/*/process")}
    process.send_signal(number)
    _, said = process.communicate(timeout=60)
    if number == signal.SIGINT:
        assert process.returncode == 130
        assert f"what has finished is kept in {out}; the same command with --resume goes on" in said
        assert "Traceback" not in said
        assert [row["status"] for row in results(out)] == ["done", "interrupted", "waiting", "waiting"]
        assert not (out / "sweep.lock").exists()
    deadline = time.monotonic() + 60
    while any(map(lives, started)):
        assert time.monotonic() < deadline
        time.sleep(0.05)

    go.touch()
    cells = read_spec(spec).cells
    summary = run_sweep(cells, out, workers=1, resume=True, beside=HERE)
    assert (summary.done, summary.ran) == (4, 3)
    assert calls_by_cell(cells, out) == [1, 2, 1, 1]
    assert sorted(row["result.x"] for row in results(out)) == [1, 1, 2, 2]


def test_training_saves_its_state_on_ctrl_c_and_goes_on_from_there(tmp_path):
    spec = write_spec(tmp_path, SPEC.replace("steps = 20", "steps = 400").replace("[sweep]", SLOW))
    process = start(spec, tmp_path / "out")
    wait_until(lambda: list(tmp_path.glob("out/cells/*/checkpoints/step_00000050.pt")), process)
    time.sleep(0.5)
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=60)
    assert process.returncode == 130
    (state,) = tmp_path.glob("out/cells/*/state.pt")
    from imir_lens.checkpoints import load_checkpoint

    step = load_checkpoint(state).step
    assert 50 < step < 100  # where no state is saved unless it is asked for
    assert json.loads((state.parent / "run.json").read_text())["training"]["steps"] == 400
