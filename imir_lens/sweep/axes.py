"""The axes of a sweep: lists and ranges, all values of a grid, or random draws."""

import itertools
import math
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from reprlib import repr as short
from typing import Any

from imir_lens.errors import OptionError, did_you_mean

MOST_CELLS = 1_000_000
KINDS = ("linspace", "logspace", "integers", "choices")


@dataclass(frozen=True)
class Axis:
    """One setting and the values it takes.

    Attributes:
        name: dotted, as `task.burstiness`.
        values: all of them in order; None for a range without a count.
        at: the value at a share u of the axis, 0 <= u < 1.
    """

    name: str
    values: tuple[Any, ...] | None
    at: Callable[[float], Any]


def read_axis(name: str, given: Any) -> Axis:
    """Read an axis.

    - a list, or `{choices = [...]}`: these values;
    - `{linspace = [low, high, count]}`: evenly spaced, ends included;
    - `{logspace = [low, high, count]}`: likewise on a logarithmic scale; low and high are the ends themselves;
    - `{integers = [low, high]}` or `{integers = [low, high, step]}`: whole numbers, ends included.

    Without a count, linspace and logspace are continuous, for random sweeps. Numbers are rounded to 12 digits.

    Raises:
        OptionError: when it is none of these.
    """
    if isinstance(given, Mapping):
        if len(given) != 1:
            raise OptionError(f"axis {name!r} has {len(given)} entries: expected one of {', '.join(KINDS)}")
        kind, arguments = next(iter(given.items()))
        if kind not in KINDS:
            raise OptionError(f"axis {name!r}: unknown kind {kind!r}; {did_you_mean(kind, KINDS)}")
    else:
        kind, arguments = "choices", given
    if not isinstance(arguments, list | tuple):
        raise OptionError(f"axis {name!r}: expected a list of values or a range, found {short(arguments)}")
    if kind == "choices":
        return _listed(name, arguments)
    return (
        _integers(name, arguments) if kind == "integers" else _spaced(name, arguments, logarithmic=kind == "logspace")
    )


def grid(axes: Sequence[Axis]) -> list[dict[str, Any]]:
    """Return every combination of the axes' values; the last axis changes fastest.

    Raises:
        OptionError: for a range without a count, or too many combinations.
    """
    for axis in axes:
        if axis.values is None:
            raise OptionError(f"axis {axis.name!r} has no count: expected [low, high, count] in a grid")
    values = [axis.values for axis in axes if axis.values is not None]
    count = math.prod(map(len, values))
    if count > MOST_CELLS:
        raise OptionError(f"the grid has {count:,} cells: expected at most {MOST_CELLS:,}")
    names = [axis.name for axis in axes]
    return [dict(zip(names, chosen, strict=True)) for chosen in itertools.product(*values)]


def draws(axes: Sequence[Axis], n: int, seed: int) -> list[dict[str, Any]]:
    """Return `n` independent draws from the axes.

    Each axis has its own generator, seeded by `seed` and its name: more draws, or another axis, leave the others as
    they are.
    """
    columns = []
    for axis in axes:
        generator = random.Random(f"{seed}:{axis.name}")
        columns.append([axis.at(generator.random()) for _ in range(n)])
    return [{axis.name: column[i] for axis, column in zip(axes, columns, strict=True)} for i in range(n)]


def _listed(name: str, values: Sequence[Any]) -> Axis:
    if not values:
        raise OptionError(f"axis {name!r} is empty: expected at least one value")
    kept = tuple(values)
    return Axis(name, kept, lambda share: kept[int(share * len(kept))])


def _integers(name: str, arguments: Sequence[Any]) -> Axis:
    whole = all(isinstance(number, int) and not isinstance(number, bool) for number in arguments)
    low, high, step = [*arguments, 1][:3] if whole and len(arguments) in (2, 3) else (0, -1, 1)
    if not (low <= high and step >= 1):
        raise OptionError(
            f"axis {name!r}: expected integers = [low, high] or [low, high, step], found {short(arguments)}"
        )
    if (high - low) // step >= MOST_CELLS:
        raise OptionError(f"axis {name!r} has more than {MOST_CELLS:,} values: give a larger step")
    return _listed(name, range(low, high + 1, step))


def _spaced(name: str, arguments: Sequence[Any], *, logarithmic: bool) -> Axis:
    kind = "logspace" if logarithmic else "linspace"
    expected = f"{kind} = [low, high, count], finite" + (" and positive" if logarithmic else "")
    numbers = all(isinstance(number, int | float) and not isinstance(number, bool) for number in arguments)
    if not numbers or len(arguments) not in (2, 3) or not all(map(_is_finite, arguments)):
        raise OptionError(f"axis {name!r}: expected {expected}, found {short(arguments)}")
    low, high, *rest = arguments
    if not low < high or (logarithmic and low <= 0):
        raise OptionError(f"axis {name!r}: expected {expected} with low < high, found {short(arguments)}")
    count = rest[0] if rest else None
    if count is not None and not (isinstance(count, int) and 2 <= count <= MOST_CELLS):
        raise OptionError(f"axis {name!r}: expected a count of 2 to {MOST_CELLS:,}, found {count}")

    def at(share: float) -> float:
        value = low * (high / low) ** share if logarithmic else low + (high - low) * share
        return float(f"{value:.12g}")

    if count is None:
        return Axis(name, None, at)
    return _listed(name, [at(i / (count - 1)) for i in range(count)])


def _is_finite(number: int | float) -> bool:
    return abs(number) < 1e300
