"""The same sweep on other executors."""

import json
import os
from importlib.util import find_spec
from pathlib import Path

import pytest
from small_sweeps import HERE, calls_by_cell, cells_of, found, run, squares, write_spec

from imir_lens.errors import OptionError
from imir_lens.sweep import Cell, read_spec, results, run_sweep

needs_dask = pytest.mark.skipif(find_spec("distributed") is None, reason="dask and distributed are not installed")
needs_submitit = pytest.mark.skipif(find_spec("submitit") is None, reason="submitit is not installed")


@pytest.fixture(scope="module")
def local(tmp_path_factory):
    """A sweep of training and analysis, on two processes."""
    folder = tmp_path_factory.mktemp("local")
    cells = read_spec(write_spec(folder)).cells
    assert run_sweep(cells, folder / "out", workers=2).done == 4
    return folder / "out"


def test_a_sweep_on_local_processes_has_the_results_of_training_by_itself(local, tmp_path):
    from imir_lens.sweep.experiment import run_cell

    row = results(local)[2]
    cell = read_spec(write_spec(tmp_path)).cells[2]
    assert (row["hash"], row["train.seed"], row["train.learning_rate"]) == (cell.hash, 1, 0.01)
    alone = run_cell(cell.settings, tmp_path / "run")
    assert row["result.training.loss"] == alone["training"]["loss"]
    assert row["result.analysis.model.loss"] == alone["analysis"]["model"]["loss"]
    assert (local / "cells" / cell.hash / "checkpoints" / "step_00000020.pt").is_file()
    assert len({other["result.training.loss"] for other in results(local)}) == 4


@needs_dask
def test_a_dask_cluster_of_two_workers_gives_the_same_results(local, tmp_path):
    cells = read_spec(write_spec(tmp_path)).cells
    assert run_sweep(cells, tmp_path / "out", executor="dask", workers=2).done == 4
    assert found(tmp_path / "out") == found(local)
    workers = {row["worker"] for row in results(tmp_path / "out")}
    assert len(workers) == 2
    assert not workers & {row["worker"] for row in results(local)}


@needs_dask
def test_a_dask_worker_that_is_killed_loses_nothing(tmp_path):
    settings = [{"deaths": 1}, {"deaths": 0}, {"deaths": 99}]
    cells, out = cells_of("deadly", settings), tmp_path / "out"
    summary = run(cells, out, executor="dask", workers=1)
    assert (summary.done, summary.failed) == (2, 1)
    assert calls_by_cell(cells, out) == [2, 1, 3]
    assert results(out)[2]["error_type"] == "KilledWorker"
    assert run(cells, out, resume=True).ran == 0


@needs_dask
def test_a_scheduler_that_is_there_is_used_and_one_that_is_not_is_named(tmp_path):
    from distributed import LocalCluster

    with LocalCluster(n_workers=1, threads_per_worker=1, processes=False, dashboard_address=None) as cluster:
        address = cluster.scheduler_address
        summary = run(squares(1, 2), tmp_path / "out", executor="dask", scheduler=address)
    assert summary.done == 2
    with pytest.raises(OptionError, match="no Dask scheduler answers at no-such-protocol"):
        run(squares(1), tmp_path / "other", executor="dask", scheduler="no-such-protocol://x:1")


@needs_submitit
def test_jobs_of_submitit_give_the_same_results(local, tmp_path):
    cells = read_spec(write_spec(tmp_path)).cells[:1]
    summary = run_sweep(cells, tmp_path / "out", executor="slurm", slurm={"cluster": "local"}, workers=1)
    assert summary.done == 1
    assert found(tmp_path / "out") == found(local)[:1]
    assert list((tmp_path / "out" / "slurm").glob("*/*.out"))


@needs_submitit
def test_a_job_that_is_killed_is_submitted_again(tmp_path, monkeypatch):
    monkeypatch.setattr("submitit.core.core.Job._results_timeout_s", 1)  # it waits so long for files on slow drives
    cells, out = cells_of("deadly", [{"deaths": 1}]), tmp_path / "out"
    assert run(cells, out, executor="slurm", slurm={"cluster": "local"}).done == 1
    assert calls_by_cell(cells, out) == [2]


@needs_submitit
def test_jobs_are_submitted_as_one_array_of_which_so_many_run_as_there_may_be_workers(tmp_path, monkeypatch):
    """With programs under the names of SLURM's that run the jobs here."""
    monkeypatch.setenv("PATH", f"{Path(HERE) / 'pretended_slurm'}{os.pathsep}{os.environ['PATH']}")
    out = tmp_path / "out"
    summary = run(squares(1, 2, 3, bad=2), out, executor="slurm", slurm={"slurm_partition": "cpu", "timeout_min": 7})
    assert (summary.done, summary.failed) == (2, 1)
    assert [row["error_type"] for row in results(out)] == [None, "ValueError", None]
    (script,) = (out / "slurm").glob("*/*_submission.sh")
    asked = set(script.read_text().splitlines())
    assert {"#SBATCH --array=0-2%2", "#SBATCH --partition=cpu", "#SBATCH --time=7"} <= asked
    assert {"#SBATCH --cpus-per-task=1", "export OMP_NUM_THREADS=1"} <= asked


@needs_submitit
@pytest.mark.parametrize(
    ("parameters", "said"),
    [({}, "srun"), ({"cluster": "local", "timeout_mn": 1}, "timeout_mn"), ({"cluster": "x"}, "x")],
)
def test_a_cluster_that_cannot_be_used_is_refused_in_a_line(parameters, said, tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(OptionError, match="SLURM cannot be used") as error:
        run(squares(1), tmp_path / "out", executor="slurm", slurm=parameters)
    assert said in str(error.value)
    assert len(str(error.value).splitlines()) == 1


def test_a_training_that_is_killed_in_the_middle_ends_in_the_same_results(local, tmp_path):
    settings = json.loads(read_spec(write_spec(tmp_path)).cells[0].canonical)
    cells = [Cell(settings, "sweep_cells:killed_while_training")]
    assert run(cells, tmp_path / "out", workers=1).done == 1
    assert calls_by_cell(cells, tmp_path / "out") == [2]
    identity = ("hash", "cell", "label")
    (row,), expected = found(tmp_path / "out"), found(local)[0]
    assert {k: v for k, v in row.items() if k not in identity} == {
        k: v for k, v in expected.items() if k not in identity
    }
