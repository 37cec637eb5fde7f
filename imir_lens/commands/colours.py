"""Colours, where someone looks: on terminals, unless the environment says `NO_COLOR`."""

import os
import sys
from typing import Any

import click


def wanted(*, err: bool = False) -> bool:
    """Whether stdout (or stderr) is a terminal that shows colours and whose user wants them."""
    stream = sys.stderr if err else sys.stdout
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def styled(text: str, *, err: bool = False, **style: Any) -> str:
    """Return a text in a style of `click.style`; as it is where no colours are wanted."""
    return click.style(text, **style) if wanted(err=err) else text
