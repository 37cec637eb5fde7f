"""Shell completion: the script, and what it is told."""

import json
import os
import shutil
import subprocess
import sys

import pytest
from calling import call, refused

SHELLS = ("bash", "zsh", "fish")


def completed(*words: str) -> set[str]:
    """What the program answers a bash that asks for the last word."""
    asked = {"_IMIR_LENS_COMPLETE": "bash_complete", "COMP_WORDS": " ".join(words), "COMP_CWORD": str(len(words) - 1)}
    command = [sys.executable, "-m", "imir_lens"]
    done = subprocess.run(command, env={**os.environ, **asked}, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return {line.partition(",")[2] for line in done.stdout.splitlines() if line}


@pytest.mark.parametrize("shell", SHELLS)
def test_the_script_of_a_shell_is_printed_and_calls_back(shell):
    shown = call("completion", shell, "--quiet")
    assert shown.exit_code == 0
    assert f"_IMIR_LENS_COMPLETE={shell}_complete" in shown.stdout
    assert json.loads(call("completion", shell, "--json").stdout)["script"] in shown.stdout


def test_another_shell_is_refused():
    assert "'bash', 'zsh', 'fish'" in refused(call("completion", "csh"))


def test_commands_options_and_tasks_are_completed():
    assert completed("imir-lens", "ana") == {"analyze"}
    assert completed("imir-lens", "analyze", "--boot") == {"--bootstraps"}
    assert completed("imir-lens", "analyze", "x.pt", "--task", "re") == {"recall", "retrieval", "repeated"}
    assert completed("imir-lens", "verify", "run", "--task", "line") == {"linear_dynamics"}
    assert completed("imir-lens", "train", "line") == set()  # it has vectors
    assert completed("imir-lens", "tasks", "io") == {"ioi"}
    assert completed("imir-lens", "tasks", "zz") == set()


@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
def test_bash_reads_the_script(tmp_path):
    script = tmp_path / "completion.sh"
    script.write_text(call("completion", "bash").stdout)
    done = subprocess.run(["bash", "-c", f"source {script} && complete -p imir-lens"], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "imir-lens" in done.stdout
