"""Importing costs nothing, changes nothing, and every public name is there."""

import ast
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

import imir_lens

HEAVY = {"torch", "transformer_lens", "transformers", "numpy", "jaxtyping", "jinja2", "rich", "safetensors"}
SOURCES = [p for folder in ("imir_lens", "tasks") for p in Path(__file__).parents[1].joinpath(folder).rglob("*.py")]


def run(code: str) -> str:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


def loaded(code: str) -> set[str]:
    return set(run(f"import sys\n{code}\nprint(*sys.modules)").split())


def test_importing_the_package_and_the_command_line_loads_nothing_heavy():
    modules = loaded("import imir_lens, imir_lens.cli, imir_lens.tasks, imir_lens.training\nimir_lens.task_names()")
    assert {"imir_lens.cli", "imir_lens.tasks.registry", "click"} <= modules
    assert not modules & HEAVY


def test_a_name_that_needs_torch_loads_it():
    assert "torch" in loaded("import imir_lens\nimir_lens.CircuitWeights")


@pytest.mark.parametrize("arguments", [["--help"], ["--version"], ["analyze", "--help"], ["analyse"]])
def test_help_and_usage_errors_load_nothing_heavy(arguments):
    code = f"from imir_lens.cli import cli\ntry:\n    cli.main({arguments!r})\nexcept SystemExit:\n    pass"
    assert not loaded(code) & HEAVY


@pytest.mark.parametrize("name", imir_lens.__all__)
def test_every_public_name_is_the_one_of_its_module(name):
    found = getattr(imir_lens, name)
    assert found is getattr(import_module(found.__module__), name)


def test_dir_lists_the_public_names():
    assert {*imir_lens.__all__, "__version__"} <= set(dir(imir_lens))


def test_the_public_names_are_declared_once_for_readers_and_once_for_type_checkers():
    tree = ast.parse(Path(imir_lens.__file__).read_text())
    block = next(node for node in tree.body if isinstance(node, ast.If))
    declared = {alias.name for node in block.body for alias in node.names}
    assert declared == set(imir_lens.__all__) == set(imir_lens._HOMES)


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="'imir_lens' has no attribute 'analyse'"):
        _ = imir_lens.analyse


def test_importing_everything_has_no_side_effects():
    code = """
import logging, pkgutil, sys, warnings
from importlib import import_module
import numpy, torch, transformer_lens

def state():
    return (
        torch.is_grad_enabled(), torch.get_default_dtype(), torch.get_num_threads(), torch.initial_seed(),
        torch.get_rng_state().tolist(), numpy.random.get_state()[1].tolist(), list(warnings.filters),
        list(logging.getLogger().handlers), sys.getrecursionlimit(),
    )

before = state()
import imir_lens
names = [found.name for found in pkgutil.walk_packages(imir_lens.__path__, "imir_lens.")]
for name in names:
    import_module(name)
assert state() == before
print(len(names))
"""
    assert int(run(code)) > 50


def test_transformer_lens_is_imported_in_one_place():
    importers = set()
    for path in SOURCES:
        for node in ast.walk(ast.parse(path.read_text())):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
            if any(name.split(".")[0] == "transformer_lens" for name in names):
                importers.add(path.name)
    assert importers == {"compat.py"}
