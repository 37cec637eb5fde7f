"""`Comparison`: two circuit reports beside each other, with the files made from them."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from imir_lens.figures.comparison_graphs import comparison_graphs
from imir_lens.figures.comparison_scatter import comparison_scatter
from imir_lens.figures.figure import Figure
from imir_lens.report.comparison_render import (
    comparison_card,
    render_comparison_html,
    render_comparison_markdown,
)
from imir_lens.report.comparison_tables import circuits_note, coordinates_note
from imir_lens.report.comparison_units import SIDES
from imir_lens.report.comparison_words import names
from imir_lens.report.json_files import write_text
from imir_lens.report.saved_report import SavedReport
from imir_lens.report.validation import ReportError, check_finite, check_schema, load_schema, validate

SCHEMA: Final = "imir-lens/comparison/1"
SCHEMA_NAME: Final = "comparison_schema.json"


def validate_comparison(data: Mapping[str, Any]) -> None:
    """Check a comparison: its schema, finite numbers, both reports, and that every row has a unit.

    Raises:
        ReportError: one line that names the place, what stands there and what was expected.
    """
    check_finite(data)
    check_schema(data, load_schema(SCHEMA_NAME))
    for side in SIDES:
        try:
            validate({**data[side], "coordinates": [], "examples": []})
        except ReportError as error:
            raise ReportError(f"report.{side}: {error}") from error
    for at, row in enumerate(data["units"]):
        if not any(row[side] and row[side]["in_circuit"] for side in SIDES):
            raise ReportError(f"report.units[{at}]: expected a unit of the first circuit or of the second")


class Comparison(SavedReport):
    """Two circuit reports beside each other.

    Args:
        data: the comparison, see `comparison_schema.json` in this package.

    Attributes:
        data: the comparison.
    """

    json_name = "comparison.json"
    made = ("comparison.html", "comparison.md", "figures/circuits.svg", "figures/coordinates.svg")

    @property
    def headline(self) -> str:
        """What is the same and what differs, in one sentence."""
        return str(self.data["headline"])

    @property
    def units(self) -> list[dict[str, Any]]:
        """The units of both circuits, matched by id, or by role and shape."""
        return list(self.data["units"])

    @property
    def caveats(self) -> list[str]:
        """What does not compare."""
        return list(self.data["caveats"])

    @property
    def jaccard(self) -> dict[str, float | None]:
        """Jaccard indices of the two circuits: by `id` and by `shape`."""
        return dict(self.data["jaccard"])

    @staticmethod
    def check(data: Mapping[str, Any]) -> None:
        """Check the data: see `validate_comparison`."""
        validate_comparison(data)

    def write_made(self, directory: Path) -> None:
        """Write comparison.html, comparison.md and the figures."""
        write_text(directory / "comparison.html", render_comparison_html(self.data))
        write_text(directory / "comparison.md", render_comparison_markdown(self.data))
        self.write_figures(directory, self.figures)

    def figure_makers(self) -> dict[str, Callable[[], Figure]]:
        """Return what draws each figure: `circuits`, and `coordinates` where there are points to draw."""
        data, called = self.data, names(self.data)
        tested = circuits_note(data)
        made = {"circuits": lambda: Figure(comparison_graphs(data, called), self.headline, tested)}
        if data["coordinates"]["points"]:
            title = f"Coordinates of {called[0]} and {called[1]}"
            made["coordinates"] = lambda: Figure(comparison_scatter(data, called), title, coordinates_note(data))
        return made

    def __repr__(self) -> str:
        caveats = "".join(f"\n  Caveat: {caveat}" for caveat in self.caveats)
        return f"Comparison: {self.headline}{caveats}"

    def _repr_html_(self) -> str:
        return comparison_card(self.data).html()

    def _repr_markdown_(self) -> str:
        return render_comparison_markdown(self.data, figures=False)
