"""`Report`: a report's data with the files made from it."""

import shutil
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Protocol, runtime_checkable

from imir_lens.figures.figure import Drawn, Figure
from imir_lens.ids import Head
from imir_lens.report import report_figures
from imir_lens.report.html import render_html
from imir_lens.report.json_files import write_text
from imir_lens.report.markdown import render_markdown
from imir_lens.report.saved_report import SavedReport
from imir_lens.report.validation import validate

if TYPE_CHECKING:
    from imir_lens.coordinates import Coordinates

COORDINATES_NAME: Final = "coordinates.safetensors"
_SAVED: Final = ("circuit", "attribution", "attention", "trajectory")


@runtime_checkable
class Savable(Protocol):
    """Anything with a `save(path)`: the coordinates of a model."""

    def save(self, path: Path) -> object:
        """Write to a file."""
        ...


class SavedCoordinates(Drawn):
    """Coordinates that stand in a file already: saving copies it, drawing reads it."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def save(self, path: Path) -> None:
        """Copy the file to `path`."""
        shutil.copyfile(self.path, path)

    def load(self) -> "Coordinates":
        """Read the file."""
        from imir_lens.coordinates import Coordinates

        return Coordinates.load(self.path)

    def figure_makers(self) -> dict[str, Callable[[], Figure]]:
        """Return what draws the coordinates of each head, by its name, and of the `readout`."""
        return self.load().figure_makers()


class Report(SavedReport):
    """The outcome of an analysis.

    Args:
        data: the report, see `schema.json` in this package.
        coordinates: the model's coordinates, saved beside the report; None when they are not at hand.

    Attributes:
        data: the report.
        coordinates: the model's coordinates, or None.
    """

    made = ("report.html", "report.md", *(f"figures/{name}.svg" for name in _SAVED))
    beside = (COORDINATES_NAME,)

    def __init__(self, data: dict[str, Any], coordinates: Savable | None = None) -> None:
        super().__init__(data)
        self.coordinates = coordinates

    @property
    def verdict(self) -> dict[str, Any]:
        """The verdict: mechanism, evidence level, text, caveats."""
        return dict(self.data["verdict"])

    @property
    def units(self) -> list[dict[str, Any]]:
        """The circuit's units."""
        return list(self.data["circuit"]["units"])

    @staticmethod
    def check(data: Mapping[str, Any]) -> None:
        """Check a report: see `validate`."""
        validate(data)

    def write_made(self, directory: Path) -> None:
        """Write report.html, report.md and the figures, attention of the first context among them."""
        write_text(directory / "report.html", render_html(self.data))
        write_text(directory / "report.md", render_markdown(self.data))
        there = self.figures
        self.write_figures(directory, [name for name in _SAVED if name in there])

    def figure_makers(self) -> dict[str, Callable[[], Figure]]:
        """Return what draws each figure, by name.

        `circuit`, `attribution`, `attention`, `attention_2` … for the report's contexts, `trajectory` where training
        was followed; where the coordinates are at hand each head's, as `L1H0`, and the `readout`.
        """
        makers = report_figures.figure_makers(self.data)
        if isinstance(self.coordinates, Drawn):
            model = self.data["model"]
            heads = [Head(layer, head) for layer in range(model["n_layers"]) for head in range(model["n_heads"])]
            makers |= {name: partial(self._draw_coordinates, name) for name in (*map(str, heads), "readout")}
        return makers

    def _draw_coordinates(self, name: str) -> Figure:
        """Draw a head's coordinates, or the readout's, with the circuit outlined."""
        # Only here: coordinates are tensors, and a report by itself needs no torch.
        from imir_lens.report.circuit_card import coordinate_figures

        kept: Any = self.coordinates
        found = kept.load() if isinstance(kept, SavedCoordinates) else kept
        return coordinate_figures(found, {unit["id"]: unit["role"] for unit in self.units})[name]()

    def write_beside(self, directory: Path) -> None:
        """Write coordinates.safetensors, where the coordinates are at hand."""
        if self.coordinates is not None:
            self.coordinates.save(directory / COORDINATES_NAME)

    @classmethod
    def load(cls, path: str | Path) -> "Report":
        """Read a report, and the coordinates saved beside it.

        Args:
            path: its directory, or its report.json.

        Raises:
            ReportError: when it is missing, not JSON, or does not follow the schema.
        """
        report, place = super().load(path), Path(path)
        saved = (place if place.is_dir() else place.parent) / COORDINATES_NAME
        report.coordinates = SavedCoordinates(saved) if saved.is_file() else None
        return report

    def __repr__(self) -> str:
        verdict, circuit = self.data["verdict"], self.data["circuit"]
        units = "".join(f"\n  {unit['role']:<10} {unit['id']}" for unit in circuit["units"])
        return f"Report({verdict['mechanism']}, evidence: {verdict['evidence_level']}): {verdict['text']}{units}"

    def _repr_html_(self) -> str:
        return report_figures.report_card(self.data).html()

    def _repr_markdown_(self) -> str:
        return render_markdown(self.data, figures=False)
