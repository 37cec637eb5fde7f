"""`imir-lens sweep`."""

import csv
import json

import pytest
from calling import call, refused
from small_sweeps import HERE, SPEC, write_spec

from imir_lens.sweep import results

OWN = '{more}\n[sweep]\ncell = "sweep_cells:square"\n[sweep.axes]\nx = [1, 2, 2]\n'


@pytest.fixture
def own(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(HERE)
    return write_spec(tmp_path, OWN.format(more=""))


def test_sweep_trains_and_analyses_and_a_rerun_does_nothing_again(tmp_path):
    out, table = tmp_path / "out", tmp_path / "table.csv"
    spec = write_spec(tmp_path, SPEC.replace("[0, 1]", "[0]"))
    result = call("sweep", spec, "--out", out, "--workers", "1", "--export", table, "--json")
    assert result.exit_code == 0, result.stderr
    told = json.loads(result.stdout)
    assert (told["cells"], told["done"], told["failed"], told["ran"]) == (2, 2, 0, 2)
    assert "cell 2/2 done" in result.stderr
    rows = results(out)
    assert {row["result.training.step"] for row in rows} == {20}
    with table.open(newline="") as file:
        assert [row["hash"] for row in csv.DictReader(file)] == [row["hash"] for row in rows]

    assert "already exists" in refused(call("sweep", spec, "--out", out, "--quiet"))
    again = call("sweep", spec, "--out", out, "--resume", "--quiet")
    assert (again.exit_code, again.stdout, again.stderr) == (0, "", "")
    checked = call("sweep", spec, "--out", out, "--resume")
    assert checked.stdout.startswith("2 cells: 2 done, 0 failed; 0 run now")
    analysed = call("analyze", out / "cells" / rows[0]["hash"], "--contexts", "48", "--out", tmp_path / "report")
    assert analysed.exit_code == 0, analysed.stderr


def test_a_failed_cell_ends_with_1_and_is_tried_again_when_asked(tmp_path, own):
    own.write_text(OWN.format(more="bad = 2"))
    out = tmp_path / "out"
    result = call("sweep", own, "--out", out, "--workers", "1")
    assert result.exit_code == 1
    assert "1 of 3 cells are the same as others" in result.stderr
    assert "1 of 2 cells failed, the first with ValueError: x is 2" in result.stderr
    assert "2 cells: 1 done, 1 failed; 2 run now" in result.stdout
    assert "give --resume" in refused(call("sweep", own, "--out", out, "--retry-failed", "--quiet"))
    told = json.loads(call("sweep", own, "--out", out, "--resume", "--retry-failed", "--json").stdout)
    assert (told["ran"], told["failed"]) == (1, 1)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--executor", "locl"), "did you mean 'local'?"),
        (("--workers", "0"), "workers must be at least 1"),
        (("--scheduler", "tcp://x:1"), "is for executor 'dask'"),
        (("--slurm", "partition"), "expected FIELD=VALUE"),
        (("--slurm", "slurm_partition=cpu"), "is for executor 'slurm'"),
        (("--export", "table.txt"), "ends in .csv or .parquet"),
        (("--device", "nowhere"), "device 'nowhere'"),
    ],
)
def test_a_bad_option_of_sweep_is_refused_and_nothing_is_written(arguments, said, tmp_path):
    spec = write_spec(tmp_path)
    assert said in refused(call("sweep", spec, "--out", tmp_path / "out", *arguments, "--quiet"))
    assert list(tmp_path.iterdir()) == [spec]


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("steps = 20", "stepz = 20", "unknown key 'train.stepz'; did you mean 'train.steps'?"),
        ("[0.01, 0.003]", "[0.01, -1]", "train.learning_rate=-1: learning_rate must be a positive number: found -1.0"),
        ("[sweep]", "[sweep", "is not TOML"),
    ],
)
def test_a_bad_spec_is_refused_and_nothing_is_written(old, new, said, tmp_path):
    spec = write_spec(tmp_path, SPEC.replace(old, new))
    assert said in refused(call("sweep", spec, "--out", tmp_path / "out", "--quiet"))
    assert list(tmp_path.iterdir()) == [spec]
