"""`Atlas`: the table of a model's heads with the files made from it."""

import csv
import io
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from imir_lens.errors import OptionError
from imir_lens.figures.figure import Figure
from imir_lens.figures.head_map import head_maps
from imir_lens.report.atlas_render import atlas_caption, atlas_card, render_atlas_html, render_atlas_markdown
from imir_lens.report.atlas_tables import csv_rows
from imir_lens.report.json_files import write_text
from imir_lens.report.saved_report import SavedReport
from imir_lens.report.summary import subject
from imir_lens.report.validation import ReportError, check_finite, check_schema, load_schema

SCHEMA_NAME: Final = "atlas_schema.json"


def validate_atlas(data: Mapping[str, Any]) -> None:
    """Check an atlas: its schema, finite numbers, one entry for every head, in order.

    Raises:
        ReportError: one line that names the place, what stands there and what was expected.
    """
    check_finite(data)
    check_schema(data, load_schema(SCHEMA_NAME))
    model = data["model"]
    expected = [(layer, head) for layer in range(model["n_layers"]) for head in range(model["n_heads"])]
    if [(head["layer"], head["index"]) for head in data["heads"]] != expected:
        raise ReportError(f"report.heads: expected one entry for each of {len(expected)} heads, in order")


class Atlas(SavedReport):
    """The heads of a model.

    Args:
        data: the atlas, see `atlas_schema.json` in this package.

    Attributes:
        data: the atlas.
    """

    json_name = "atlas.json"
    made = ("heads.html", "heads.md", "heads.csv", "figures/heads.svg")

    @property
    def heads(self) -> list[dict[str, Any]]:
        """One entry for each head, in order."""
        return list(self.data["heads"])

    def head(self, name: str) -> dict[str, Any]:
        """Return the entry of one head.

        Args:
            name: e.g. `L1H0`.

        Raises:
            OptionError: when the model does not have it.
        """
        found = {head["head"]: head for head in self.heads}
        if name not in found:
            model = self.data["model"]
            raise OptionError(f"no head {name!r}: the model has {model['n_layers']} layers of {model['n_heads']} heads")
        return found[name]

    def labelled(self, name: str, *, source: str | None = None) -> list[str]:
        """Return the heads that have a label, e.g. `["L1H0"]`.

        Args:
            name: the label.
            source: only from `weights` or from `patterns`.
        """
        return [
            head["head"]
            for head in self.heads
            if any(label["name"] == name and source in (None, label["source"]) for label in head["labels"])
        ]

    def top(self, score: str, count: int = 5) -> list[str]:
        """Return the heads with the highest `induction` or `induction_copying`, or z of `same`, `copying` and so on."""

        def value(head: dict[str, Any]) -> float:
            found = head[score]
            return float(found["z"] if isinstance(found, dict) else found)

        return [head["head"] for head in sorted(self.heads, key=value, reverse=True)[:count]]

    @staticmethod
    def check(data: Mapping[str, Any]) -> None:
        """Check the data: see `validate_atlas`."""
        validate_atlas(data)

    def write_made(self, directory: Path) -> None:
        """Write heads.html, heads.md, heads.csv and the figure."""
        write_text(directory / "heads.html", render_atlas_html(self.data))
        write_text(directory / "heads.md", render_atlas_markdown(self.data))
        write_text(directory / "heads.csv", _csv(self.data))
        self.write_figures(directory, self.figures)

    def figure_makers(self) -> dict[str, Callable[[], Figure]]:
        """Return what draws the map of all heads, `heads`."""
        title = f"Heads of {subject(self.data)}"
        return {"heads": lambda: Figure(head_maps(self.data), title, atlas_caption(self.data))}

    def __repr__(self) -> str:
        names = ("previous_token", "induction", "duplicate_token", "copying", "sink")
        found = "".join(f"\n  {name:<16} {' '.join(self.labelled(name))}" for name in names if self.labelled(name))
        return f"Atlas({len(self.heads)} heads){found or ': no head has a label'}"

    def _repr_html_(self) -> str:
        return atlas_card(self.data).html()

    def _repr_markdown_(self) -> str:
        return render_atlas_markdown(self.data, figures=False)


def _csv(data: Mapping[str, Any]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerows(csv_rows(data))
    return text.getvalue()
