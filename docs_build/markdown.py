"""Markdown from lists and docstrings."""

import re
from collections.abc import Iterable, Sequence
from typing import Any

MADE = "<!-- Made by `python -m docs_build`; a test compares it. Change what it is made from. -->"


def table(head: Sequence[str], rows: Iterable[Sequence[Any]]) -> list[str]:
    """Return the lines of a table."""
    lines = [list(head), ["---"] * len(head), *([str(cell).replace("|", "\\|") for cell in row] for row in rows)]
    return [f"| {' | '.join(line)} |" for line in lines]


def law(docstring: str) -> str:
    r"""Return a docstring without its sections of attributes and errors.

    >>> law("A task.\n\nAttributes:\n    vocab: tokens.\n\nMore.\n\nRaises:\n    TaskError: always.")
    'A task.\n\nMore.'
    """
    kept = re.sub(r"^(Attributes|Raises|Args|Returns):\n(?:(?:    .*)?(?:\n|$))*", "", docstring, flags=re.MULTILINE)
    return re.sub(r"\n{3,}", "\n\n", kept).strip()
