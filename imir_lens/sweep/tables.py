"""Reading the results of a sweep, and writing them as a table."""

import csv
import io
import json
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from imir_lens.errors import OptionError
from imir_lens.sweep.store import read_rows

if TYPE_CHECKING:
    import pandas as pd

SUFFIXES = (".csv", ".parquet")


def results(directory: str | Path) -> list[dict[str, Any]]:
    """Return one flat row for each cell, in the order in which the cells were first asked for.

    A row has the columns of the store, but settings and result taken apart under dotted names: `task.name`,
    `task.knobs.pairs`, `train.seed`, …, `result.training.loss`, `result.analysis.mechanism`, … Lists stay lists.

    Args:
        directory: of the sweep, which may be running.

    Raises:
        OptionError: when it is not a sweep.
    """
    rows = []
    for row in read_rows(Path(directory)):
        settings, result = row.pop("settings"), row.pop("result")
        rows.append({**row, **_flat(settings), **_flat(result, "result")})
    return rows


def frame(directory: str | Path) -> "pd.DataFrame":
    """Return the results as a pandas DataFrame: a line a cell, columns as `results` has them.

    Raises:
        OptionError: when it is not a sweep, or pandas is not installed.
    """
    if find_spec("pandas") is None:
        raise OptionError("a table of results needs pandas: pip install pandas")
    import pandas as pd

    return pd.DataFrame(results(directory))


def write_table(directory: str | Path, path: str | Path) -> Path:
    """Write the results as a table; what is a list stands there as JSON.

    Args:
        directory: of the sweep.
        path: a .csv file, or a .parquet file, for which pandas and pyarrow must be installed.

    Returns:
        the file.

    Raises:
        OptionError: when the directory is not a sweep, or the file cannot be written.
    """
    from imir_lens.checkpoint_files import write_atomically

    file = Path(path)
    check_export(file)
    rows = [{name: _cell(value) for name, value in row.items()} for row in results(directory)]
    names = list(dict.fromkeys(name for row in rows for name in row))
    if file.suffix == ".csv":
        text = io.StringIO(newline="")
        writer = csv.DictWriter(text, names)
        writer.writeheader()
        writer.writerows(rows)
        write_atomically(file, text.getvalue().encode())
        return file
    import pandas as pd

    table = pd.DataFrame({name: _column([row.get(name) for row in rows]) for name in names})
    data = io.BytesIO()
    table.to_parquet(data, index=False)
    write_atomically(file, data.getvalue())
    return file


def check_export(path: Path) -> None:
    """Check that a table can be written in a format.

    Raises:
        OptionError: when the format is unknown, or what it needs is not installed.
    """
    if path.suffix not in SUFFIXES:
        raise OptionError(f"{path} is not a table: expected a name that ends in {' or '.join(SUFFIXES)}")
    for module in ("pandas", "pyarrow") if path.suffix == ".parquet" else ():
        if find_spec(module) is None:
            raise OptionError(f"a .parquet file needs {module}: pip install {module}; a .csv file needs nothing")


def _flat(value: Any, name: str = "") -> dict[str, Any]:
    if not isinstance(value, Mapping):
        return {} if name in ("", "result") and value is None else {name: value}
    found: dict[str, Any] = {}
    for key, part in value.items():
        found |= _flat(part, f"{name}.{key}".lstrip("."))
    return found


def _cell(value: Any) -> Any:
    return json.dumps(value) if isinstance(value, list) else value


def _column(values: list[Any]) -> list[Any]:
    """Return values of one kind, as Parquet has them: numbers and words together, of several tasks say, are words."""
    kinds = {type(value) for value in values if value is not None}
    if len(kinds) < 2 or kinds == {int, float}:
        return values
    return [None if value is None else str(value) for value in values]
