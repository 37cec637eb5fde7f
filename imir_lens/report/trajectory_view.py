"""What a report on a run shows of its training."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from markupsafe import Markup

from imir_lens.figures.trajectory_chart import trajectory_chart
from imir_lens.report import trajectory_tables
from imir_lens.report.tables import Table


@dataclass(frozen=True)
class TrajectoryView:
    """The words, figure and tables of a report's section on training."""

    headline: str
    chart: Markup
    rule: str
    roles: Table
    swaps: Table


def view(report: Mapping[str, Any]) -> TrajectoryView | None:
    """Return the section's parts; None for a report without a trajectory."""
    data = report.get("trajectory")
    if data is None:
        return None
    return TrajectoryView(
        headline=trajectory_tables.headline(data),
        chart=Markup(trajectory_chart(data)),
        rule=trajectory_tables.rule_note(data),
        roles=trajectory_tables.roles_table(data),
        swaps=trajectory_tables.swaps_table(data),
    )
