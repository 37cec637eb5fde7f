"""Many runs of one recipe: when each role emerged, in which order, and how long after that the loss fell."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any

from imir_lens.dynamics.trajectory_pipeline import trajectory
from imir_lens.errors import OptionError
from imir_lens.report.trajectory_document import Trajectory


@dataclass(frozen=True)
class Spread:
    """Where some numbers lie.

    Attributes:
        runs: how many of them there are: in runs without one, the thing did not happen.
        median, least, most: of the numbers; None when there are none.
    """

    runs: int
    median: float | None
    least: float | None
    most: float | None

    @classmethod
    def of(cls, numbers: Iterable[float | int | None]) -> "Spread":
        """Sum up numbers; None are left out."""
        found = [number for number in numbers if number is not None]
        if not found:
            return cls(0, None, None, None)
        return cls(len(found), float(median(found)), float(min(found)), float(max(found)))


@dataclass(frozen=True)
class ManyTrajectories:
    """Trajectories of several runs.

    Attributes:
        trajectories: one a run.
        emergence: spread of the step at which each role emerged.
        loss_drop: spread of the step at which the loss had fallen by half.
        lag: spread of the steps from the last role's emergence to that.
        orders: how often the roles emerged in which order, most frequent first; `beta < gamma = alpha` says that no
            checkpoint lies between the last two.
    """

    trajectories: Sequence[Trajectory]
    emergence: Mapping[str, Spread] = field(default_factory=dict)
    loss_drop: Spread = field(default_factory=lambda: Spread.of([]))
    lag: Spread = field(default_factory=lambda: Spread.of([]))
    orders: Mapping[str, int] = field(default_factory=dict)

    def __repr__(self) -> str:
        lines = [f"  {role:<10} {_words(spread)}" for role, spread in self.emergence.items()]
        lines += [f"  {'loss':<10} {_words(self.loss_drop)}", f"  {'lag':<10} {_words(self.lag)}"]
        lines += [f"  {count:>3} times {order}" for order, count in self.orders.items()]
        return "\n".join([f"{len(self.trajectories)} runs; step of emergence: median (range), runs", *lines])


def trajectories(runs: Iterable[str | Path | Trajectory], **options: Any) -> ManyTrajectories:
    """Follow several runs, and sum up when each role emerged.

    Args:
        runs: what `trajectory` takes, or trajectories that are there already.
        options: of `trajectory`, for those that are not.

    Raises:
        OptionError: when there are none; otherwise as `trajectory`.
    """
    return summarise([run if isinstance(run, Trajectory) else trajectory(run, **options) for run in runs])


def summarise(found: Sequence[Trajectory]) -> ManyTrajectories:
    """Sum up trajectories.

    Raises:
        OptionError: when there are none.
    """
    if not found:
        raise OptionError("expected at least one run, found none")
    roles = sorted({role for one in found for role in one.emergence})
    return ManyTrajectories(
        trajectories=found,
        emergence={role: Spread.of(one.emergence.get(role) for one in found) for role in roles},
        loss_drop=Spread.of(one.loss_drop for one in found),
        lag=Spread.of(one.data["emergence"]["lag"] for one in found),
        orders=dict(Counter(order_of(one) for one in found).most_common()),
    )


def order_of(found: Trajectory) -> str:
    """Return the order in which a run's roles emerged: `beta < alpha = gamma`; `none` when none did."""
    return " < ".join(" = ".join(sorted(group)) for group in found.data["emergence"]["order"]) or "none"


def _words(spread: Spread) -> str:
    if spread.median is None:
        return "never"
    return f"{spread.median:g} ({spread.least:g} to {spread.most:g}), {spread.runs}"
