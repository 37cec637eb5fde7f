"""An atlas as one HTML file that needs nothing else, with a table that can be sorted, and as Markdown."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

from markupsafe import Markup

from imir_lens.figures.head_map import head_maps
from imir_lens.report import atlas_tables as tables
from imir_lens.report.cards import Card, card_name
from imir_lens.report.html import environment, read_template, scripted, stylesheet
from imir_lens.report.markdown import code, table, text
from imir_lens.report.summary import subject

CARD_ROWS: Final = 20
"""Heads listed on a card."""


def render_atlas_html(data: Mapping[str, Any]) -> str:
    """Return the whole page.

    Args:
        data: an atlas, see `atlas_schema.json`.
    """
    return (
        environment()
        .get_template("heads.html.j2")
        .render(
            **scripted(read_template("sorting.js.j2").strip()),
            data=data,
            subject=subject(data),
            stylesheet=stylesheet(),
            key_numbers=tables.key_numbers(data),
            maps=Markup(head_maps(data)),
            labels=tables.labels_table(data),
            heads=tables.heads_table(data),
            evidence=tables.evidence_table(data),
            agreement=tables.agreement_table(data) if data["data"] is not None else None,
            check=tables.check_table(data) if data["check"] is not None else None,
            thresholds=tables.thresholds_note(data),
            paths=tables.paths_note(data),
            provenance=tables.provenance_table(data),
        )
    )


def render_atlas_markdown(data: Mapping[str, Any], *, figures: bool = True) -> str:
    """Return the atlas as Markdown, with the heads that have a label.

    Args:
        data: an atlas, see `atlas_schema.json`.
        figures: whether to link the figure that `Atlas.save` puts beside it.
    """
    parts = [
        f"# Heads of {text(subject(data))}\n",
        *(f"- {text(key.label)}: **{key.value}** ({text(key.note)})" for key in tables.key_numbers(data)),
        "",
        *(["![Scores of all heads](figures/heads.svg)\n"] if figures else []),
        table(tables.labels_table(data)),
        f"{text(tables.thresholds_note(data))}\n",
        table(tables.heads_table(data, labelled_only=True)),
        table(tables.evidence_table(data)),
        f"{text(tables.paths_note(data))}\n",
        *([] if data["data"] is None else ["## Weights against patterns\n", table(tables.agreement_table(data))]),
        *([] if data["check"] is None else ["## Removals\n", table(tables.check_table(data))]),
        "## How it was made\n",
        f"{code(data['command'])}\n",
        table(tables.provenance_table(data)),
    ]
    return "\n".join(parts).rstrip() + "\n"


def atlas_card(data: Mapping[str, Any]) -> Card:
    """Return what a notebook shows of an atlas.

    Args:
        data: an atlas, see `atlas_schema.json`.
    """
    labelled = tables.heads_table(data, labelled_only=True)
    # Most heads of a language model look at the first position, and at nothing else: the table of labels names them.
    rows = [row for row in labelled.rows if row[1] != tables.NAMES["sink"]]
    shown = replace(labelled, caption=f"{labelled.caption}, sinks left out", rows=rows[:CARD_ROWS])
    left = len(rows) - len(shown.rows)
    return Card(
        "heads of a model",
        subject(data),
        tables.key_numbers(data),
        [head_maps(data, name=card_name(data["model"]["source"], data["command"]))],
        [tables.labels_table(data), shown],
        f"{left} more stand in heads.html, which save() writes." if left else "",
    )


def atlas_caption(data: Mapping[str, Any]) -> str:
    """Say what the map of the heads is made from.

    Args:
        data: an atlas, see `atlas_schema.json`.
    """
    model, found = data["model"], data["data"]
    heads = f"{model['n_layers']} layers of {model['n_heads']} heads"
    seen = f"; seen: {found['contexts']:,} contexts of twice {found['length']:,} tokens" if found is not None else ""
    return f"{heads}. z: standard deviations over pairs of tokens, from the weights{seen}."
