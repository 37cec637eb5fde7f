"""Every command in README and docs is run by a test, or its equivalent is."""

import json
import os
import re
import shlex

import pytest
import torch
from calling import DATA, call
from documented_commands import DOCUMENTS, ELSEWHERE, ROOT, RUN, commands, commands_in, fenced

import imir_lens

HERE = {documented for chain in RUN for documented, _ in chain}
TASKS = [line for line in commands("imir-lens") if re.fullmatch(r"imir-lens tasks( [a-z_]+)?", line)]


def covered(line: str) -> str | None:
    """What runs a command, or None."""
    if line in HERE or line in TASKS or line == "imir-lens tasks NAME":
        return "here"
    benchmark = re.fullmatch(r"python -m benchmarks ([a-z_]+)( --small)?", line)
    if benchmark:
        return f"benchmark {benchmark[1]}"
    return next((place for pattern, place in ELSEWHERE.items() if re.fullmatch(pattern, line)), None)


def exists(place: str) -> bool:
    """Whether the test, or the line of a file, that runs a command is there."""
    if place == "here":
        return True
    if place.startswith("benchmark "):
        name = place.removeprefix("benchmark ")
        used = re.compile(
            rf"^from benchmarks(\.{name}\b| import .*\b{name}\b)|^import benchmarks\.{name}\b", re.MULTILINE
        )
        return any(used.search(path.read_text(encoding="utf-8")) for path in (ROOT / "tests").rglob("test_*.py"))
    if "::" in place:
        file, _, test = place.partition("::")
        return f"\ndef {test}(" in (ROOT / file).read_text(encoding="utf-8")
    file, _, words = place.partition(": ")
    return words in (ROOT / file).read_text(encoding="utf-8")


@pytest.mark.parametrize("line", commands())
def test_a_documented_command_is_run_here_or_its_like_elsewhere(line):
    place = covered(line)
    assert place is not None, f"add {line!r} to tests/documented_commands.py, with the test that runs its like"
    assert exists(place), place


def test_the_check_notices_what_nothing_runs():
    assert covered("imir-lens analyze other.pt --task hop --out there") is None
    assert covered("python -m benchmarks.other") is None
    assert not exists("tests/test_cli.py::test_of_something_else")
    assert not exists("benchmark other")
    assert not exists("Makefile: make coffee")


def test_no_entry_is_left_over():
    lines = commands()
    assert set(lines) >= HERE
    unused = [pattern for pattern in ELSEWHERE if not any(re.fullmatch(pattern, line) for line in lines)]
    assert unused == []


def test_commands_are_found_wherever_they_stand():
    text = "- a list\n\n    ```sh\n    make one  # why\n    A=1 make two\n    ```\n\n`B=2 make three`, not `maker`"
    assert commands_in(text) == ["make one", "make two", "make three"]
    assert commands_in(text, "python") == []
    assert len(commands()) > 60
    assert {path.name for path in DOCUMENTS} >= {"README.md", "recall.md", "checkpoint.md"}


@pytest.fixture
def place(tmp_path, monkeypatch):
    """What a reader would have: a checkpoint, a bare state dict, a plain PyTorch model with the documented map."""
    (tmp_path / "tests").symlink_to(ROOT / "tests")
    (tmp_path / "your.pt").write_bytes((DATA / "recall_2l.pt").read_bytes())
    state = imir_lens.load_checkpoint(DATA / "recall_2l.pt").state_dict
    torch.save(state, tmp_path / "bare.pt")
    names = json.loads(fenced((ROOT / "docs" / "models.md").read_text(encoding="utf-8"), "json")[0])
    torch.save(plain(state), tmp_path / "mine.pt")
    (tmp_path / "map.json").write_text(json.dumps({**names, "config": {**names["config"], "n_heads": 1}}))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def plain(state):
    """The state as the documented map has it: [out, in] matrices of one head, a mask, and no biases but those of V."""
    mine = {"token.weight": state["embed.W_E"], "position.weight": state["pos_embed.W_pos"]}
    mine["output.weight"] = state["unembed.W_U"].T.contiguous()
    for layer in range(2):
        for name in "QKV":
            weight = state[f"blocks.{layer}.attn.W_{name}"].squeeze(0).T.contiguous()
            mine[f"layers.{layer}.{name.lower()}.weight"] = weight
        mine[f"layers.{layer}.v.bias"] = state[f"blocks.{layer}.attn.b_V"].squeeze(0).clone()
        mine[f"layers.{layer}.out.weight"] = state[f"blocks.{layer}.attn.W_O"].squeeze(0).T.contiguous()
        mine[f"layers.{layer}.mask"] = torch.ones(24, 24).tril()
    return mine


@pytest.mark.parametrize("chain", RUN, ids=lambda chain: shlex.split(chain[0][1])[1])
def test_documented_commands_run(chain, place):
    for _, line in chain:
        before = set(os.listdir(place))
        result = call(*shlex.split(line)[1:])
        assert result.exit_code == 0, (line, result.output)
        if "--force" not in line and " report " not in f"{line} ":
            assert set(os.listdir(place)) > before, line


@pytest.mark.parametrize("line", TASKS)
def test_a_documented_task_is_shown(line):
    result = call(*shlex.split(line)[1:])
    assert result.exit_code == 0
    assert result.stdout
