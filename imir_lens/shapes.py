"""Circuits up to head relabelling: what two runs of a training recipe can be compared by.

The heads of a layer are interchangeable, so a second seed may put the same mechanism in other heads. A unit's **shape**
is its base role and its id without head indices: `beta`, `L1/score/q:res/k:L0/same`. A circuit's is the multiset of
those of its units, so that two heads with one job count twice. Layers are kept: a match in layer 2 is not one in
layer 1. Which head reads which is not compared beyond their layers.
"""

import re
from collections import Counter
from collections.abc import Iterable

from imir_lens.roles import Unit, base_of

Shape = Counter[tuple[str, str]]
_HEAD = re.compile(r"(L\d+)H\d+")


def unit_shape(role: str, identifier: str) -> tuple[str, str]:
    """Return a unit's base role, and its id without head indices.

    >>> unit_shape("beta_2", "L2H1/score/q:L1H0/k:L0H3/same")
    ('beta', 'L2/score/q:L1/k:L0/same')
    """
    return base_of(role), _HEAD.sub(r"\1", identifier)


def circuit_shape(units: Iterable[Unit], *, named: bool = False) -> Shape:
    """Return the multiset of (base role, id without head indices) of a circuit's units.

    Args:
        units: of the circuit.
        named: only those with a named role, without auxiliaries.
    """
    found = (unit_shape(unit.role, str(unit.id)) for unit in units)
    return Counter(shape for shape in found if not (named and shape[0] == "auxiliary"))


def shape_jaccard(first: Shape, second: Shape) -> float:
    """Return `Σ min / Σ max` over the counts of two shapes: 1 for equal ones, 0 for those without a common member.

    Two empty shapes have nothing in common: 0, as in `bootstrap_jaccard`.
    """
    most = (first | second).total()
    return (first & second).total() / most if most else 0.0
