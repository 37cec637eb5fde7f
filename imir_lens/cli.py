"""The command line `imir-lens`: its commands, and what becomes of errors.

Exit codes: 0 done; 2 bad usage or bad input, one line on stderr (`--debug` shows where it was raised); 130 Ctrl-C;
1 anything else.
"""

import os
import sys
from collections.abc import Sequence
from typing import Any, NoReturn

import click

from imir_lens import __version__
from imir_lens.commands.analyze import analyze
from imir_lens.commands.colours import styled
from imir_lens.commands.compare import compare
from imir_lens.commands.completion import complete_tasks, completion
from imir_lens.commands.convert import convert
from imir_lens.commands.demo import demo
from imir_lens.commands.examples import epilog
from imir_lens.commands.heads import heads
from imir_lens.commands.report import report
from imir_lens.commands.sweep import sweep
from imir_lens.commands.tasks import tasks
from imir_lens.commands.train import train
from imir_lens.commands.trajectory import trajectory
from imir_lens.commands.verify import verify
from imir_lens.errors import ImirError, did_you_mean


class _Program(click.Group):
    """A group that prints an error as one line, and knows the line it was called with (`ctx.obj`)."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if not name.startswith("-") and name not in self.commands:
            ctx.fail(f"no command {name!r}; {did_you_mean(name, self.commands)}")
        return super().resolve_command(ctx, args)

    def main(
        self,
        args: Sequence[str] | None = None,
        prog_name: str | None = None,
        complete_var: str | None = None,
        standalone_mode: bool = True,
        windows_expand_args: bool = True,
        **extra: Any,
    ) -> NoReturn:
        given = list(sys.argv[1:] if args is None else args)
        try:
            super().main(given, "imir-lens", complete_var, standalone_mode=False, obj=given, **extra)
        except click.ClickException as error:
            _fail(error.format_message(), code=2)
        except ImirError as error:
            _fail(str(error), code=2)
        except click.Abort:
            _fail("interrupted", code=130)
        except BrokenPipeError:
            # The reader has gone (`imir-lens tasks | head`); flushing at exit must not complain again.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            sys.exit(1)
        sys.exit(0)


def _fail(message: str, *, code: int) -> NoReturn:
    line = "".join(character if character.isprintable() else " " for character in message)
    click.echo(f"{styled('imir-lens:', err=True, fg='red', bold=True)} {line}", err=True)
    sys.exit(code)


@click.group(cls=_Program, invoke_without_command=True, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, "-V", "--version", message="imir-lens %(version)s")
@click.pass_context
def cli(ctx: click.Context) -> None:
    """Find which mechanism a transformer uses, and how sure that is.

    Start with `imir-lens demo`, then `imir-lens analyze your.pt --task recall --out report`.
    """
    if ctx.invoked_subcommand is None:
        click.echo(ctx.get_help())


for _command in (demo, tasks, train, analyze, heads, verify, trajectory, compare, report, convert, sweep, completion):
    _command.epilog = epilog(_command.name)
    complete_tasks(_command)
    cli.add_command(_command)


def main() -> NoReturn:
    """Run the program."""
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="backslashreplace")  # a terminal that cannot show → must not end the program
    cli.main()
