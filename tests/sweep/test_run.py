"""Sweeps on local processes: what is run, how often, and what becomes of errors and deaths."""

import json
import os
import socket
import sqlite3
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from multiprocessing import get_context

import pytest
from small_sweeps import HERE, calls_by_cell, cells_of, found, run, squares
from sweep_cells import square

from imir_lens.errors import OptionError
from imir_lens.sweep import make_cells, results, run_sweep
from imir_lens.sweep.lock import LOCK


def in_this_process():
    return ThreadPoolExecutor(1)


def test_every_cell_is_run_once_and_a_rerun_does_none_again(tmp_path):
    cells, out = squares(1, 2, 3), tmp_path / "out"
    seen = []
    summary = run(cells, out, progress=seen.append)
    assert (summary.cells, summary.done, summary.failed, summary.ran) == (3, 3, 0, 3)
    assert sorted(row["result.square"] for row in results(out)) == [1, 4, 9]
    assert [row["result.array"] for row in results(out)] == [[0, 1]] * 3
    processes = {row["result.process"] for row in results(out)}
    assert os.getpid() not in processes
    assert 1 <= len(processes) <= 2
    assert [(step.count, step.total) for step in seen] == [(1, 3), (2, 3), (3, 3)]
    assert seen[-1].left == 0 < seen[0].left

    with pytest.raises(OptionError, match="already exists"):
        run(cells, out)
    again = run([*cells, *squares(4)], out, resume=True)
    assert (again.cells, again.done, again.ran) == (4, 4, 1)
    assert calls_by_cell([*cells, *squares(4)], out) == [1, 1, 1, 1]


def test_a_failed_cell_keeps_its_error_and_stops_no_other(tmp_path):
    cells, out = squares(1, 2, 3, bad=2), tmp_path / "out"
    summary = run(cells, out)
    assert (summary.done, summary.failed) == (2, 1)
    assert summary.first_error == "ValueError: x is 2"
    good, bad, other = results(out)
    assert (bad["status"], bad["error_type"], bad["error_message"]) == ("failed", "ValueError", "x is\n2")
    assert "sweep_cells.py" in bad["error_traceback"]
    assert "result.square" not in bad
    assert (good["status"], good["error_type"], other["status"]) == ("done", None, "done")

    assert run(cells, out, resume=True).ran == 0
    assert calls_by_cell(cells, out) == [1, 1, 1]
    assert run(cells, out, resume=True, retry_failed=True).ran == 1
    assert calls_by_cell(cells, out) == [1, 2, 1]


def test_a_result_that_is_no_json_is_the_error_of_its_cell(tmp_path):
    run(cells_of("unprintable", [{}]), tmp_path / "out", executor=in_this_process)
    assert "a cell returned a object" in results(tmp_path / "out")[0]["error_message"]


def test_equal_settings_are_one_cell_whatever_their_order(tmp_path):
    one, other = ({"x": 1, "y": {"a": 2, "b": (3,)}}, {"y": {"b": [3], "a": 2}, "x": 1})
    assert len(make_cells([one, other, one], square)) == 1
    assert len(make_cells([one, {**other, "x": 2}], square)) == 2
    a, b = (make_cells([one], f"sweep_cells:{name}")[0].hash for name in ("square", "deadly"))
    assert a != b
    assert run([*squares(1, 1), *squares(1)], tmp_path / "out", executor=in_this_process).cells == 1


def test_a_hash_is_what_it_was():
    # From sha256sum; another hash for the same settings would do finished cells again.
    expected = "9f4b0cec1fdd"
    assert squares(1)[0].canonical == '{"x":1}'
    assert squares(1)[0].hash.startswith(expected)


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"a": {"b": float("nan")}}, "'a.b' is nan"),
        ({"a": object()}, "'a' is a object"),
        ({"a": {1: 2}}, "expected text as name"),
    ],
)
def test_settings_without_a_canonical_form_are_refused(settings, said):
    with pytest.raises(OptionError, match=said):
        make_cells([settings], square)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("square", "expected module:function"),
        ("no_such_module:square", "cannot be imported"),
        ("sweep_cells:sqare", "has no function 'sqare'"),
    ],
)
def test_a_cell_function_that_workers_could_not_import_is_refused(name, said, tmp_path):
    with pytest.raises(OptionError, match=said):
        run(make_cells([{"x": 1}], name), tmp_path / "out")
    assert not (tmp_path / "out").exists()
    with pytest.raises(OptionError, match="expected module:function"):
        make_cells([{}], lambda settings, folder: {})


def test_a_killed_worker_loses_nothing_and_disturbs_no_other_cell(tmp_path):
    cells, out = cells_of("deadly", [{"deaths": 0, "lasts": 1.0}, {"deaths": 2}, {"deaths": 0}]), tmp_path / "out"
    summary = run(cells, out)
    assert (summary.done, summary.failed) == (3, 0)
    assert calls_by_cell(cells, out) == [1, 3, 1]


