"""Calling the command line in this process."""

from pathlib import Path

from click.testing import CliRunner, Result

from imir_lens.cli import cli

DATA = Path(__file__).parent / "data"
RECALL = DATA / "recall_2l.pt"
QUICK = ("--contexts", "48", "--bootstraps", "0")
SMALL = ("--set", "vocab=20", "--set", "pairs=2", "--set", "length=8", "--model", "d_model=16", "--model", "d_head=8")


def call(*arguments: object) -> Result:
    return CliRunner().invoke(cli, [str(argument) for argument in arguments])


def refused(result: Result) -> str:
    """The one line of a refusal."""
    assert result.exit_code == 2, result.output
    assert isinstance(result.exception, SystemExit)
    assert result.stdout == ""
    assert result.stderr.startswith("imir-lens: ")
    lines = result.stderr.splitlines()
    assert len(lines) == 1
    return lines[0]


def contents(directory: Path) -> dict[str, bytes]:
    return {str(p.relative_to(directory)): p.read_bytes() for p in directory.rglob("*") if p.is_file()}
