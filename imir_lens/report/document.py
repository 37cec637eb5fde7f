"""`Report`: a report's data with the files made from it."""

import json
import shutil
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Final, Protocol, runtime_checkable

from imir_lens.errors import OptionError
from imir_lens.figures.attention import attention_figure
from imir_lens.figures.attribution import attribution_chart
from imir_lens.figures.circuit_graph import circuit_graph
from imir_lens.figures.style import standalone
from imir_lens.report.html import render_card, render_html
from imir_lens.report.markdown import render_markdown
from imir_lens.report.storage import check_writable, write_directory
from imir_lens.report.validation import ReportError, validate

JSON_NAME: Final = "report.json"
_BULKY: Final = ("examples", "drawn")  # what figures are drawn from: patterns and matrices
COORDINATES_NAME: Final = "coordinates.safetensors"
_MADE: Final = ("report.html", "report.md", "figures/circuit.svg", "figures/attribution.svg", "figures/attention.svg")


@runtime_checkable
class Savable(Protocol):
    """Anything with a `save(path)`: the coordinates of a model."""

    def save(self, path: Path) -> object:
        """Write to a file."""
        ...


class SavedCoordinates:
    """Coordinates that stand in a file already; saving copies it."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def save(self, path: Path) -> None:
        """Copy the file to `path`."""
        shutil.copyfile(self.path, path)


def report_json(data: dict[str, Any]) -> str:
    """Return the text of report.json: in the given order, floats in full, one line per example context or figure.

    Args:
        data: a report.

    Raises:
        ReportError: for a number that JSON does not have.
    """
    try:
        parts = []
        for key, value in data.items():
            if key in _BULKY and value:
                block = _a_line_each(value)
            else:
                block = json.dumps(value, indent=1, allow_nan=False, ensure_ascii=False).replace("\n", "\n ")
            parts.append(f" {json.dumps(key)}: {block}")
    except ValueError as error:
        raise ReportError(f"report.{key}: {error}; a report holds finite numbers only") from error
    return "{\n" + ",\n".join(parts) + "\n}\n"


def _a_line_each(value: dict[str, Any] | list[Any]) -> str:
    """Write a list or an object with one line for each of its members."""

    def line(member: Any) -> str:
        return json.dumps(member, separators=(",", ":"), allow_nan=False, ensure_ascii=False)

    if isinstance(value, dict):
        lines, ends = [f"{line(name)}: {line(member)}" for name, member in value.items()], "{}"
    else:
        lines, ends = [line(member) for member in value], "[]"
    return f"{ends[0]}\n  " + ",\n  ".join(lines) + f"\n {ends[1]}"


def write_text(path: Path, text: str, errors: str = "xmlcharrefreplace") -> None:
    """Write a text; `errors` says what becomes of what UTF-8 cannot hold."""
    path.write_bytes(text.encode("utf-8", errors))


def _write_made(directory: Path, data: dict[str, Any]) -> None:
    """Write everything that is made from report.json."""
    (directory / "figures").mkdir()
    write_text(directory / "report.html", render_html(data))
    write_text(directory / "report.md", render_markdown(data))
    figures = {"circuit": circuit_graph(data), "attribution": attribution_chart(data)}
    if data["examples"]:
        figures["attention"] = attention_figure(data["examples"][0])
    for name, drawing in figures.items():
        write_text(directory / "figures" / f"{name}.svg", standalone(drawing))


def read_json(path: Path, check: Callable[[Mapping[str, Any]], None] = validate) -> dict[str, Any]:
    """Read a report's data and check it.

    Raises:
        ReportError: when it is missing, not JSON, or `check` refuses it.
    """

    def refuse(constant: str) -> None:
        raise ReportError(f"{str(path)!r} holds {constant}: a report holds finite numbers only")

    try:
        data = json.loads(path.read_bytes(), parse_constant=refuse)
    except OSError as error:
        raise ReportError(f"cannot read {str(path)!r}: {error.strerror}; expected a {JSON_NAME}") from error
    except UnicodeDecodeError as error:
        raise ReportError(f"{str(path)!r} is not JSON: byte {error.start} is not text") from error
    except json.JSONDecodeError as error:
        raise ReportError(
            f"{str(path)!r} is not JSON: {error.msg} at line {error.lineno}, column {error.colno}"
        ) from error
    except RecursionError as error:
        raise ReportError(f"{str(path)!r} is not a report: it is nested too deeply") from error
    if not isinstance(data, dict):
        raise ReportError(f"{str(path)!r} is not a report: expected an object, found {type(data).__name__}")
    try:
        check(data)
    except ReportError as error:
        raise ReportError(f"{str(path)!r}: {error}") from error
    return data


class Report:
    """The outcome of an analysis.

    Args:
        data: the report, see `schema.json` in this package.
        coordinates: the model's coordinates, saved beside the report; None when they are not at hand.

    Attributes:
        data: the report.
        coordinates: the model's coordinates, or None.
    """

    def __init__(self, data: dict[str, Any], coordinates: Savable | None = None) -> None:
        self.data = data
        self.coordinates = coordinates

    @property
    def verdict(self) -> dict[str, Any]:
        """The verdict: mechanism, evidence level, text, caveats."""
        return dict(self.data["verdict"])

    @property
    def units(self) -> list[dict[str, Any]]:
        """The circuit's units."""
        return list(self.data["circuit"]["units"])

    def save(self, directory: str | Path, *, force: bool = False) -> Path:
        """Write report.html, report.json, report.md, the figures and, where at hand, coordinates.safetensors.

        Either all files are written or none; an older report in the directory survives a failure, and files that are
        not a report's are never touched.

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
        validate(self.data)

        def write(place: Path) -> None:
            write_text(place / JSON_NAME, report_json(self.data), "backslashreplace")
            _write_made(place, self.data)
            if self.coordinates is not None:
                self.coordinates.save(place / COORDINATES_NAME)

        write_directory(path, write, owned=lambda _: map(Path, (*_MADE, JSON_NAME, COORDINATES_NAME)))
        return path

    @classmethod
    def load(cls, path: str | Path) -> "Report":
        """Read a report.

        Args:
            path: its directory, or its report.json.

        Raises:
            ReportError: when it is missing, not JSON, or does not follow the schema.
        """
        place = Path(path)
        file = place / JSON_NAME if place.is_dir() else place
        saved = file.parent / COORDINATES_NAME
        return cls(read_json(file), SavedCoordinates(saved) if saved.is_file() else None)

    @classmethod
    def rebuild(cls, directory: str | Path) -> "Report":
        """Make HTML, Markdown and figures again from the report.json of a directory, which stays as it is.

        Args:
            directory: a directory with a report.json.

        Returns:
            the report.

        Raises:
            ReportError: when report.json is missing, not JSON, or does not follow the schema.
            OptionError: when the directory cannot be written to.
        """
        path = Path(directory)
        report = cls.load(path / JSON_NAME)
        write_directory(path, lambda place: _write_made(place, report.data), owned=lambda _: map(Path, _MADE))
        return report

    def __repr__(self) -> str:
        verdict, circuit = self.data["verdict"], self.data["circuit"]
        units = "".join(f"\n  {unit['role']:<10} {unit['id']}" for unit in circuit["units"])
        return f"Report({verdict['mechanism']}, evidence: {verdict['evidence_level']}): {verdict['text']}{units}"

    def _repr_html_(self) -> str:
        return render_card(self.data)

    def _repr_markdown_(self) -> str:
        return render_markdown(self.data, figures=False)


def check_output(directory: str | Path, *, force: bool) -> None:
    """Refuse an output directory that is taken or cannot be written, before any work is done for it.

    Raises:
        OptionError: when it is a file, not empty and `force` is not given, or cannot be made or written.
    """
    if not str(directory):
        raise OptionError("the path of the output directory is empty; give a directory with --out")
    path = Path(directory)
    try:
        occupied: Iterable[Path] = list(path.iterdir()) if path.is_dir() else []
        taken = path.exists() and not path.is_dir()
    except OSError as error:
        raise OptionError(
            f"cannot read {str(path)!r}: {error.strerror}; choose another directory with --out"
        ) from error
    if taken:
        raise OptionError(f"{str(path)!r} is a file; give a directory with --out")
    if occupied and not force:
        raise OptionError(f"{str(path)!r} exists; pass --force to overwrite")
    check_writable(path)
