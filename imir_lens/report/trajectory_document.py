"""`Trajectory`: coordinates along a run, with the files made from them."""

import csv
import io
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from imir_lens.errors import OptionError, did_you_mean
from imir_lens.figures.figure import Figure
from imir_lens.figures.trajectory_chart import trajectory_chart
from imir_lens.report.json_files import write_text
from imir_lens.report.report_figures import training_caption
from imir_lens.report.saved_report import SavedReport
from imir_lens.report.trajectory_render import (
    render_trajectory_html,
    render_trajectory_markdown,
    subject,
    trajectory_card,
)
from imir_lens.report.trajectory_tables import csv_rows, headline
from imir_lens.report.validation import ReportError, check_finite, check_schema, load_schema

SCHEMA_NAME: Final = "trajectory_schema.json"


def validate_trajectory(data: Mapping[str, Any]) -> None:
    """Check a trajectory: its schema, finite numbers, increasing steps, one value a checkpoint in every series.

    Raises:
        ReportError: one line that names the place, what stands there and what was expected.
    """
    check_finite(data)
    check_schema(data, load_schema(SCHEMA_NAME))
    steps = [point["step"] for point in data["checkpoints"]]
    if steps != sorted(set(steps)):
        raise ReportError("report.checkpoints: expected steps that increase")
    for field in ("coordinates", "roles", "tracks"):
        for at, row in enumerate(data[field]):
            if len(row["values"]) != len(steps):
                raise ReportError(f"report.{field}[{at}].values: expected {len(steps)}, found {len(row['values'])}")


class Trajectory(SavedReport):
    """Coordinates, losses and attention over the checkpoints of a run.

    Args:
        data: the trajectory, see `trajectory_schema.json` in this package.

    Attributes:
        data: the trajectory.
    """

    json_name = "trajectory.json"
    made = ("trajectory.html", "trajectory.md", "trajectory.csv", "figures/trajectory.svg")

    @property
    def steps(self) -> list[int]:
        """The checkpoints' steps."""
        return [point["step"] for point in self.data["checkpoints"]]

    @property
    def losses(self) -> list[float]:
        """Loss on the held-out contexts at each checkpoint."""
        return [point["loss"] for point in self.data["checkpoints"]]

    @property
    def emergence(self) -> dict[str, int | None]:
        """The step at which each role emerged, None where it did not."""
        return {row["role"]: (row["emergence"] or {}).get("step") for row in self.data["roles"]}

    @property
    def loss_drop(self) -> int | None:
        """The step at which the loss had fallen by half; None when it did not."""
        found = self.data["emergence"]["loss"]
        return None if found is None else int(found["step"])

    @property
    def swaps(self) -> list[dict[str, Any]]:
        """Units that moved from one head to another: step, role, former and later id, heads."""
        return list(self.data["swaps"])

    def values(self, name: str) -> list[float]:
        """Return the series of a role, or of a coordinate that was followed.

        Args:
            name: e.g. `beta`, or `L1H0/score/q:res/k:L0H0/same`.

        Raises:
            OptionError: when it was not followed.
        """
        found = {row["id"]: row["values"] for row in self.data["coordinates"]}
        found |= {row["role"]: row["values"] for row in self.data["roles"]}
        if name not in found:
            raise OptionError(f"{name!r} was not followed here; {did_you_mean(name, found)}")
        return list(found[name])

    @staticmethod
    def check(data: Mapping[str, Any]) -> None:
        """Check the data: see `validate_trajectory`."""
        validate_trajectory(data)

    def write_made(self, directory: Path) -> None:
        """Write trajectory.html, trajectory.md, trajectory.csv and the figure."""
        write_text(directory / "trajectory.html", render_trajectory_html(self.data))
        write_text(directory / "trajectory.md", render_trajectory_markdown(self.data))
        write_text(directory / "trajectory.csv", _csv(self.data))
        self.write_figures(directory, self.figures)

    def figure_makers(self) -> dict[str, Callable[[], Figure]]:
        """Return what draws the chart, `trajectory`."""
        title = f"Training of {subject(self.data)}"
        return {"trajectory": lambda: Figure(trajectory_chart(self.data), title, training_caption(self.data))}

    def __repr__(self) -> str:
        return f"Trajectory({len(self.steps)} checkpoints): {headline(self.data)}"

    def _repr_html_(self) -> str:
        return trajectory_card(self.data).html()

    def _repr_markdown_(self) -> str:
        return render_trajectory_markdown(self.data, figures=False)


def _csv(data: Mapping[str, Any]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(csv_rows(data))
    return text.getvalue()
