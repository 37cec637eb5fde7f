"""Tables of stored results on the pages that quote them."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any


def markdown_table(rows: Sequence[Mapping[str, Any]], columns: Sequence[str], cell: Callable[[Any], str]) -> list[str]:
    """Return the lines of a Markdown table; columns with a number in them are set to the right.

    Args:
        rows: column → value.
        columns: which columns, in order.
        cell: how a value is written.
    """
    right = [any(isinstance(row[column], int | float) for row in rows) for column in columns]
    cells = [columns, ["---:" if flag else "---" for flag in right], *([cell(row[c]) for c in columns] for row in rows)]
    return [f"| {' | '.join(line)} |" for line in cells]
