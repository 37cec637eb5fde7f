"""The JSON of a report, written so that a reader can compare two of them, and read with checks."""

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, Final

from imir_lens.report.validation import ReportError

_BULKY: Final = ("examples", "drawn")  # what figures are drawn from: patterns and matrices


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


def read_json(path: Path, check: Callable[[Mapping[str, Any]], None]) -> dict[str, Any]:
    """Read a report's data and check it.

    Raises:
        ReportError: when it is missing, not JSON, or `check` refuses it.
    """

    def refuse(constant: str) -> None:
        raise ReportError(f"{str(path)!r} holds {constant}: a report holds finite numbers only")

    try:
        data = json.loads(path.read_bytes(), parse_constant=refuse)
    except OSError as error:
        wanted = f"a {path.name}" if path.suffix == ".json" else "the directory that a report is in"
        raise ReportError(f"cannot read {str(path)!r}: {error.strerror}; expected {wanted}") from error
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
