"""`VerificationReport`: a verification's data with the files made from it."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from imir_lens.figures.style import standalone
from imir_lens.report.document import JSON_NAME, check_output, read_json, report_json, write_text
from imir_lens.report.storage import write_directory
from imir_lens.report.validation import ReportError, check_finite, check_schema, load_schema
from imir_lens.report.verification_render import (
    render_verification_html,
    render_verification_markdown,
    verification_figures,
)

SCHEMA_NAME: Final = "verification_schema.json"
_FIGURES: Final = ("attention", "posterior", "examples", "kernel", "errors", "copyers", "ablations")
_MADE: Final = ("report.html", "report.md", *(f"figures/{name}.svg" for name in _FIGURES))


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


def is_verification(directory: str | Path) -> bool:
    """Whether the report.json of a directory says that it is a verification's."""
    try:
        data = json.loads((Path(directory) / JSON_NAME).read_bytes())
    except (OSError, ValueError, RecursionError):
        return False
    return isinstance(data, dict) and str(data.get("schema", "")).startswith("imir-lens/verification/")


def _same_length(place: str, *lists: list[Any]) -> None:
    if len({len(one) for one in lists}) > 1:
        raise ReportError(f"report.{place}: expected lists of one length, found {[len(one) for one in lists]}")


class VerificationReport:
    """The outcome of a verification.

    Args:
        data: the report, see `verification_schema.json` in this package.

    Attributes:
        data: the report.
    """

    def __init__(self, data: dict[str, Any]) -> None:
        self.data = data

    @property
    def verdict(self) -> dict[str, Any]:
        """The verdict: mechanism, evidence level, text, caveats, and the checks behind it."""
        return dict(self.data["verdict"])

    def save(self, directory: str | Path, *, force: bool = False) -> Path:
        """Write report.html, report.json, report.md and the figures, all or none, as `Report.save` does.

        Args:
            directory: where to; made when missing.
            force: replace an older report.

        Returns:
            the directory.

        Raises:
            OptionError: when the directory is not empty and `force` is not given, or cannot be written to.
            ReportError: when the data does not follow the schema.
        """
        path = Path(directory)
        check_output(directory, force=force)
        validate_verification(self.data)

        def write(place: Path) -> None:
            write_text(place / JSON_NAME, report_json(self.data), "backslashreplace")
            _write_made(place, self.data)

        write_directory(path, write, owned=lambda _: map(Path, (*_MADE, JSON_NAME)))
        return path

    @classmethod
    def load(cls, path: str | Path) -> "VerificationReport":
        """Read a verification from its directory, or its report.json.

        Raises:
            ReportError: when it is missing, not JSON, or does not follow the schema.
        """
        place = Path(path)
        return cls(read_json(place / JSON_NAME if place.is_dir() else place, validate_verification))

    @classmethod
    def rebuild(cls, directory: str | Path) -> "VerificationReport":
        """Make HTML, Markdown and figures again from the report.json of a directory, which stays as it is.

        Raises:
            ReportError: when report.json is missing, not JSON, or does not follow the schema.
            OptionError: when the directory cannot be written to.
        """
        path = Path(directory)
        report = cls.load(path / JSON_NAME)
        write_directory(path, lambda place: _write_made(place, report.data), owned=lambda _: map(Path, _MADE))
        return report

    def __repr__(self) -> str:
        verdict = self.data["verdict"]
        return f"VerificationReport({verdict['mechanism']}, evidence: {verdict['evidence_level']}): {verdict['text']}"

    def _repr_markdown_(self) -> str:
        return render_verification_markdown(self.data, figures=False)


def _write_made(directory: Path, data: dict[str, Any]) -> None:
    """Write everything that is made from report.json."""
    (directory / "figures").mkdir()
    write_text(directory / "report.html", render_verification_html(data))
    write_text(directory / "report.md", render_verification_markdown(data))
    for name, drawing in verification_figures(data).items():
        write_text(directory / "figures" / f"{name}.svg", standalone(drawing))
