"""A verification's data as figures, as one HTML file that needs nothing else, and as Markdown."""

from collections.abc import Mapping
from typing import Any

from markupsafe import Markup

from imir_lens.report import verification_words as words
from imir_lens.report.html import environment, scripted, stylesheet
from imir_lens.report.markdown import code, table, text
from imir_lens.report.summary import subject
from imir_lens.report.verification_figures import CAPTIONS, figure_makers
from imir_lens.report.words import MECHANISMS


def curve_note(report: Mapping[str, Any]) -> str:
    """Say how to read the curve over the number of examples."""
    behaviour = report["behaviour"]
    if len(behaviour["curve"]) == 1:
        return "An ordinary transformer's positions are fixed: it was tried with the task's number of examples only."
    built = behaviour["built_for"]
    return (
        f"The model was built for {built} example{'s' if built > 1 else ''}: of more it sees the nearest only, and the "
        f"best it can do is BMA of the last {built}. With fewer, heads whose own example is missing look at the others."
    )


def render_verification_html(report: Mapping[str, Any]) -> str:
    """Return the whole page.

    Args:
        report: the data of a verification, see `verification_schema.json`.
    """
    makers = figure_makers(report)
    return (
        environment()
        .get_template("verification.html.j2")
        .render(
            **scripted(),
            report=report,
            subject=subject(report),
            stylesheet=stylesheet(),
            mechanism=MECHANISMS[report["verdict"]["mechanism"]],
            step=words.evidence_step(report),
            key_numbers=words.key_numbers(report),
            figures={name: Markup(makers[name]().drawing if name in makers else "") for name in CAPTIONS},
            losses=words.losses_table(report),
            curve=words.curve_table(report),
            curve_note=curve_note(report),
            heads=words.heads_table(report),
            kernel=words.kernel_table(report),
            kernel_note=words.kernel_note(report),
            copyers=words.copyers_table(report),
            ablations=words.ablations_table(report),
            checks=words.checks_table(report),
            provenance=words.provenance_table(report),
        )
    )


def render_verification_markdown(report: Mapping[str, Any], *, figures: bool = True) -> str:
    """Return the verification as Markdown.

    Args:
        report: the data of a verification, see `verification_schema.json`.
        figures: whether to link the figures that `VerificationReport.save` puts beside it.
    """
    verdict = report["verdict"]
    present = figure_makers(report) if figures else {}
    kernel, copyers, ablations = words.kernel_table(report), words.copyers_table(report), words.ablations_table(report)

    def picture(name: str) -> list[str]:
        return [f"![{CAPTIONS[name]}](figures/{name}.svg)\n"] if name in present else []

    parts = [
        f"# Verification: {text(subject(report))} on {text(report['task']['name'])}\n",
        f"**{text(verdict['text'])}**\n",
        f"Mechanism: {MECHANISMS[verdict['mechanism']]}. Evidence level: {text(verdict['evidence_level'])}.\n",
        *(f"- {text(key.label)}: **{key.value}** ({text(key.note)})" for key in words.key_numbers(report)),
        "\n## Tier 1: what it does\n",
        *picture("attention"),
        *picture("posterior"),
        table(words.losses_table(report)),
        *picture("examples"),
        f"{text(curve_note(report))}\n",
        table(words.curve_table(report)),
        table(words.heads_table(report)),
        "## Tier 2: what the weights say\n",
        *picture("kernel"),
        *picture("errors"),
        *([] if kernel is None else [table(kernel)]),
        f"{text(words.kernel_note(report))}\n",
        "## Tier 3: how it does it\n",
        *picture("copyers"),
        *([table(copyers)] if copyers.rows else ["No head copies from one place of the examples.\n"]),
        *picture("ablations"),
        *([table(ablations)] if ablations.rows else []),
        "## What was asked, and what was found\n",
        table(words.checks_table(report)),
        "## Caveats\n",
        *([f"- {text(caveat)}" for caveat in verdict["caveats"]] or ["None were recorded."]),
        "\n## How it was made\n",
        f"{code(report['command'])}\n",
        table(words.provenance_table(report)),
    ]
    return "\n".join(parts).rstrip() + "\n"
