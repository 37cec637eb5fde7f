"""What a sweep is made of: cells, each known by the hash of all its settings."""

import hashlib
import json
import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from importlib import import_module
from pathlib import Path
from reprlib import repr as short
from typing import Any

from imir_lens.errors import OptionError

FORMAT = 1  # goes into every hash: a change in what settings mean must not find old results
CellFunction = Callable[[Mapping[str, Any], Path], Mapping[str, Any]]


@dataclass(frozen=True)
class Cell:
    """One experiment of a sweep.

    Attributes:
        settings: everything it depends on, as JSON values.
        function: what runs it, as `module:function`; it takes the settings and a folder, and returns its result.
        label: how it differs from its neighbours, for people; it is no part of the identity.
    """

    settings: dict[str, Any]
    function: str
    label: str = field(default="", compare=False)

    @cached_property
    def canonical(self) -> str:
        """The settings as JSON with sorted keys; raises OptionError for what JSON does not have."""
        return canonical_json(self.settings)

    @cached_property
    def hash(self) -> str:
        """The SHA-256 of function and settings, in hexadecimal digits."""
        identity = f'{{"cell":{json.dumps(self.function)},"format":{FORMAT},"settings":{self.canonical}}}'
        return hashlib.sha256(identity.encode()).hexdigest()


def make_cells(settings: Iterable[Mapping[str, Any]], function: str | CellFunction) -> list[Cell]:
    """Return one cell for each of the settings; what occurs twice is one cell.

    Args:
        settings: for each cell, all that it depends on, as JSON values.
        function: what runs a cell: a function of a module, or its name `module:function`.

    Raises:
        OptionError: when a setting is no JSON value, or other processes could not import the function.
    """
    name = function if isinstance(function, str) else function_name(function)
    return unique(Cell(json.loads(canonical_json(one)), name) for one in settings)


def unique(cells: Iterable[Cell]) -> list[Cell]:
    """Return the cells in their order, without those that were there before."""
    found: dict[str, Cell] = {}
    for cell in cells:
        found.setdefault(cell.hash, cell)
    return list(found.values())


def function_name(function: CellFunction) -> str:
    """Return the `module:function` under which other processes find a function.

    Raises:
        OptionError: when there is no such name.
    """
    name = f"{getattr(function, '__module__', '')}:{getattr(function, '__qualname__', '')}"
    module = name.partition(":")[0]
    if module == "__main__" or load_function(name) is not function:
        raise OptionError(f"other processes cannot import {name!r}: expected a function at the top level of a module")
    return name


def load_function(name: str, beside: str | None = None) -> CellFunction:
    """Import a cell function.

    Args:
        name: `module:function`.
        beside: a folder to look in for the module when it is not found otherwise.

    Raises:
        OptionError: when it cannot be imported.
    """
    module, _, attribute = name.partition(":")
    if not all(part.isidentifier() for part in [*module.split("."), attribute]):
        raise OptionError(f"{name!r} is not a cell function: expected module:function")
    _look_in(beside)
    try:
        found = getattr(import_module(module), attribute, None)
    except ImportError as error:
        raise OptionError(f"cell function {name!r} cannot be imported: {error}") from error
    if not callable(found):
        raise OptionError(f"cell function {name!r}: module {module!r} has no function {attribute!r}")
    return found


def _look_in(folder: str | None) -> None:
    import sys

    if folder is not None and folder not in sys.path:
        sys.path.append(folder)  # last: it must not hide what is installed


def canonical_json(value: Any) -> str:
    """Return JSON with sorted keys and without blanks: equal values give equal text.

    Raises:
        OptionError: for a value that JSON does not have; infinite numbers are such values.
    """
    _require_json(value, "")
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)


def _require_json(value: Any, name: str) -> None:
    if isinstance(value, Mapping):
        for key, part in value.items():
            if not isinstance(key, str):
                raise OptionError(f"setting {name or 'names'!r}: expected text as name, found {short(key)}")
            _require_json(part, f"{name}.{key}".lstrip("."))
    elif isinstance(value, list | tuple):
        for part in value:
            _require_json(part, name)
    elif isinstance(value, float) and not math.isfinite(value):
        raise OptionError(f"setting {name!r} is {value}: expected a finite number")
    elif not isinstance(value, str | int | float | bool | None):
        raise OptionError(
            f"setting {name!r} is a {type(value).__name__}: expected text, a number, true or false, or a list of them"
        )
