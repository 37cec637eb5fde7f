"""Rows of a benchmark that takes long, kept as they come: an interrupted run goes on where it stopped."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from benchmarks.measure import RESULTS

Row = dict[str, Any]


class PartialRows:
    """A file of JSON lines `[key, row]`; without a path, rows are kept in memory only.

    Delete the file to measure everything anew, as after a change of what is measured.
    """

    def __init__(self, path: Path | None = None) -> None:
        self.path = path
        self._rows: dict[str, Row] = {}
        if path is not None and path.exists():
            text = path.read_text()
            # A kill in the middle of a write leaves a line without its end: it is measured again.
            whole = text[: text.rfind("\n") + 1]
            if whole != text:
                path.write_text(whole)
            self._rows = dict(json.loads(line) for line in whole.splitlines())

    @classmethod
    def of(cls, name: str) -> "PartialRows":
        """Return those of a benchmark, beside its results."""
        return cls(RESULTS / f"{name}.partial.jsonl")

    def get(self, key: Mapping[str, Any]) -> Row | None:
        """Return the row of a key, if it was measured."""
        return self._rows.get(_text(key))

    def add(self, key: Mapping[str, Any], row: Row) -> Row:
        """Keep a row, and return it."""
        self._rows[_text(key)] = row
        if self.path is not None:
            self.path.parent.mkdir(exist_ok=True)
            with self.path.open("a") as file:
                file.write(json.dumps([_text(key), row]) + "\n")
        return row

    def done(self) -> None:
        """Forget the file: all results are stored elsewhere."""
        if self.path is not None:
            self.path.unlink(missing_ok=True)


def _text(key: Mapping[str, Any]) -> str:
    return json.dumps(key, sort_keys=True)
