"""The file that describes a sweep."""

import copy
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from reprlib import repr as short
from typing import Any

from imir_lens.errors import ImirError, OptionError, did_you_mean
from imir_lens.sweep.axes import KINDS, MOST_CELLS, Axis, draws, grid, read_axis
from imir_lens.sweep.cells import Cell, load_function, unique

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

RUN_CELL = "imir_lens.sweep.experiment:run_cell"
_Completion = Callable[[dict[str, Any]], dict[str, Any]]
_SWEEP = ("kind", "axes", "n", "seed", "cell")


@dataclass(frozen=True)
class Spec:
    """A sweep that has been read and checked.

    Attributes:
        cells: all different.
        duplicates: how many more the file describes.
        beside: the folder of the file, in which a cell function of one's own may be.
    """

    cells: list[Cell]
    duplicates: int
    beside: str


def read_spec(path: str | Path, *, device: str | None = None) -> Spec:
    """Read a sweep from a TOML file, and check every cell of it.

    Args:
        path: the file; docs/sweeps.md describes it.
        device: where the cells run.

    Raises:
        OptionError: when the file cannot be read or anything in it does not fit; the message names the key, and the
            cell where only some are affected.
    """
    file = Path(path)
    try:
        data = tomllib.loads(file.read_bytes().decode())
    except OSError as error:
        raise OptionError(f"{file}: {(error.strerror or str(error)).lower()}") from error
    except UnicodeDecodeError as error:
        raise OptionError(f"{file} is not TOML: byte {error.start} is not text") from error
    except tomllib.TOMLDecodeError as error:
        raise OptionError(f"{file} is not TOML: {' '.join(str(error).split())}") from error
    try:
        return _read(data, str(file.resolve().parent), device)
    except ImirError as error:
        raise OptionError(f"{file}: {error}") from error


def _read(data: dict[str, Any], beside: str, device: str | None) -> Spec:
    sweep = data.pop("sweep", None)
    if not isinstance(sweep, dict):
        raise OptionError("no table [sweep]: expected its kind and axes")
    for key in sweep:
        if key not in _SWEEP:
            raise OptionError(f"unknown key 'sweep.{key}'; {did_you_mean(key, _SWEEP)}")
    function = sweep.get("cell", RUN_CELL)
    if not isinstance(function, str):
        raise OptionError(f"'sweep.cell' is {short(function)}: expected module:function")
    axes = [read_axis(name, given) for name, given in _flat_axes(sweep.get("axes"))]
    points = _points(sweep, axes)
    complete = _completion(function, data, axes, beside, device)
    cells = [_cell(point, data, function, complete) for point in points]
    kept = unique(cells)
    return Spec(kept, len(cells) - len(kept), beside)


def _cell(
    point: Mapping[str, Any],
    data: Mapping[str, Any],
    function: str,
    complete: Callable[[dict[str, Any]], dict[str, Any]],
) -> Cell:
    label = " ".join(f"{name}={value}" for name, value in point.items())
    settings = copy.deepcopy(dict(data))
    for name, value in point.items():
        _set(settings, name, value)
    try:
        found = Cell(complete(settings), function, label)
        _ = found.hash
    except ImirError as error:
        raise OptionError(f"cell {label}: {error}") from error
    return found


def _flat_axes(axes: Any) -> Iterator[tuple[str, Any]]:
    """Yield the axes by dotted name, be they written `"task.pairs" = …` or `task.pairs = …`."""
    if not isinstance(axes, dict) or not axes:
        raise OptionError('no table [sweep.axes]: expected at least one axis, as "train.seed" = [0, 1, 2]')
    names = set()
    for name, value in axes.items():
        nested = "." not in name and isinstance(value, dict) and not set(value) & set(KINDS)
        for full, given in (
            {f"{name}.{key}": part for key, part in value.items()}.items() if nested else [(name, value)]
        ):
            if full in names:
                raise OptionError(f"axis {full!r} is given twice")
            names.add(full)
            yield full, given


def _completion(
    function: str, data: Mapping[str, Any], axes: Sequence[Axis], beside: str, device: str | None
) -> _Completion:
    """Check names; return what turns a cell as it is written into all of its settings."""
    if function != RUN_CELL:
        for axis in axes:
            _require_free(axis.name, data)
        load_function(function, beside)
        extra = {} if device is None else {"device": device}
        return lambda settings: {**settings, **extra}

    from imir_lens.sweep.settings import SECTIONS, known_keys, resolve, task_name, unknown_key

    for section, table in data.items():
        if section not in SECTIONS:
            raise OptionError(unknown_key(section, [*SECTIONS, "sweep"]))
        if not isinstance(table, dict):
            raise OptionError(f"{section!r} is {short(table)}: expected a table [{section}]")
    for axis in axes:
        _require_free(axis.name, data)
    tasks = [value for axis in axes if axis.name == "task.name" for value in axis.values or ()]
    names = [name for name in tasks if isinstance(name, str)] or [task_name(data)]
    known = [f"{section}.{key}" for section in SECTIONS for key in known_keys(section, names)]
    given = [f"{section}.{key}" for section, table in data.items() for key in table]
    for name in [*given, *(axis.name for axis in axes)]:
        if name not in known:
            raise OptionError(unknown_key(name, known))
    return lambda settings: resolve(settings, device=device)


def _require_free(name: str, data: Mapping[str, Any]) -> None:
    """Check that an axis fits into the tables, and is not given there as well."""
    *tables, key = name.split(".")
    found: Any = data
    for depth, table in enumerate(tables):
        found = found.get(table, {})
        if not isinstance(found, dict):
            raise OptionError(f"axis {name!r} does not fit: {'.'.join(tables[: depth + 1])!r} is {short(found)}")
    if key in found:
        raise OptionError(f"{name!r} is given as {short(found[key])} and as an axis: expected one of them")


def _points(sweep: Mapping[str, Any], axes: Sequence[Axis]) -> list[dict[str, Any]]:
    kind = sweep.get("kind", "grid")
    if kind not in ("grid", "random"):
        raise OptionError(f"'sweep.kind' is {short(kind)}: expected 'grid' or 'random'")
    if kind == "grid":
        for key in ("n", "seed"):
            if key in sweep:
                raise OptionError(f"'sweep.{key}' is for random sweeps: leave it out, or set kind = 'random'")
        return grid(axes)
    for key, default, least, most in (("n", None, 1, MOST_CELLS), ("seed", 0, 0, 2**62)):
        value = sweep.get(key, default)
        if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
            raise OptionError(f"'sweep.{key}' is {short(value)}: expected a whole number from {least} to {most:,}")
    return draws(axes, sweep["n"], sweep.get("seed", 0))


def _set(settings: dict[str, Any], name: str, value: Any) -> None:
    *tables, key = name.split(".")
    for table in tables:
        settings = settings.setdefault(table, {})
    settings[key] = value
