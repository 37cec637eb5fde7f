"""What help says can be done: examples that parse, from a program that starts at once."""

import shlex
import subprocess
import sys

import click
import pytest
from calling import call

from imir_lens.cli import cli
from imir_lens.commands.examples import EXAMPLES, epilog

COMMANDS = sorted(cli.commands)


def examples(page: str) -> list[str]:
    """The lines below the last heading of a help page."""
    _, found, below = page.partition("\n  Examples:\n")
    return [line.strip() for line in below.splitlines()] if found else []


def parse(line: str) -> click.Context:
    program, name, *arguments = shlex.split(line)
    assert program == "imir-lens"
    return cli.commands[name].make_context(name, arguments, parent=click.Context(cli))


@pytest.mark.parametrize("name", COMMANDS)
def test_help_ends_in_examples_that_parse(name):
    shown = examples(call(name, "--help").stdout)
    assert 2 <= len(shown) <= 4
    assert shown == list(EXAMPLES[name])
    if name == "completion":
        assert all("imir-lens completion" in line for line in shown)
        return
    for line in shown:
        assert parse(line).info_name == name


def test_an_example_that_does_not_parse_would_be_noticed():
    with pytest.raises(click.UsageError):
        parse("imir-lens analyze your.pt --tsk recall --out report")
    assert examples("Usage: imir-lens analyze\n\n  No example.\n") == []
    assert epilog("no such command") is None


def test_examples_are_of_commands_that_there_are():
    assert set(EXAMPLES) == set(cli.commands)


def test_help_imports_nothing_heavy():
    script = (
        "import sys\n"
        "from imir_lens.cli import cli\n"
        "try:\n    cli.main(['analyze', '--help'])\n"
        "except SystemExit:\n    pass\n"
        "heavy = {'torch', 'numpy', 'transformer_lens', 'rich', 'jinja2', 'jsonschema', 'einops'} & set(sys.modules)\n"
        "sys.exit(repr(heavy) if heavy else 0)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "Examples:" in done.stdout
