"""When a coordinate emerges along training: one rule, used wherever a step of emergence is printed."""

from collections.abc import Sequence

from imir_lens.errors import OptionError

RULE = "first recorded step at which the coordinate has reached half of its final value"


def emergence_step(
    values: Sequence[float], steps: Sequence[int], *, share: float = 0.5, minimum: float = 0.0
) -> int | None:
    """Return the first recorded step at which a coordinate has reached half of its final value.

    With final value c_T the rule is `min {t : c_t / c_T ≥ share}`: same sign as in the end, and at least that share of
    its size. A coordinate that was there from the start emerges at the first recorded step.

    Args:
        values: the coordinate at each recorded step.
        steps: the steps, increasing.
        share: which share of the final value counts as reached.
        minimum: a coordinate that ends smaller than this (in nats, in absolute value) never emerged.

    Returns:
        The step, or None when the coordinate ends at zero, or below `minimum`.

    Raises:
        OptionError: when there are no values, or not one for each step.

    >>> emergence_step([0.0, 0.1, -2.0, 3.0, 4.0], [0, 10, 20, 30, 40])
    30
    """
    if not values or len(values) != len(steps):
        raise OptionError(f"expected one value for each recorded step, found {len(values)} values, {len(steps)} steps")
    if not 0 < share <= 1:
        raise OptionError(f"share must lie in (0, 1]: found {share}")
    final = values[-1]
    if final == 0 or abs(final) < minimum:
        return None
    return next(step for step, value in zip(steps, values, strict=True) if value / final >= share)
