"""An atlas as one HTML file that needs nothing else, with a table that can be sorted, and as Markdown."""

from collections.abc import Mapping
from typing import Any

from markupsafe import Markup

from imir_lens.figures.head_map import head_maps
from imir_lens.report import atlas_tables as tables
from imir_lens.report.html import environment, policy, stylesheet
from imir_lens.report.markdown import code, table, text
from imir_lens.report.summary import subject

_SORTING = """\
for (const table of document.querySelectorAll("table.sortable")) {
  const heads = [...table.tHead.rows[table.tHead.rows.length - 1].cells];
  const value = (row, k) => row.cells[k].textContent.trim();
  const size = (t) => parseFloat(t.replace("\\u2212", "-").replace(/,/g, "").replace("\\u2212", "-"));
  heads.forEach((head, k) => {
    const sort = () => {
      const down = head.getAttribute("aria-sort") !== "descending";
      heads.forEach((other) => other.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", down ? "descending" : "ascending");
      const numbers = head.classList.contains("number");
      const rows = [...table.tBodies[0].rows].map((row, at) => [row, at]);
      rows.sort(([a, i], [b, j]) => {
        let order;
        if (numbers) {
          const [x, y] = [size(value(a, k)), size(value(b, k))];
          if (isNaN(x) || isNaN(y)) return isNaN(x) - isNaN(y) || i - j;
          order = x - y;
        } else order = value(a, k).localeCompare(value(b, k), undefined, { numeric: true });
        return (down ? -order : order) || i - j;
      });
      rows.forEach(([row]) => table.tBodies[0].append(row));
    };
    head.tabIndex = 0;
    head.addEventListener("click", sort);
    head.addEventListener("keydown", (event) => {
      if (event.key === "Enter" || event.key === " ") { event.preventDefault(); sort(); }
    });
  });
}"""


def render_atlas_html(data: Mapping[str, Any]) -> str:
    """Return the whole page.

    Args:
        data: an atlas, see `atlas_schema.json`.
    """
    return (
        environment()
        .get_template("heads.html.j2")
        .render(
            data=data,
            policy=policy([_SORTING]),
            script=Markup(_SORTING),
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
