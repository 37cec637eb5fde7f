"""Timing and recording shared by the benchmarks."""

import json
import platform
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.table import Table

import imir_lens
from imir_lens.compat import tl_version

RESULTS = Path(__file__).parent / "results"


def seconds(work: Callable[[], Any], *, repeats: int = 5) -> float:
    """Return the least wall time of several runs after a warm-up: the machine's noise only ever adds."""
    work()
    times = []
    for _ in range(repeats):
        started = time.perf_counter()
        work()
        times.append(time.perf_counter() - started)
    return min(times)


def record(
    name: str,
    rows: Sequence[dict[str, Any]],
    *,
    command: str,
    seed: int,
    tables: Mapping[str, Sequence[dict[str, Any]]] | None = None,
    store: bool,
) -> dict[str, Any]:
    """Print tables (default: one of all rows); when asked, store them and all rows with the command and versions."""
    result = {
        "benchmark": name,
        "command": command,
        "seed": seed,
        "versions": {
            "imir_lens": imir_lens.__version__,
            "torch": torch.__version__,
            "transformer_lens": tl_version(),
            "python": platform.python_version(),
        },
        "threads": torch.get_num_threads(),
        **({} if tables is None else {"tables": dict(tables)}),
        "rows": list(rows),
    }
    for title, lines in (tables or {name: rows}).items():
        _print(title, lines)
    if store:
        RESULTS.mkdir(exist_ok=True)
        (RESULTS / f"{name}.json").write_text(_as_json(result) + "\n", encoding="utf-8")
    return result


def _as_json(result: dict[str, Any]) -> str:
    """One line for each row: there can be thousands."""
    lines = ",\n  ".join(json.dumps(row) for row in result["rows"])
    head = json.dumps({**result, "rows": []}, indent=1)
    return f"{head.removesuffix('[]' + chr(10) + '}')}[\n  {lines}\n ]\n}}"


def _print(title: str, lines: Sequence[dict[str, Any]]) -> None:
    table = Table(title=title, title_justify="left")
    for column in lines[0]:
        table.add_column(column, justify="left" if isinstance(lines[0][column], str) else "right")
    for line in lines:
        table.add_row(*(f"{v:.3g}" if isinstance(v, float) else "" if v is None else str(v) for v in line.values()))
    Console(width=160).print(table)
