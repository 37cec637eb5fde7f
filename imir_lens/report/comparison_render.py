"""A comparison as one HTML file that needs nothing else, as Markdown, and as a card for a notebook."""

from collections.abc import Mapping
from typing import Any

from markupsafe import Markup

from imir_lens.figures.comparison_graphs import comparison_graphs
from imir_lens.figures.comparison_scatter import comparison_scatter
from imir_lens.report import comparison_tables as tables
from imir_lens.report import words
from imir_lens.report.cards import Card, card_name
from imir_lens.report.comparison_units import SIDES
from imir_lens.report.comparison_words import names, sample_note
from imir_lens.report.html import environment, scripted, stylesheet
from imir_lens.report.markdown import code, table, text
from imir_lens.report.summary import KeyNumber

AGREE = "Task, knobs, contexts, seeds, search and the shape of the models are the same in both reports."


def _view(data: Mapping[str, Any]) -> dict[str, Any]:
    """Return what page and Markdown are filled with."""
    called = names(data)
    return {
        "data": data,
        "called": called,
        "sides": [
            {
                **data[side],
                "letter": letter,
                "name": name,
                "mechanism": words.MECHANISMS[data[side]["verdict"]["mechanism"]],
                "step": words.evidence_step(data[side]["verdict"]["evidence_level"]),
            }
            for side, letter, name in zip(SIDES, "AB", called, strict=True)
        ],
        "levels": words.EVIDENCE_LEVELS,
        "agree": AGREE,
        "sample": sample_note(data),
        "key_numbers": tables.key_tiles(data),
        "numbers": tables.numbers_table(data),
        "units": tables.units_table(data),
        "units_note": tables.units_note(data),
        "coordinates_note": tables.coordinates_note(data),
        "heads": tables.heads_table(data),
        "heads_note": tables.heads_note(data),
        "made": tables.made_table(data),
    }


def render_comparison_html(data: Mapping[str, Any]) -> str:
    """Return the whole page.

    Args:
        data: a comparison, see `comparison_schema.json`.
    """
    view, points = _view(data), data["coordinates"]["points"]
    return (
        environment()
        .get_template("comparison.html.j2")
        .render(
            **scripted(),
            stylesheet=stylesheet(),
            graphs=Markup(comparison_graphs(data, view["called"])),
            scatter=Markup(comparison_scatter(data, view["called"])) if points else "",
            **view,
        )
    )


def comparison_card(data: Mapping[str, Any]) -> Card:
    """Return what a notebook shows: headline, key numbers, graphs, units, and what does not compare.

    Args:
        data: a comparison.
    """
    called = names(data)
    name = card_name(data["headline"], data["command"], *(data[side]["model"]["source"] for side in SIDES))
    caveats = data["caveats"]
    count = f"{len(caveats)} caveat{'' if len(caveats) == 1 else 's'}"
    loud = [KeyNumber("what does not compare", count, " ".join(caveats))] if caveats else []
    return Card(
        kicker=f"Comparison: A, {called[0]}, and B, {called[1]}",
        headline=data["headline"],
        key_numbers=[*loud, *tables.key_tiles(data)],
        drawings=[comparison_graphs(data, called, name=name)],
        tables=[tables.units_table(data)],
        note="" if caveats else AGREE,
    )


def render_comparison_markdown(data: Mapping[str, Any], *, figures: bool = True) -> str:
    """Return the comparison as Markdown.

    Args:
        data: a comparison.
        figures: whether to link the figures that `Comparison.save` puts beside it.
    """
    view = _view(data)
    one, two = view["called"]
    parts = [f"# Comparison: A, {text(one)}, and B, {text(two)}\n", f"**{text(data['headline'])}**\n"]
    for side in view["sides"]:
        verdict = side["verdict"]
        level = f"{text(side['mechanism'])}, evidence level {text(verdict['evidence_level'])}"
        parts.append(f"- {side['letter']}, {text(side['name'])}: {level}. {text(verdict['text'])}")
        parts += [f"  - {text(caveat)}" for caveat in verdict["caveats"]]
    parts.append("\n## What does not compare\n")
    parts += [*([f"- {text(caveat)}" for caveat in data["caveats"]] or [AGREE]), ""]
    parts += [f"- {text(tile.label)}: **{text(tile.value)}** ({text(tile.note)})" for tile in view["key_numbers"]]
    parts += ["", f"{text(view['sample'])}\n", table(view["numbers"]), "## The circuits\n"]
    if figures:
        parts.append("![The two circuits, A above B](figures/circuits.svg)\n")
    parts += [*([table(view["units"])] if data["units"] else []), f"{text(view['units_note'])}\n"]
    parts.append("## The coordinates\n")
    if figures and data["coordinates"]["points"]:
        parts.append("![Values of coordinates in A and in B](figures/coordinates.svg)\n")
    parts += [f"{text(view['coordinates_note'])}\n", "## The heads\n"]
    parts += [*([table(view["heads"])] if view["heads"].rows else []), f"{text(view['heads_note'])}\n"]
    parts += ["## How it was made\n", f"{code(data['command'])}\n"]
    parts += [f"{side['letter']}: {code(side['command'])}\n" for side in view["sides"]]
    parts.append(table(view["made"]))
    return "\n".join(parts).rstrip() + "\n"
