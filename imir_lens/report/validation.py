"""Check a report against its JSON Schema and against what a schema cannot say."""

import json
import math
from collections.abc import Iterator, Mapping
from importlib.resources import files
from typing import Any, Final

from imir_lens.errors import ImirError

SCHEMA: Final = "imir-lens/report/1"
_LONGEST: Final = 160


class ReportError(ImirError):
    """A report that does not follow its schema, or a file that is not a report."""


def load_schema(name: str = "schema.json") -> dict[str, Any]:
    """Return the JSON Schema (draft 2020-12) of a report."""
    schema: dict[str, Any] = json.loads(files("imir_lens.report").joinpath(name).read_text("utf-8"))
    return schema


def validate(report: Mapping[str, Any]) -> None:
    """Check a report.

    Besides the schema: every number is finite, every attention pattern is tokens × tokens, every query is a position,
    and every unit of a role is a unit of the circuit.

    Args:
        report: the data of a report.

    Raises:
        ReportError: one line that names the place, what stands there and what was expected.
    """
    # The patterns are most of a report; they are checked below, by hand, a hundred times faster.
    light = {**report}
    if isinstance(light.get("examples"), list):
        light["examples"] = [_without_patterns(example) for example in light["examples"]]
    check_finite(report)
    check_schema(light, load_schema())
    if "trajectory" in report:
        check_schema(report["trajectory"], load_schema("trajectory_schema.json"))
    _check_examples(report["examples"])
    _check_roles(report["circuit"])


def check_finite(report: Mapping[str, Any]) -> None:
    """Refuse numbers that JSON does not have.

    Raises:
        ReportError: naming the first one's place.
    """
    bad = next(_non_finite(report, "report"), None)
    if bad is not None:
        raise ReportError(f"{bad[0]} is {bad[1]}: a report holds finite numbers only")


def check_schema(report: Mapping[str, Any], schema: Mapping[str, Any]) -> None:
    """Check data against a JSON Schema.

    Raises:
        ReportError: one line that names the place, what stands there and what was expected.
    """
    # Imported here: `import imir_lens` must stay quick, and most programs never check a report.
    from jsonschema import Draft202012Validator
    from jsonschema.exceptions import best_match

    error = best_match(Draft202012Validator(schema).iter_errors(report))
    if error is not None:
        message = " ".join(error.message.split())
        if len(message) > _LONGEST:
            message = f"{message[: _LONGEST // 2]} … {message[-_LONGEST // 2 :]}"
        raise ReportError(f"report{error.json_path[1:]}: {message}")


def _non_finite(value: Any, place: str) -> Iterator[tuple[str, float]]:
    """Find numbers that JSON does not have, with their places."""
    if isinstance(value, float):
        if not math.isfinite(value):
            yield place, value
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from _non_finite(item, f"{place}.{key}")
    elif isinstance(value, list | tuple):
        for k, item in enumerate(value):
            yield from _non_finite(item, f"{place}[{k}]")


def _without_patterns(example: Any) -> Any:
    if isinstance(example, Mapping) and isinstance(example.get("attention"), Mapping):
        return {**example, "attention": {head: [] for head in example["attention"]}}
    return example


def _check_examples(examples: list[Mapping[str, Any]]) -> None:
    for k, example in enumerate(examples):
        place, n = f"report.examples[{k}]", len(example["tokens"])
        if not example["query"] < n:
            raise ReportError(
                f"{place}.query is {example['query']}: expected a position below {n}, the number of tokens"
            )
        for head, pattern in example["attention"].items():
            if not isinstance(pattern, list) or [_length(row) for row in pattern] != [n] * n:
                raise ReportError(f"{place}.attention.{head}: expected {n} rows (queries) of {n} numbers (keys)")
            if not all(isinstance(p, int | float) and 0 <= p <= 1 for row in pattern for p in row):
                raise ReportError(f"{place}.attention.{head}: expected numbers from 0 to 1")


def _length(row: Any) -> int:
    return len(row) if isinstance(row, list) else -1


def _check_roles(circuit: Mapping[str, Any]) -> None:
    known = {unit["id"] for unit in circuit["units"]}
    for k, role in enumerate(circuit["roles"]):
        for name in role["units"]:
            if name not in known:
                raise ReportError(f"report.circuit.roles[{k}].units: {name!r} is not one of the circuit's units")
