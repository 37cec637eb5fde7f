"""Colours are for terminals whose user wants them, and for nobody else."""

import os
import subprocess
import sys

import pytest
from calling import call

from imir_lens.commands import colours

pty = pytest.importorskip("pty", reason="needs a terminal")
ESCAPE = "\x1b["


def on_a_terminal(**environment: str) -> str:
    """What a refused command says on a terminal."""
    ours, theirs = os.openpty()
    given = {name: value for name, value in os.environ.items() if name != "NO_COLOR"}
    command = [sys.executable, "-m", "imir_lens", "analyse"]
    program = subprocess.Popen(command, stderr=theirs, env={**given, "TERM": "xterm", **environment})
    os.close(theirs)
    said = b""
    while True:
        try:
            said += os.read(ours, 1024)
        except OSError:  # the other end is closed
            break
        if said.endswith(b"\n"):
            break
    os.close(ours)
    assert program.wait() == 2
    return said.decode()


def test_a_refusal_is_coloured_on_a_terminal():
    said = on_a_terminal()
    assert said.startswith(ESCAPE)
    assert "did you mean 'analyze'?" in said


@pytest.mark.parametrize("environment", [{"NO_COLOR": "1"}, {"TERM": "dumb"}])
def test_not_where_the_user_or_the_terminal_says_no(environment):
    said = on_a_terminal(**environment)
    assert said.startswith("imir-lens: ")
    assert ESCAPE not in said


def test_a_pipe_and_a_file_get_none():
    done = subprocess.run([sys.executable, "-m", "imir_lens", "analyse"], capture_output=True, text=True)
    assert done.stderr.startswith("imir-lens: ")
    assert ESCAPE not in done.stderr
    assert ESCAPE not in call("tasks", "recall").stdout


def test_a_style_is_applied_where_it_is_wanted_only(monkeypatch):
    assert colours.styled("word", fg="red") == "word"
    monkeypatch.setattr(colours, "wanted", lambda *, err: True)
    assert colours.styled("word", fg="red") == "\x1b[31mword\x1b[0m"
