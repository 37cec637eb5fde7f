"""Running one cell, wherever that is: its result or its error, kept in its folder and returned."""

import json
import os
import socket
import time
import traceback
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from imir_lens.sweep.cells import load_function

FILE = "outcome.json"
_FIRST, _MOST = 2_000, 20_000  # of a traceback that is too long: characters kept of its beginning, and in all


@dataclass(frozen=True)
class Outcome:
    """What came out of a cell.

    Attributes:
        hash: of the cell.
        status: `done` or `failed`.
        result: as JSON text; None when it failed.
        error: type, message and traceback; three times None when it is done.
        started: when, in UTC, as ISO 8601 has it; None when that is not known.
        seconds: how long it took.
        worker: host and process.
    """

    hash: str
    status: str
    result: str | None = None
    error: tuple[str | None, str | None, str | None] = (None, None, None)
    started: str | None = None
    seconds: float | None = None
    worker: str | None = None


def run_one(function: str, settings: Mapping[str, Any], hash_: str, folder: str, beside: str | None) -> Outcome:
    """Run a cell; this is what executors are given.

    Whatever the cell raises becomes its outcome, except KeyboardInterrupt. The outcome is also kept in the cell's
    folder, where the next sweep finds it should this one not live to see it.

    Args:
        function: `module:function`.
        settings: of the cell.
        hash_: of the cell.
        folder: the cell's own; made if missing.
        beside: a folder to look in for the module.
    """
    place, worker = Path(folder), f"{socket.gethostname()}:{os.getpid()}"
    started, clock = datetime.now(timezone.utc).isoformat(timespec="seconds"), time.monotonic()
    try:
        place.mkdir(parents=True, exist_ok=True)
        (place / FILE).unlink(missing_ok=True)
        result = json.dumps(load_function(function, beside)(settings, place), default=_plain)
        made = Outcome(hash_, "done", result)
    except (Exception, SystemExit) as error:  # noqa: BLE001 - a cell is foreign code: what it raises is its result
        made = failure(hash_, error)
    spent = round(time.monotonic() - clock, 3)
    outcome = Outcome(hash_, made.status, made.result, made.error, started, spent, worker)
    _keep(place, outcome)
    return outcome


def failure(hash_: str, error: BaseException) -> Outcome:
    """Return the outcome of a cell that raised an error."""
    text = "".join(traceback.format_exception(error))
    if len(text) > _MOST:
        text = f"{text[:_FIRST]}\n[…]\n{text[_FIRST - _MOST :]}"
    return Outcome(hash_, "failed", error=(type(error).__name__, str(error), text))


def kept_outcome(folder: Path, hash_: str) -> Outcome | None:
    """Return the outcome that a cell left in its folder; None without one, or when it was cut short."""
    try:
        data = json.loads((folder / FILE).read_bytes())
        found = Outcome(**{**data, "error": tuple(data["error"])})
    except (OSError, ValueError, TypeError, KeyError):
        return None
    return found if found.hash == hash_ else None


def _keep(folder: Path, outcome: Outcome) -> None:
    temporary = folder / f".{FILE}.tmp"
    with suppress(OSError):  # it is returned anyway; only a kill right now would lose it
        temporary.write_text(json.dumps(asdict(outcome)))
        os.replace(temporary, folder / FILE)


def _plain(value: Any) -> Any:
    """Return an array, a tensor or one of their numbers as lists and numbers, a path as text."""
    if hasattr(value, "tolist"):
        return value.tolist()
    if isinstance(value, os.PathLike):
        return os.fspath(value)
    raise TypeError(f"a cell returned a {type(value).__name__}: expected JSON values or arrays")
