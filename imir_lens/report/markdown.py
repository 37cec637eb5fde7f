"""The report as Markdown: the same content, figures as links, patterns as text."""

import re
from collections.abc import Mapping
from typing import Any

from imir_lens.figures.style import Real, number, printable, role_symbol, visible
from imir_lens.report import summary, tables, trajectory_view, words


def text(value: str) -> str:
    r"""Escape what Markdown or the HTML in it would read as markup.

    >>> text("a*b <script> | c")
    'a\\*b \\<script\\> \\| c'
    """
    return re.sub(r"([\\`*_\[\]<>|#~])", r"\\\1", printable(" ".join(value.split())))


def code(value: str) -> str:
    """Return a code span that holds any text."""
    plain = printable(" ".join(value.split())) or " "
    longest = max((len(run) for run in re.findall(r"`+", plain)), default=0)
    fence, pad = "`" * (longest + 1), " " if longest else ""
    return f"{fence}{pad}{plain}{pad}{fence}"


def _cell(column: tables.Column, value: str) -> str:
    if column.kind == "code":
        # A table's row is split at its bars before code is read, so they need an escape there and only there.
        return "<br>".join(code(line).replace("|", "\\|") for line in value.split("\n"))
    if column.kind == "role":
        return f"{text(role_symbol(value))} {text(value)}"
    return text(value)


def table(data: tables.Table) -> str:
    """Write a table; the heading over a group of columns goes into each of them."""
    titles = [f"{column.group}: {column.title}" if column.group else column.title for column in data.columns]
    rules = ["---:" if column.kind == "number" else "---" for column in data.columns]
    rows = [[_cell(c, value) for c, value in zip(data.columns, row, strict=True)] for row in data.rows]
    lines = [f"| {' | '.join(cells)} |" for cells in ([text(title) for title in titles], rules, *rows)]
    return "\n".join([f"{text(data.caption)}:", "", *lines, ""])


def _example(k: int, example: Mapping[str, Any]) -> str:
    """Write one context and what each head attends to from its query."""
    tokens = [visible(token) for token in example["tokens"]]
    query = example["query"]
    shown = " ".join(f"[{token}]" if position == query else token for position, token in enumerate(tokens))
    lines = [
        f"Context {k + 1}: {code(shown)} → {code(visible(example['target']))}, predicted "
        f"{code(visible(example['prediction']))} with probability {number(example['probability'])}. From the query:",
        "",
    ]
    for head, pattern in example["attention"].items():
        row: list[Real] = pattern[query]
        best = sorted(enumerate(row), key=lambda place: (-place[1], place[0]))[:3]
        seen = ", ".join(f"{code(tokens[j])} at {j}: {share:.0%}" for j, share in best if share >= 0.005)
        lines.append(f"- {text(head)}: {seen}")
    return "\n".join([*lines, ""])


def _training(report: Mapping[str, Any], *, figures: bool) -> list[str]:
    """Say what emerged when, where a run was followed along its training."""
    training = trajectory_view.view(report)
    if training is None:
        return []
    return [
        "## Along training\n",
        f"**{text(training.headline)}**\n",
        *(["![Coordinates, loss and attention](figures/trajectory.svg)\n"] if figures else []),
        f"{text(training.rule)}\n",
        table(training.roles),
        *([table(training.swaps)] if training.swaps.rows else []),
    ]


def render_markdown(report: Mapping[str, Any], *, figures: bool = True) -> str:
    """Return the report as Markdown.

    Args:
        report: the data of a report, see `schema.json`.
        figures: whether to link the figures that `Report.save` puts beside it.

    Returns:
        the text of a Markdown file.
    """
    verdict, unexplained = report["verdict"], report["unexplained"]
    parts = [
        f"# Circuit report: {text(summary.subject(report))} on {text(report['task']['name'])}\n",
        f"**{text(verdict['text'])}**\n",
        f"Mechanism: {words.MECHANISMS[verdict['mechanism']]}. Evidence level: {text(verdict['evidence_level'])}.\n",
        *(f"- {text(key.label)}: **{key.value}** ({text(key.note)})" for key in summary.key_numbers(report)),
        "\nLosses are mean cross-entropies in nats on test contexts that the search did not use.\n",
    ]
    if verdict["mechanism"] == "not_detected":
        parts.append("## What was looked for, and what was found\n")
        parts += [f"- {name}: {text(note)}" for name, note in summary.not_detected_notes(report)]
        parts.append("")
    parts.append("## The circuit\n")
    if figures:
        parts.append("![The circuit as a graph](figures/circuit.svg)\n")
    if report["circuit"]["units"]:
        parts += [table(tables.units_table(report)), table(tables.roles_table(report))]
        parts.append(f"{text(summary.faithfulness_note(report))}\n")
        separate = tables.separate_table(report)
        if separate is not None:
            parts += [f"{text(summary.separate_note(report))}\n", table(separate)]
    else:
        parts.append("No unit survived.\n")
        kinds = tables.kinds_table(report)
        if kinds is not None:
            parts += [f"{summary.KINDS_NOTE}\n", table(kinds)]
    if summary.attributed(report):
        parts.append("## Which coordinates matter\n")
        parts.append(
            "Attribution: how much a coordinate accounts for of the fall of the surrogate's loss from no coordinates "
            "to all of them, in nats; positive means that it helps.\n"
        )
        if figures:
            parts.append("![Attributions and the cut](figures/attribution.svg)\n")
        parts.append(table(tables.coordinates_table(report, most=20)))
    if report["examples"]:
        parts.append("## Where the heads look\n")
        if figures:
            parts.append("![Attention patterns on the first context](figures/attention.svg)\n")
        parts += [_example(k, example) for k, example in enumerate(report["examples"])]
    parts += ["## How well it does\n", table(tables.evaluation_table(report))]
    parts += ["## The heads\n", table(tables.heads_table(report))]
    parts += [
        *_training(report, figures=figures),
        "## What is not explained\n",
        f"{number(unexplained['score_variance'])} of the variance of the scores and "
        f"{number(unexplained['readout_variance'])} of that of the readout.\n",
        "## Caveats\n",
        *([f"- {text(caveat)}" for caveat in verdict["caveats"]] or ["None were recorded."]),
        "\n## How it was made\n",
        f"{code(report['command'])}\n",
        table(tables.provenance_table(report)),
    ]
    return "\n".join(parts).rstrip() + "\n"
