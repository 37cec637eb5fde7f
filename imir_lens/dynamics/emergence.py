"""When things happen along training: one rule, used wherever a step of emergence is printed.

A quantity **emerges** at the first recorded step at which it has reached half of its final value, if it stays there.
The rule needs the final value, so it depends on how long training went on: what keeps growing emerges later in a longer
run. And it is known only up to the distance of the recorded steps.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from imir_lens.errors import OptionError

RULE = "first recorded step from which on the coordinate has at least half of its final value, with the same sign"
LOSS_RULE = "first recorded step from which on the loss is below the middle between its first value and its least"
MINIMUM = 0.5
"""A coordinate that ends smaller than this, in nats, has not emerged: e^0.5 is odds of 1.6 to 1."""


@dataclass(frozen=True)
class Emergence:
    """When a quantity emerged.

    Attributes:
        step: the first recorded step from which on it was there.
        after: the last recorded step at which it was not; None when it was there from the beginning.
    """

    step: int
    after: int | None


def emergence(
    values: Sequence[float], steps: Sequence[int], *, share: float = 0.5, minimum: float = 0.0
) -> Emergence | None:
    """Return between which recorded steps a coordinate reached half of its final value for good.

    With final value c_T the rule is `min {t : c_u / c_T ≥ share for all u ≥ t}`: same sign as in the end, and at least
    that share of its size, from then on.

    Args:
        values: the coordinate at each recorded step.
        steps: the steps, increasing.
        share: which share of the final value counts as reached.
        minimum: a coordinate that ends smaller than this (in nats, in absolute value) never emerged.

    Returns:
        The steps, or None when the coordinate ends at zero, or below `minimum`.

    Raises:
        OptionError: when there are no values, not one for each step, or the steps do not increase.
    """
    if not values or len(values) != len(steps):
        raise OptionError(f"expected one value for each recorded step, found {len(values)} values, {len(steps)} steps")
    if any(later <= earlier for earlier, later in pairwise(steps)):
        raise OptionError("expected recorded steps that increase")
    if not 0 < share <= 1:
        raise OptionError(f"share must lie in (0, 1]: found {share}")
    final = values[-1]
    if final == 0 or abs(final) < minimum:
        return None
    return _from_then_on([value / final >= share for value in values], steps)


def emergence_step(
    values: Sequence[float], steps: Sequence[int], *, share: float = 0.5, minimum: float = 0.0
) -> int | None:
    """Return the step of `emergence`: the first recorded one from which on a coordinate has half of its final value.

    Args:
        values: the coordinate at each recorded step.
        steps: the steps, increasing.
        share: which share of the final value counts as reached.
        minimum: a coordinate that ends smaller than this (in nats, in absolute value) never emerged.

    Returns:
        The step, or None when the coordinate ends at zero, or below `minimum`. A coordinate that was there from the
        start emerges at the first recorded step.

    Raises:
        OptionError: as `emergence`.

    >>> emergence_step([0.0, 0.1, -2.0, 3.0, 4.0], [0, 10, 20, 30, 40])
    30
    """
    found = emergence(values, steps, share=share, minimum=minimum)
    return None if found is None else found.step


def loss_drop(losses: Sequence[float], steps: Sequence[int], *, least_drop: float = 0.1) -> Emergence | None:
    """Return between which recorded steps the loss fell by half, for good.

    With first loss l_0 and least loss l_min the rule is `min {t : l_u < (l_0 + l_min) / 2 for all u ≥ t}`.

    Args:
        losses: on the same contexts at each recorded step.
        steps: the steps, increasing.
        least_drop: a loss that falls by less than this share of l_0 has not fallen.

    Returns:
        The steps; None when the loss has not fallen, or does not end below the middle.

    Raises:
        OptionError: as `emergence`.
    """
    if not losses or len(losses) != len(steps):
        raise OptionError(f"expected one loss for each recorded step, found {len(losses)} losses, {len(steps)} steps")
    least = min(losses)
    if losses[0] - least <= least_drop * abs(losses[0]):
        return None
    middle = (losses[0] + least) / 2
    return _from_then_on([loss < middle for loss in losses], steps)


def _from_then_on(there: Sequence[bool], steps: Sequence[int]) -> Emergence | None:
    """Return where an unbroken run of True that reaches the end begins."""
    if not there[-1]:
        return None
    absent = [place for place, flag in enumerate(there) if not flag]
    first = absent[-1] + 1 if absent else 0
    return Emergence(steps[first], steps[first - 1] if first else None)
