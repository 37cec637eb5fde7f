"""What all commands share: the options every one has, and where its words and its result go."""

import functools
import json
import os
import re
import shlex
import sys
import traceback
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from imir_lens.errors import ImirError, OptionError

_WORDS = {"true": True, "false": False, "none": None, "null": None}
_NUMBER = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?")
_DIGITS = 300  # Python reads no integer of thousands of them
_SEEDS = click.IntRange(0, 2**62)  # what torch's generators take, with room for the seeds derived from it


class _Place(click.Path):
    """A path; the empty text, which would mean the current directory, is none."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if value == "":
            self.fail("expected a path, found an empty text", param, ctx)
        return super().convert(value, param, ctx)


PLACE = _Place(path_type=Path)


@dataclass(frozen=True)
class Output:
    """Where a command speaks: the result on stdout, everything else on stderr.

    Attributes:
        quiet: say nothing on the way, and print no summary; JSON that was asked for is printed.
        json: print the result as JSON.
    """

    quiet: bool
    json: bool

    @property
    def terminal(self) -> bool:
        """Whether someone watches, who likes a moving progress bar."""
        return not self.quiet and sys.stderr.isatty()

    def note(self, text: str) -> None:
        """Say how it goes."""
        if not self.quiet:
            click.echo(text, err=True)

    def result(self, data: Any, lines: Iterable[str], *, wanted: bool = False) -> None:
        """Print the result.

        Args:
            data: the result as JSON values.
            lines: the result for a reader.
            wanted: print the lines with --quiet too: they are what was asked for.
        """
        if self.json:
            click.echo(json.dumps(data, indent=1, allow_nan=False))
        elif wanted or not self.quiet:
            click.echo("\n".join(lines))


def command(function: Callable[..., None]) -> Callable[..., None]:
    """Give a command the options that all have; the function takes `say: Output` and `device: str | None`."""

    @click.option("--quiet", is_flag=True, help="No progress and no summary; errors only.")
    @click.option("--json", "as_json", is_flag=True, help="Print the result as JSON on stdout, and nothing else there.")
    @click.option("--device", metavar="NAME", help="Where to compute: cpu, cuda, cuda:1, mps, …  [default: cpu]")
    @click.option("--debug", is_flag=True, help="Show where an error was raised.")
    @functools.wraps(function)
    def run(*, quiet: bool, as_json: bool, device: str | None, debug: bool, **options: Any) -> None:
        try:
            if device is not None:
                from imir_lens.lens_model import usable_device

                usable_device(device)
            function(say=Output(quiet, as_json), device=device, **options)
        except ImirError:
            if debug:
                traceback.print_exc()
            raise

    return run


def knob_option(function: Callable[..., None]) -> Callable[..., None]:
    """Add `--set KNOB=VALUE`, any number of times."""
    option = click.option(
        "--set",
        "knobs",
        metavar="KNOB=VALUE",
        multiple=True,
        help="Set a knob; see `imir-lens tasks TASK`.",
    )
    return option(function)


def model_option(function: Callable[..., None]) -> Callable[..., None]:
    """Add `--model FIELD=VALUE`, any number of times."""
    option = click.option(
        "--model", "fields", metavar="FIELD=VALUE", multiple=True, help="Set a field of the model's config."
    )
    return option(function)


def seed_option(function: Callable[..., None]) -> Callable[..., None]:
    """Add `--seed N`; None when it was not given."""
    return click.option("--seed", type=_SEEDS, metavar="N", help="Seed of everything random.  [default: 0]")(function)


def command_line() -> str:
    """Return the command line as it was typed, for the report."""
    return " ".join(map(on_one_line, ["imir-lens", *click.get_current_context().find_root().obj]))


def on_one_line(word: str) -> str:
    r"""Quote a word of a command line; what cannot be printed, a line break say, is escaped as shells read it.

    >>> print(on_one_line("a b.pt"), on_one_line("a\nb'.pt"))
    'a b.pt' $'a\x0ab\'.pt'
    """
    if word.isprintable():
        return shlex.quote(word)
    escaped = word.replace("\\", "\\\\").replace("'", "\\'")
    return "$'" + "".join(c if c.isprintable() else _escaped(c) for c in escaped) + "'"


def _escaped(character: str) -> str:
    return "".join(f"\\x{byte:02x}" for byte in os.fsencode(character))


def parse_fields(assignments: Iterable[str]) -> dict[str, Any]:
    """Read `["n_heads=2", "normalization_type=none"]` as values: numbers, true, false, none, or else text.

    Raises:
        OptionError: when one is not FIELD=VALUE.
    """
    found = {}
    for text in assignments:
        name, _, value = (part.strip() for part in text.partition("="))
        if not name or not value:
            raise OptionError(f"{text!r} is not a model setting: expected FIELD=VALUE, e.g. 'n_heads=2'")
        found[name] = _value(value)
    return found


def given(**options: Any) -> dict[str, Any]:
    """Return the options that were given: those that are not None."""
    return {name: value for name, value in options.items() if value is not None}


def score_line(name: str, score: Mapping[str, float]) -> str:
    """Return `model   loss 0.0101   accuracy 0.998`."""
    return f"{name:<10} loss {score['loss']:<9.4g} accuracy {score['accuracy']:.4g}"


def _value(text: str) -> Any:
    if text.lower() in _WORDS:
        return _WORDS[text.lower()]
    if _NUMBER.fullmatch(text) and len(text) <= _DIGITS:
        return float(text) if any(mark in text for mark in ".eE") else int(text)
    return text
