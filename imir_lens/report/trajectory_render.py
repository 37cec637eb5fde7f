"""A trajectory as one HTML file that needs nothing else, and as Markdown."""

from collections.abc import Mapping
from typing import Any

from markupsafe import Markup

from imir_lens.figures.trajectory_chart import trajectory_chart
from imir_lens.report import trajectory_tables as tables
from imir_lens.report.cards import Card, card_name
from imir_lens.report.html import environment, scripted, stylesheet
from imir_lens.report.markdown import code, table, text


def render_trajectory_html(data: Mapping[str, Any]) -> str:
    """Return the whole page.

    Args:
        data: a trajectory, see `trajectory_schema.json`.
    """
    return (
        environment()
        .get_template("trajectory.html.j2")
        .render(
            **scripted(),
            data=data,
            subject=subject(data),
            stylesheet=stylesheet(),
            headline=tables.headline(data),
            key_numbers=tables.key_numbers(data),
            chart=Markup(trajectory_chart(data)),
            rule=tables.rule_note(data),
            roles=tables.roles_table(data),
            swaps=tables.swaps_table(data),
            coordinates=tables.coordinates_table(data),
            provenance=tables.provenance_table(data),
        )
    )


def render_trajectory_markdown(data: Mapping[str, Any], *, figures: bool = True) -> str:
    """Return the trajectory as Markdown.

    Args:
        data: a trajectory, see `trajectory_schema.json`.
        figures: whether to link the figure that `Trajectory.save` puts beside it.
    """
    swaps = tables.swaps_table(data)
    parts = [
        f"# Training of {text(subject(data))}\n",
        f"{text(tables.headline(data))}\n",
        *(f"- {text(key.label)}: **{text(key.value)}** ({text(key.note)})" for key in tables.key_numbers(data)),
        "",
        *(["![Coordinates, loss and attention](figures/trajectory.svg)\n"] if figures else []),
        f"{text(tables.rule_note(data))}\n",
        table(tables.roles_table(data)),
        table(swaps) if swaps.rows else "No role moved from one head to another.\n",
        table(tables.coordinates_table(data)),
        "## How it was made\n",
        f"{code(data['command'])}\n",
        table(tables.provenance_table(data)),
    ]
    return "\n".join(parts).rstrip() + "\n"


def trajectory_card(data: Mapping[str, Any]) -> Card:
    """Return what a notebook shows of a trajectory.

    Args:
        data: a trajectory, see `trajectory_schema.json`.
    """
    return Card(
        f"training of {subject(data)}",
        tables.headline(data),
        tables.key_numbers(data),
        [trajectory_chart(data, name=card_name(data["run"]["source"], data["command"]))],
        [tables.roles_table(data), tables.swaps_table(data)],
        tables.rule_note(data),
    )


def subject(data: Mapping[str, Any]) -> str:
    """Return the short name of a run: the last part of its path."""
    source: str = data["run"]["source"]
    return source.replace("\\", "/").rstrip("/").rpartition("/")[2] or source
