"""Where the results of a sweep are kept: one SQLite file, written by one process."""

import json
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from imir_lens.errors import OptionError
from imir_lens.sweep.cells import FORMAT, Cell
from imir_lens.sweep.outcome import Outcome

STORE = "results.sqlite"
COLUMNS = (
    "number",
    "hash",
    "cell",
    "label",
    "settings",
    "status",
    "result",
    "error_type",
    "error_message",
    "error_traceback",
    "started",
    "seconds",
    "worker",
)
_TABLES = """
CREATE TABLE IF NOT EXISTS sweep (format INTEGER NOT NULL);
CREATE TABLE IF NOT EXISTS cells (
    number INTEGER PRIMARY KEY AUTOINCREMENT,
    hash TEXT NOT NULL UNIQUE,
    cell TEXT NOT NULL,
    label TEXT NOT NULL,
    settings TEXT NOT NULL,
    status TEXT NOT NULL CHECK (status IN ('waiting', 'running', 'interrupted', 'done', 'failed')),
    result TEXT,
    error_type TEXT,
    error_message TEXT,
    error_traceback TEXT,
    started TEXT,
    seconds REAL,
    worker TEXT
);
"""


class Store:
    """The results in a directory.

    Every change is one transaction with a rollback journal, which works on network drives where a write-ahead log does
    not: a kill at any moment leaves the state before it or after it.

    Args:
        directory: where the file is, or will be.

    Raises:
        OptionError: when it cannot be opened, or is not the store of a sweep.
    """

    def __init__(self, directory: Path) -> None:
        self.path = directory / STORE
        with self._errors():
            self._connection = sqlite3.connect(self.path, timeout=60, isolation_level=None)
            self._connection.execute("PRAGMA journal_mode = DELETE")
            with self._transaction():
                for statement in filter(str.strip, _TABLES.split(";")):
                    self._connection.execute(statement)
                if self._connection.execute("SELECT count(*) FROM sweep").fetchone()[0] == 0:
                    self._connection.execute("INSERT INTO sweep VALUES (?)", (FORMAT,))
        require_format(self._connection, self.path)

    def add(self, cells: Iterable[Cell]) -> None:
        """Add the cells that are not there yet, as waiting."""
        rows = [(cell.hash, cell.function, cell.label, cell.canonical) for cell in cells]
        with self._errors(), self._transaction():
            self._connection.executemany(
                "INSERT OR IGNORE INTO cells (hash, cell, label, settings, status) VALUES (?, ?, ?, ?, 'waiting')", rows
            )

    def statuses(self) -> dict[str, str]:
        """Return the status of every cell, by hash."""
        with self._errors():
            return dict(self._connection.execute("SELECT hash, status FROM cells"))

    def first_error(self, cells: Iterable[Cell]) -> str | None:
        """Return type and message of the first of some cells that failed, on one line; None when none did."""
        wanted = {cell.hash for cell in cells}
        with self._errors():
            rows = self._connection.execute(
                "SELECT hash, error_type, error_message FROM cells WHERE status = 'failed' ORDER BY number"
            ).fetchall()
        found = next(((kind, message) for hash_, kind, message in rows if hash_ in wanted), None)
        return None if found is None else " ".join(f"{found[0]}: {found[1]}".split())

    def interrupt(self) -> None:
        """Mark the cells that are running as interrupted."""
        with self._errors():
            self._connection.execute("UPDATE cells SET status = 'interrupted' WHERE status = 'running'")

    def update(self, begun: Iterable[Cell], outcomes: Iterable[Outcome]) -> None:
        """Mark cells as running, and then keep what came out of cells; all of it or nothing."""
        rows = [(o.status, o.result, *o.error, o.started, o.seconds, o.worker, o.hash) for o in outcomes]
        with self._errors(), self._transaction():
            self._connection.executemany(
                "UPDATE cells SET status = 'running' WHERE hash = ?", [(cell.hash,) for cell in begun]
            )
            self._connection.executemany(
                "UPDATE cells SET status = ?, result = ?, error_type = ?, error_message = ?, error_traceback = ?, "
                "started = ?, seconds = ?, worker = ? WHERE hash = ?",
                rows,
            )

    def close(self) -> None:
        """Close the file."""
        self._connection.close()

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        self._connection.execute("BEGIN IMMEDIATE")
        try:
            yield
        except BaseException:
            self._connection.execute("ROLLBACK")
            raise
        self._connection.execute("COMMIT")

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            raise OptionError(f"{self.path}: cannot be used as the store of a sweep: {error}") from error


def require_format(connection: sqlite3.Connection, path: Path) -> None:
    """Check that a store is of this version.

    Raises:
        OptionError: when it is of another.
    """
    found = connection.execute("SELECT format FROM sweep").fetchone()
    if found != (FORMAT,):
        raise OptionError(
            f"{path}: is a store of format {found and found[0]}: expected {FORMAT}; use another directory"
        )


def read_rows(directory: Path) -> list[dict[str, Any]]:
    """Return the rows of a store in the order of their numbers; settings and results as JSON values.

    A sweep may be writing at the same time.

    Raises:
        OptionError: when there is no store.
    """
    path = directory / STORE
    if not path.is_file():
        raise OptionError(f"{directory} is not a sweep: expected {STORE} in it")
    connection = None
    try:
        connection = sqlite3.connect(path.resolve().as_uri() + "?mode=ro", uri=True, timeout=60)
        require_format(connection, path)
        rows = connection.execute(f"SELECT {', '.join(COLUMNS)} FROM cells ORDER BY number").fetchall()
    except sqlite3.Error as error:
        raise OptionError(f"{path}: cannot be read as the store of a sweep: {error}") from error
    finally:
        if connection is not None:
            connection.close()
    found = [dict(zip(COLUMNS, row, strict=True)) for row in rows]
    for row in found:
        row["settings"] = json.loads(row["settings"])
        row["result"] = None if row["result"] is None else json.loads(row["result"])
    return found
