"""The report as one HTML file that needs nothing else: no network, no server, no other file."""

import hashlib
import re
from base64 import b64encode
from collections.abc import Iterable, Mapping
from functools import cache
from importlib.resources import files
from typing import Any

from jinja2 import Environment, FunctionLoader, StrictUndefined
from markupsafe import Markup

from imir_lens.figures import style
from imir_lens.figures.attention import attention_figure, panel_id
from imir_lens.figures.attribution import attribution_chart
from imir_lens.figures.circuit_graph import circuit_graph
from imir_lens.report import attention_view, summary, tables, trajectory_view, words


def read_template(name: str) -> str:
    """Return the text of a template of this package, as it stands."""
    return files("imir_lens.report").joinpath(name).read_text("utf-8")


def _finalize(value: Any) -> Any:
    """Escape control characters of every string a template prints; the HTML escapes come after."""
    return style.printable(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def _linked(value: str, anchors: Mapping[str, str]) -> Markup:
    """Make links of the heads that a text names, where the page shows them (`anchors`: id by name)."""
    parts = re.split(r"(L\d+H\d+)", value)
    return Markup(
        "".join(f'<a href="#{anchors[part]}">{part}</a>' if part in anchors else style.markup(part) for part in parts)
    )


@cache
def environment() -> Environment:
    """Return the templates of this package, with what every page needs."""
    made = Environment(
        loader=FunctionLoader(read_template),
        autoescape=True,
        undefined=StrictUndefined,
        finalize=_finalize,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    made.filters.update(
        linked=_linked,
        number=style.number,
        role_class=style.role_class,
        role_symbol=style.role_symbol,
        visible=style.visible,
    )
    return made


def policy(scripts: list[str]) -> str:
    """Return a content policy: nothing is fetched, and no script runs but these."""
    hashes = [f"'sha256-{b64encode(hashlib.sha256(code.encode()).digest()).decode()}'" for code in scripts]
    allowed = " ".join(hashes) or "'none'"
    return f"default-src 'none'; style-src 'unsafe-inline'; script-src {allowed}; base-uri 'none'; form-action 'none'"


def scripted(*more: str) -> dict[str, Any]:
    """Return what a page's template needs to run the script of every page, and others after it.

    Args:
        more: the texts of the other scripts.
    """
    scripts = [read_template("page.js.j2").strip(), *more]
    return {"policy": policy(scripts), "scripts": [Markup(code) for code in scripts]}


def stylesheet(*, dark: bool = True) -> Markup:
    """Return the rules of every page, figures included: in both themes, or without `dark` in the light one only."""
    rendered = (
        environment()
        .get_template("style.css.j2")
        .render(
            dark=dark,
            font=Markup(style.FONT),
            mono=Markup(style.MONO),
            themes=style.THEMES,
            roles=style.ROLE_COLOURS,
            svg_light=Markup(style.svg_css("light")),
            svg_dark=Markup(style.svg_css("dark")),
        )
    )
    return Markup(rendered)


def _examples(report: Mapping[str, Any], *, interactive: bool) -> list[dict[str, Any]]:
    """Return each context with its figure and the data of its interactive view, where they fit into the page."""
    examples = report["examples"]
    figures = [attention_figure(example, name=f"attention-{k}") for k, example in enumerate(examples)]
    data = [attention_view.as_data(attention_view.attention_props(example)) for example in examples]
    return [
        {
            **example,
            "figure": Markup(figure or ""),
            "data": Markup((interactive and block) or ""),
            "right": example["prediction"] == example["target"],
        }
        for example, figure, block in zip(
            examples,
            attention_view.fitting(figures, attention_view.MOST_FIGURES),
            attention_view.fitting(data, attention_view.MOST_DATA),
            strict=True,
        )
    ]


def _anchors(examples: list[dict[str, Any]]) -> dict[str, str]:
    """Return where each head is shown: the id of its panel in the first context that has a figure."""
    found: dict[str, str] = {}
    for k, example in enumerate(examples):
        for head in example["attention"] if example["figure"] else ():
            found.setdefault(head, panel_id(f"attention-{k}", head))
    return found


def _shown(report: Mapping[str, Any], heads: Iterable[str]) -> list[tuple[str, list[dict[str, Any]]]]:
    """Return each head with the units that name it, and their rows in the table of units."""
    units = [
        {"row": row, "role": unit["role"], "relation": unit["id"].rpartition("/")[2], "id": unit["id"]}
        for row, unit in enumerate(report["circuit"]["units"])
    ]
    return [(head, [u for u in units if head in re.findall(r"L\d+H\d+", u["id"])]) for head in heads]


def render_html(report: Mapping[str, Any]) -> str:
    """Return the whole page.

    Args:
        report: the data of a report, see `schema.json`.

    Returns:
        the text of an HTML file.
    """
    bundle = attention_view.read_bundle() if report["examples"] else None
    examples = _examples(report, interactive=bundle is not None)
    anchors = _anchors(examples)
    interactive = bundle is not None and any(example["data"] for example in examples)
    more = [bundle, read_template("attention.js.j2").strip()] if bundle is not None and interactive else []
    return (
        environment()
        .get_template("report.html.j2")
        .render(
            **scripted(*more),
            report=report,
            subject=summary.subject(report),
            stylesheet=stylesheet(),
            installed=bundle is not None,
            interactive=interactive,
            circuitsvis=attention_view.bundle_version() if bundle is not None else "",
            licences=attention_view.LICENCES if interactive else (),
            examples=examples,
            anchors=anchors,
            shown=_shown(report, anchors),
            graph=Markup(circuit_graph(report)),
            chart=Markup(attribution_chart(report)),
            mechanism=words.MECHANISMS[report["verdict"]["mechanism"]],
            levels=words.EVIDENCE_LEVELS,
            step=words.evidence_step(report["verdict"]["evidence_level"]),
            key_numbers=summary.key_numbers(report),
            notes=summary.not_detected_notes(report) if report["verdict"]["mechanism"] == "not_detected" else [],
            faithfulness_note=summary.faithfulness_note(report),
            units=tables.units_table(report),
            roles=tables.roles_table(report),
            separate=tables.separate_table(report),
            separate_note=summary.separate_note(report),
            attributed=summary.attributed(report),
            kinds=tables.kinds_table(report),
            kinds_note=summary.KINDS_NOTE,
            evaluation=tables.evaluation_table(report),
            heads=tables.heads_table(report),
            coordinates=tables.coordinates_table(report),
            provenance=tables.provenance_table(report),
            training=trajectory_view.view(report),
        )
    )
