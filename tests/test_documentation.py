"""What the documents say is true: commands exist, the example runs, figures are what the commands give."""

import ast
import json
import re
import shlex
import subprocess
import sys
from pathlib import Path

import click
import pytest
from documented_commands import DOCUMENTS, ROOT, commands, fenced

from imir_lens.cli import cli

README = (ROOT / "README.md").read_text(encoding="utf-8")
SOURCES = sorted(path for folder in ("imir_lens", "tasks", "docs_build") for path in (ROOT / folder).rglob("*.py"))


# Not calls: a command that a sentence names, and one that feeds another program.
_NAMED = {"imir-lens train", "imir-lens COMMAND --help", "imir-lens completion fish | source"}


@pytest.mark.parametrize("line", [line for line in commands("imir-lens") if line not in _NAMED])
def test_a_documented_command_parses(line):
    name, *arguments = shlex.split(line)[1:]
    command = cli.commands[name]
    command.make_context(name, arguments, parent=click.Context(cli))


def test_the_parse_check_can_fail():
    with pytest.raises(click.UsageError):
        cli.commands["analyze"].make_context("analyze", ["x.pt", "--tsk", "recall"], parent=click.Context(cli))


@pytest.mark.parametrize("line", commands("make"))
def test_a_documented_make_target_exists(line):
    done = subprocess.run([*shlex.split(line), "-n"], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_the_documents_name_the_commands_that_there_are():
    assert {shlex.split(line)[1] for line in commands("imir-lens")} >= set(cli.commands)
    assert {"make demo", "make test", "make check", "make bench"} <= set(commands("make"))


def test_links_and_pictures_lead_somewhere():
    links = [(path, link) for path in DOCUMENTS for link in re.findall(r"\]\(([^)#]+)", path.read_text("utf-8"))]
    local = [(path, link) for path, link in links if "://" not in link]
    assert len(local) >= 4
    assert all((path.parent / link).exists() for path, link in local)
    assert (ROOT / "docs/images/report.png").stat().st_size < 400_000


def test_the_example_in_the_readme_is_the_file():
    example = (ROOT / "examples/quickstart.py").read_text(encoding="utf-8")
    assert fenced(README, "python") == [example]
    assert len(example.splitlines()) == 15


@pytest.fixture
def place(tmp_path):
    """An empty directory from which the repository's test data is found as from its root."""
    (tmp_path / "tests").symlink_to(ROOT / "tests")
    return tmp_path


def run(place: Path, *arguments: object) -> str:
    done = subprocess.run([sys.executable, *map(str, arguments)], cwd=place, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_example_runs(place):
    told = run(place, ROOT / "examples/quickstart.py")
    assert "Report(in_context, evidence: stability)" in told
    assert "Circuit of 4 units" in told
    accuracy = float(re.search(r"tensor\(([\d.]+)\)", told)[1])
    assert 0 < accuracy < 0.3
    assert (place / "report" / "report.html").is_file()


def analyse(place: Path, name: str) -> tuple[str, dict]:
    """Run the README's command on a checkpoint; return what it prints and its report."""
    lines = [line for line in commands("imir-lens") if "--task" in line and "tests/data/" in line]
    own = [line for line in lines if f"tests/data/{name} " in line]
    # Two checkpoints are analysed with the command of the first.
    line = own[0] if own else next(line for line in lines if "recall_2l.pt" in line).replace("recall_2l.pt", name)
    out = shlex.split(line)[shlex.split(line).index("--out") + 1]
    told = run(place, "-m", *shlex.split(line.replace("imir-lens", "imir_lens", 1)))
    return told, json.loads((place / out / "report.json").read_text())


def tables(text: str) -> list[list[list[str]]]:
    """The tables under a heading, as rows of cells without the head."""
    blocks = re.findall(r"(?:^\|.*\n)+", text, re.MULTILINE)
    return [[[c.strip().strip("`") for c in r.strip("|").split("|")] for r in b.splitlines()[2:]] for b in blocks]


FIGURES = tables(README[README.index("## Figures") : README.index("## Speed")])


def close(cell: str, value: float) -> bool:
    # Another machine's rounding may move the third digit; a loss near the resolution of float32 moves more.
    return float(cell) == pytest.approx(value, rel=0.5 if abs(value) < 1e-4 else 0.05, abs=0.01)


@pytest.mark.parametrize("row", FIGURES[0], ids=lambda row: row[0])
def test_the_figures_are_what_the_command_gives(row, place):
    name, mechanism, units, total, evaluations, *scores, faithfulness = row
    told, report = analyse(place, name)
    circuit, evaluation = report["circuit"], report["evaluation"]
    assert report["verdict"]["mechanism"] == mechanism
    assert (len(circuit["units"]), report["search"]["coordinates_total"]) == (int(units), int(total))
    assert circuit["evaluations"] == int(evaluations)
    measured = [evaluation[which]["loss"] for which in ("model", "without_circuit", "circuit")]
    assert all(map(close, scores, measured)), measured
    assert close(faithfulness, circuit["faithfulness"])
    assert (evaluation["contexts"], evaluation["search_contexts"], report["seed"]) == (512, 256, 0)
    if name != "recall_2l.pt":
        return
    for unit, shown in zip(circuit["units"], FIGURES[1], strict=True):
        found = unit["value"], unit["loss_if_removed"]["model"], unit["accuracy_if_removed"]["model"]
        assert unit["id"] == shown[0]
        assert all(map(close, shown[1:], found)), found
    printed = fenced(README, "text")[0]
    words, said = re.split(r"[+-]?\d+\.\d+", printed), re.split(r"[+-]?\d+\.\d+", told)
    assert words == said


def test_close_tells_figures_apart():
    assert close("7.25", 7.2493)
    assert not close("7.25", 9.0)
    assert not close("0.115", 0.15)


def public(tree: ast.Module) -> list[ast.FunctionDef | ast.ClassDef]:
    """The public functions, classes and methods of a module."""
    found: list[ast.FunctionDef | ast.ClassDef] = []
    for owner in [tree, *(node for node in tree.body if isinstance(node, ast.ClassDef) and node.name[0] != "_")]:
        found += [n for n in owner.body if isinstance(n, ast.FunctionDef | ast.ClassDef) and n.name[0] != "_"]
    return found


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_what_is_public_is_documented_and_typed(path):
    tree = ast.parse(path.read_text(encoding="utf-8"))
    names = [node.name for node in ast.walk(tree) if isinstance(node, ast.ClassDef | ast.FunctionDef)]
    assert ast.get_docstring(tree) or not names, "no docstring on the module"
    for node in public(tree):
        assert ast.get_docstring(node), f"no docstring: {node.name}"
        if isinstance(node, ast.ClassDef):
            continue
        assert node.returns is not None, f"no return type: {node.name}"
        given = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs, node.args.vararg, node.args.kwarg]
        for argument in filter(None, given):
            assert argument.arg in ("self", "cls") or argument.annotation is not None, f"{node.name}({argument.arg})"
            assert not bare_tensor(argument.annotation), f"no shape: {node.name}({argument.arg})"
        assert not bare_tensor(node.returns), f"no shape: {node.name} returns"


def bare_tensor(annotation: ast.expr | None) -> bool:
    """Whether a type is, or may be, a tensor whose shape it does not give; containers of many shapes do not count."""
    if isinstance(annotation, ast.BinOp):
        return bare_tensor(annotation.left) or bare_tensor(annotation.right)
    name = annotation.attr if isinstance(annotation, ast.Attribute) else getattr(annotation, "id", None)
    return name == "Tensor"


@pytest.mark.parametrize(
    ("type_", "bare"),
    [("Tensor", True), ("torch.Tensor | None", True), ('Float[Tensor, "a b"]', False), ("dict[str, Tensor]", False)],
)
def test_a_tensor_without_a_shape_is_noticed(type_, bare):
    assert bare_tensor(ast.parse(type_, mode="eval").body) is bare
