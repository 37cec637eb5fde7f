"""`VerificationReport`: a verification's data with the files made from it."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from imir_lens.figures.figure import Figure
from imir_lens.report.json_files import write_text
from imir_lens.report.saved_report import SavedReport
from imir_lens.report.validation import ReportError, check_finite, check_schema, load_schema
from imir_lens.report.verification_figures import CAPTIONS, figure_makers, verification_card
from imir_lens.report.verification_render import render_verification_html, render_verification_markdown

SCHEMA_NAME: Final = "verification_schema.json"


def validate_verification(report: Mapping[str, Any]) -> None:
    """Check a verification's data: its schema, finite numbers, square attention, matrices without ragged rows.

    Raises:
        ReportError: one line that names the place, what stands there and what was expected.
    """
    check_finite(report)
    check_schema(report, load_schema(SCHEMA_NAME))
    for k, example in enumerate(report["examples"]):
        count = len(example["parents"])
        for field in ("attention", "posterior"):
            if [len(row) for row in example[field]] != [count] * count:
                raise ReportError(f"report.examples[{k}].{field}: expected {count} rows of {count} numbers")
    kernel = report["drawn"]["kernel"] or {}
    for name, panel in kernel.items():
        if panel is not None and len({len(row) for row in panel["matrix"]}) > 1:
            raise ReportError(f"report.drawn.kernel.{name}.matrix: expected rows of one length")
    cells, bins = report["drawn"]["cells"], report["behaviour"]["attention"]["calibration"]
    _same_length("drawn.cells", cells["posterior"], cells["attention"])
    _same_length("behaviour.attention.calibration", bins["attention"], bins["frequency"], bins["count"])
    copyers = report["drawn"]["copyers"]
    if copyers is not None:
        _same_length("drawn.copyers", copyers["heads"], copyers["over_examples"], copyers["over_offsets"])
        for row in copyers["over_offsets"]:
            _same_length("drawn.copyers.over_offsets", row, copyers["offsets"])
    parameters = report["parameters"]
    if parameters is not None:
        errors = [parameters[name]["per_example"] for name in ("column", "row") if parameters[name] is not None]
        _same_length("parameters", parameters["scales"], parameters["alignments"], *errors)
        if (parameters["column"] is None) != (parameters["row"] is None):
            raise ReportError("report.parameters: expected column and row errors, or neither")


def _same_length(place: str, *lists: list[Any]) -> None:
    if len({len(one) for one in lists}) > 1:
        raise ReportError(f"report.{place}: expected lists of one length, found {[len(one) for one in lists]}")


class VerificationReport(SavedReport):
    """The outcome of a verification.

    Args:
        data: the report, see `verification_schema.json` in this package.

    Attributes:
        data: the report.
    """

    made = ("report.html", "report.md", *(f"figures/{name}.svg" for name in CAPTIONS))

    @property
    def verdict(self) -> dict[str, Any]:
        """The verdict: mechanism, evidence level, text, caveats, and the checks behind it."""
        return dict(self.data["verdict"])

    @staticmethod
    def check(data: Mapping[str, Any]) -> None:
        """Check the data: see `validate_verification`."""
        validate_verification(data)

    def write_made(self, directory: Path) -> None:
        """Write report.html, report.md and the figures."""
        write_text(directory / "report.html", render_verification_html(self.data))
        write_text(directory / "report.md", render_verification_markdown(self.data))
        self.write_figures(directory, self.figures)

    def figure_makers(self) -> dict[str, Callable[[], Figure]]:
        """Return what draws each figure that there is data for: `attention`, `posterior`, `kernel` and so on."""
        return figure_makers(self.data)

    def __repr__(self) -> str:
        verdict = self.data["verdict"]
        return f"VerificationReport({verdict['mechanism']}, evidence: {verdict['evidence_level']}): {verdict['text']}"

    def _repr_html_(self) -> str:
        return verification_card(self.data).html()

    def _repr_markdown_(self) -> str:
        return render_verification_markdown(self.data, figures=False)
