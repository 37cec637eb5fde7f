"""What reports of every kind have in common: their data, and a directory with the files made from it."""

from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, ClassVar, TypeVar

from imir_lens.figures.figure import Drawn
from imir_lens.report.json_files import read_json, report_json, write_text
from imir_lens.report.storage import check_output, write_directory

SavedKind = TypeVar("SavedKind", bound="SavedReport")


class SavedReport(Drawn):
    """The data of a report, and its directory: one JSON file, and everything that is made from it.

    Args:
        data: the report.

    Attributes:
        data: the report.
        json_name: name of its JSON file.
        made: the files made from it, relative to the directory.
    """

    json_name: ClassVar[str] = "report.json"
    made: ClassVar[tuple[str, ...]] = ()

    def __init__(self, data: dict[str, Any]) -> None:
        self.data = data

    @staticmethod
    def check(data: Mapping[str, Any]) -> None:
        """Check a report's data.

        Args:
            data: the report.

        Raises:
            ReportError: one line that names the place, what stands there and what was expected.
        """
        raise NotImplementedError

    def write_figures(self, directory: Path, names: Iterable[str]) -> None:
        """Write figures as SVG, in both themes, into a new folder `figures`.

        Args:
            directory: where to.
            names: which of `figures`.
        """
        (directory / "figures").mkdir()
        for name in names:
            write_text(directory / "figures" / f"{name}.svg", self.figure(name).svg())

    def write_made(self, directory: Path) -> None:
        """Write the files named in `made` into an empty directory.

        Args:
            directory: where to.
        """
        raise NotImplementedError

    def save(self, directory: str | Path, *, force: bool = False) -> Path:
        """Write the report: its JSON file and everything made from it.

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
        self.check(self.data)

        def write(place: Path) -> None:
            write_text(place / self.json_name, report_json(self.data), "backslashreplace")
            self.write_made(place)
            self.write_beside(place)

        write_directory(path, write, owned=lambda _: map(Path, (*self.made, self.json_name, *self.beside)))
        return path

    beside: ClassVar[tuple[str, ...]] = ()

    def write_beside(self, directory: Path) -> None:
        """Write what is saved with the report and not made from its data; nothing unless a subclass has it.

        Args:
            directory: where to.
        """

    @classmethod
    def load(cls: type[SavedKind], path: str | Path) -> SavedKind:
        """Read a report.

        Args:
            path: its directory, or its JSON file.

        Raises:
            ReportError: when it is missing, not JSON, or does not follow the schema.
        """
        place = Path(path)
        return cls(read_json(place / cls.json_name if place.is_dir() else place, cls.check))

    @classmethod
    def rebuild(cls: type[SavedKind], directory: str | Path) -> SavedKind:
        """Make all files again from the JSON file of a directory, which stays as it is.

        Args:
            directory: a directory with a report.

        Returns:
            the report.

        Raises:
            ReportError: when the JSON file is missing, not JSON, or does not follow the schema.
            OptionError: when the directory cannot be written to.
        """
        path = Path(directory)
        report = cls.load(path / cls.json_name)
        write_directory(path, report.write_made, owned=lambda _: map(Path, cls.made))
        return report
