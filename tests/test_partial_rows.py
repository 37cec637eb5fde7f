"""An interrupted benchmark goes on where it stopped."""

from pathlib import Path

from benchmarks.partial import PartialRows


def test_rows_are_there_again(tmp_path: Path) -> None:
    path = tmp_path / "results" / "long.partial.jsonl"
    PartialRows(path).add({"model": 1, "seed": 0}, {"f1": 0.5})
    again = PartialRows(path)
    assert again.get({"seed": 0, "model": 1}) == {"f1": 0.5}
    assert again.get({"seed": 1, "model": 1}) is None
    again.done()
    assert not path.exists()


def test_a_line_cut_by_a_kill_is_measured_again(tmp_path: Path) -> None:
    path = tmp_path / "long.partial.jsonl"
    kept = PartialRows(path)
    kept.add({"model": 1}, {"f1": 0.5})
    kept.add({"model": 2}, {"f1": 0.75})
    path.write_text(path.read_text()[:-5])
    again = PartialRows(path)
    assert again.get({"model": 1}) == {"f1": 0.5}
    assert again.get({"model": 2}) is None
    again.add({"model": 2}, {"f1": 1.0})
    assert PartialRows(path).get({"model": 2}) == {"f1": 1.0}


def test_without_a_file_rows_live_in_memory() -> None:
    kept = PartialRows()
    assert kept.add({"model": 1}, {"f1": 1.0}) == {"f1": 1.0}
    assert kept.get({"model": 1}) == {"f1": 1.0}
    kept.done()