def test_a_cell_that_kills_its_worker_three_times_is_failed(tmp_path):
    cells, out = cells_of("deadly", [{"deaths": 9}, {"deaths": 0}]), tmp_path / "out"
    summary = run(cells, out, workers=1)
    assert (summary.done, summary.failed) == (1, 1)
    assert calls_by_cell(cells, out) == [3, 1]
    assert "died 3 times" in results(out)[0]["error_message"]


def test_in_an_executor_that_breaks_as_a_whole_the_cell_to_blame_is_found(tmp_path):
    settings = [{"deaths": 9, "after": 0.3}, {"deaths": 0, "lasts": 1.0}, {"deaths": 0}]
    cells, out = cells_of("deadly", settings), tmp_path / "out"
    summary = run(cells, out, executor=lambda: ProcessPoolExecutor(2, mp_context=get_context("spawn")))
    assert (summary.done, summary.failed) == (2, 1)
    assert [row["status"] for row in results(out)] == ["failed", "done", "done"]


def test_an_executor_that_cannot_be_made_anew_ends_the_sweep_in_words(tmp_path):
    cells, out = cells_of("deadly", [{"deaths": 1}, {"deaths": 0}]), tmp_path / "out"
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as executor, pytest.raises(OptionError, match="again"):
        run(cells, out, executor=executor, workers=1)
    assert run(cells, out, resume=True, executor=in_this_process).done == 2


def test_results_that_a_killed_sweep_never_saw_are_taken_from_the_folders(tmp_path):
    cells, out = squares(1, 2, 3, bad=2), tmp_path / "out"
    run(cells, out, executor=in_this_process)
    before = found(out)
    with sqlite3.connect(out / "results.sqlite") as connection:
        connection.execute("UPDATE cells SET status = 'running', result = NULL, error_type = NULL")
    (out / "cells" / cells[2].hash / "outcome.json").write_text('{"hash": ')  # cut short
    assert run(cells, out, resume=True, executor=in_this_process).ran == 1
    assert calls_by_cell(cells, out) == [1, 1, 2]
    assert found(out) == before


def test_two_sweeps_do_not_share_a_directory(tmp_path):
    cells, out = squares(1), tmp_path / "out"
    messages = []

    def second(finished):
        with pytest.raises(OptionError) as error:
            run(cells, out, resume=True, executor=in_this_process)
        messages.append(str(error.value))

    run(cells, out, executor=in_this_process, progress=second)
    assert f"in use by process {os.getpid()}" in messages[0]
    assert not (out / LOCK).exists()
    assert run(cells, out, resume=True).ran == 0


def test_the_lock_of_a_dead_process_is_taken_away_and_that_of_another_machine_is_not(tmp_path):
    cells, out = squares(1), tmp_path / "out"
    run(cells, out, executor=in_this_process)
    dead = os.fork()
    if dead == 0:
        os._exit(0)
    os.waitpid(dead, 0)
    owner = {"host": socket.gethostname(), "process": dead, "since": "noon"}
    (out / LOCK).write_text(json.dumps(owner))
    assert run(cells, out, resume=True).cells == 1
    for text, said in ((json.dumps({**owner, "host": "elsewhere"}), "elsewhere since noon"), ("?", "not the lock")):
        (out / LOCK).write_text(text)
        with pytest.raises(OptionError, match=said):
            run(cells, out, resume=True)
        assert (out / LOCK).read_text() == text


def test_other_places_than_a_sweep_are_left_alone(tmp_path):
    (tmp_path / "file").write_text("mine")
    with pytest.raises(OptionError, match="is not a sweep"):
        run(squares(1), tmp_path, resume=True)
    with pytest.raises(OptionError, match="cannot be used"):
        run(squares(1), tmp_path / "file")
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "results.sqlite").write_text("no database, but long enough to be looked at as one" * 9)
    with pytest.raises(OptionError, match="store of a sweep"):
        run(squares(1), tmp_path / "other", resume=True)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"executor": "locl"}, "did you mean 'local'?"),
        ({"workers": 0}, "workers must be at least 1"),
        ({"scheduler": "tcp://x:1"}, "option 'scheduler' is for executor 'dask'"),
        ({"slurm": {"a": 1}}, "option 'slurm' is for executor 'slurm'"),
    ],
)
def test_options_that_do_not_fit_are_refused_before_anything_is_made(options, said, tmp_path):
    with pytest.raises(OptionError) as error:
        run_sweep(squares(1), tmp_path / "out", beside=HERE, **options)
    assert said in str(error.value)
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(("name", "package"), [("dask", "distributed"), ("slurm", "submitit")])
def test_a_missing_extra_is_named_with_its_command(name, package, tmp_path, monkeypatch):
    monkeypatch.setattr("imir_lens.sweep.pools.find_spec", lambda module: None)
    with pytest.raises(OptionError, match=rf"pip install 'imir-lens\[{name}\]'"):
        run(squares(1), tmp_path / "out", executor=name)
