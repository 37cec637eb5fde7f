"""What functions that return planted circuits share: placing parts in heads, and writing ids."""

from collections.abc import Mapping
from itertools import pairwise

from imir_lens.errors import OptionError, did_you_mean
from imir_lens.ids import CoordinateId, Head, Path


def places(heads: Mapping[str, str] | None, **defaults: str) -> dict[str, Head]:
    """Return where each part of a circuit lives.

    Raises:
        OptionError: for a part that the circuit does not have.
        CoordinateError: when a head does not parse.
    """
    for name in heads or {}:
        if name not in defaults:
            raise OptionError(f"this circuit has no part {name!r}; {did_you_mean(name, defaults)}")
    return {name: Head.parse(text) for name, text in (defaults | dict(heads or {})).items()}


def require_order(place: Mapping[str, Head], *names: str) -> None:
    """Check that each part lies in a layer below the next.

    Raises:
        OptionError: when one does not.
    """
    for lower, upper in pairwise(names):
        if place[lower].layer >= place[upper].layer:
            raise OptionError(f"{lower} feeds {upper}, so {place[lower]} must be in a layer below {place[upper]}")


def require_apart(place: Mapping[str, Head], *names: str) -> None:
    """Check that some parts lie in heads of their own.

    Raises:
        OptionError: when two share one.
    """
    for index, name in enumerate(names):
        for other in names[:index]:
            if place[name] == place[other]:
                raise OptionError(f"{other} and {name} attend to different places, so {place[name]} cannot be both")


def score_id(head: Head, query: Path, key: Path, relation: str) -> str:
    """Return a score coordinate's id."""
    return str(CoordinateId(head, query, key, relation))


def readout_id(path: Path, relation: str) -> str:
    """Return a readout coordinate's id."""
    return str(CoordinateId(None, None, path, relation))


def kept(circuit: Mapping[str, float]) -> dict[str, float]:
    """Return the circuit without its zeros."""
    return {name: value for name, value in circuit.items() if value != 0}
