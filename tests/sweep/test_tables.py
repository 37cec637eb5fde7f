"""Results as rows, as a DataFrame, and as files."""

import csv
import io
import json
import re
import sqlite3
from pathlib import Path

import pytest
from rich.console import Console
from small_sweeps import cells_of, run, squares
from test_run import in_this_process

from imir_lens.errors import OptionError
from imir_lens.sweep import Cell, Finished, frame, results, write_table
from imir_lens.sweep.outcome import Outcome
from imir_lens.sweep.progress import describe, duration, sweep_bar
from imir_lens.sweep.store import COLUMNS


@pytest.fixture
def out(tmp_path):
    cells = [*squares(1, 2, bad=2), *cells_of("square", [{"x": 3, "deep": {"a": [1, "é\n"], "b": None}}])]
    run(cells, tmp_path / "out", executor=in_this_process)
    return tmp_path / "out"


def test_rows_are_flat_and_in_order(out):
    rows = results(out)
    assert [row["x"] for row in rows] == [1, 2, 3]
    assert [row["number"] for row in rows] == [1, 2, 3]
    assert (rows[2]["deep.a"], rows[2]["deep.b"], rows[2]["result.list"]) == ([1, "é\n"], None, [1, 2])
    assert rows[0]["started"].endswith("+00:00")
    assert rows[0]["seconds"] >= 0


def test_the_store_is_plain_sqlite(out):
    with sqlite3.connect(out / "results.sqlite") as connection:
        names = [row[1] for row in connection.execute("PRAGMA table_info(cells)")]
        assert sorted(names) == sorted(COLUMNS)
        assert connection.execute("PRAGMA journal_mode").fetchone() == ("delete",)
        assert connection.execute("SELECT sum(json_extract(result, '$.square')) FROM cells").fetchone() == (10,)
    assert not list(out.glob("results.sqlite-*"))


def test_the_documented_columns_are_those_of_the_store():
    text = (Path(__file__).parents[2] / "docs" / "sweeps.md").read_text(encoding="utf-8")
    table = text[text.index("| Column |") : text.index("It can be read while")]
    first = [row.split("|")[1] for row in table.splitlines() if row]
    named = [name for cell in first for name in re.findall(r"`(\w+)`", cell)]
    assert sorted(named) == sorted(COLUMNS)


def test_a_data_frame_and_the_tables_hold_the_same(out, tmp_path):
    pandas = pytest.importorskip("pandas", reason="pandas is not installed")
    table = frame(out)
    assert table.loc[table["status"] == "done", "result.square"].tolist() == [1, 9]

    text = write_table(out, tmp_path / "table.csv").read_text(encoding="utf-8")
    read = list(csv.DictReader(io.StringIO(text, newline="")))
    assert [row["result.square"] for row in read] == ["1", "", "9"]
    assert json.loads(read[2]["deep.a"]) == [1, "é\n"]

    pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    again = pandas.read_parquet(write_table(out, tmp_path / "table.parquet"))
    assert list(again.columns) == list(read[0])
    assert again["x"].tolist() == [1, 2, 3]
    assert again["error_type"].tolist()[1] == "ValueError"


def test_a_column_of_several_kinds_can_be_written(tmp_path):
    pandas = pytest.importorskip("pandas", reason="pandas is not installed")
    pytest.importorskip("pyarrow", reason="pyarrow is not installed")
    cells = cells_of("square", [{"x": 1, "y": 1}, {"x": 1, "y": "one"}, {"x": 1, "y": True}, {"x": 1}])
    run(cells, tmp_path / "out", executor=in_this_process)
    table = pandas.read_parquet(write_table(tmp_path / "out", tmp_path / "table.parquet"))
    assert table["y"].tolist()[:3] == ["1", "one", "True"]
    assert table["y"].isna().tolist() == [False, False, False, True]


def test_what_is_no_sweep_or_no_table_is_refused(out, tmp_path):
    with pytest.raises(OptionError, match=r"is not a sweep: expected results\.sqlite in it"):
        results(tmp_path)
    with pytest.raises(OptionError, match=r"ends in \.csv or \.parquet"):
        write_table(out, tmp_path / "table.txt")
    with sqlite3.connect(out / "results.sqlite") as connection:
        connection.execute("UPDATE sweep SET format = 99")
    with pytest.raises(OptionError, match="format 99: expected 1"):
        results(out)
    with pytest.raises(OptionError, match="format 99: expected 1"):
        run(squares(1), out, resume=True)


def finished(**changes):
    outcome = Outcome("0" * 64, "done", "{}", seconds=12.0)
    given = {"cell": Cell({}, "m:f", "x=1"), "outcome": outcome, "count": 3, "total": 12, "failed": 0, "left": 190.0}
    return Finished(**{**given, **changes})


def test_progress_says_how_far_it_is_and_how_long_it_takes():
    assert describe(finished()) == "cell 3/12 done in 12 s: x=1; about 3 min 10 s left"
    bad = Outcome("0" * 64, "failed", error=("ValueError", "no\nway", "…"))
    line = describe(finished(outcome=bad, count=12, failed=1, left=0.0))
    assert line == "cell 12/12 failed (ValueError: no way): x=1; nothing left"
    assert [duration(s) for s in (0.26, 59.7, 61, 3600, 7300)] == ["0.3 s", "1 min", "1 min 1 s", "1 h", "2 h 1 min"]

    screen = io.StringIO()
    with sweep_bar(console=Console(file=screen, force_terminal=True, width=100)) as show:
        show(finished(failed=2))
    assert "3/12" in screen.getvalue()
    assert "about 3 min 10 s left  2 failed" in screen.getvalue()
