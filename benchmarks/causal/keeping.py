"""Measuring once: rows are kept under what they were measured with."""

import time
from collections.abc import Callable, Mapping
from typing import Any

from benchmarks.partial import PartialRows, Row


def kept_row(kept: PartialRows, part: str, key: Mapping[str, Any], measure: Callable[[], Mapping[str, Any]]) -> Row:
    """Return the row of a key, with the CPU seconds it took; measure it unless it was measured before.

    Args:
        kept: rows measured before.
        part: the experiment.
        key: what tells this row from others of the experiment; its first columns.
        measure: returns the other columns.
    """
    full = {"part": part, **key}
    if (row := kept.get(full)) is not None:
        return row
    started = time.process_time()
    found = dict(measure())
    return kept.add(full, {**full, **found, "CPU seconds": time.process_time() - started})
