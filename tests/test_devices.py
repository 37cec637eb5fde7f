"""Everything runs where it is told to: nothing names a device of its own, and what runs on a GPU runs as on a CPU."""

import ast
from pathlib import Path

import pytest
import torch
from calling import call
from test_forms import FORMS, MLPS, model_of, project, some_of_each_kind
from toy_task import toy_batch

from imir_lens import analyze
from imir_lens.ablation import ablate
from imir_lens.lens_model import open_model
from imir_lens.linear_stream import measure_stream
from imir_lens.tasks import make_task

ROOT = Path(__file__).parents[1]
DATA = Path(__file__).parent / "data"
SOURCES = sorted([*(ROOT / "imir_lens").rglob("*.py"), *(ROOT / "tasks").rglob("*.py")])
needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")


def _named_devices(source: str) -> list[str]:
    """Calls that send something to a GPU by name."""
    found = []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call):
            if isinstance(node.func, ast.Attribute) and node.func.attr == "cuda":
                found.append(ast.unparse(node.func))
            words = [*node.args, *(keyword.value for keyword in node.keywords)]
            names = [w.value for w in words if isinstance(w, ast.Constant) and isinstance(w.value, str)]
            found += [name for name in names if name.partition(":")[0] in ("cuda", "mps", "xpu")]
    return found


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_no_file_sends_anything_to_a_gpu_by_name(path: Path) -> None:
    assert _named_devices(path.read_text()) == []


def test_the_search_for_named_devices_finds_them() -> None:
    assert _named_devices("x.cuda()") == ["x.cuda"]
    assert _named_devices("x.to('cuda:1')") == ["cuda:1"]
    assert _named_devices("f(device='mps')") == ["mps"]
    assert _named_devices("torch.cuda.is_available()") == []


@needs_gpu
@torch.no_grad()
@pytest.mark.parametrize("changes", [*FORMS.values(), *MLPS.values()], ids=[*FORMS, *MLPS])
def test_every_form_is_analysed_on_a_gpu_as_on_a_cpu(changes: dict) -> None:
    model, batch = model_of(changes, attn_only="act_fn" not in changes), toy_batch(6)
    here = project(model, toy_batch(64, seed=5))
    names = some_of_each_kind(here)
    expected = ablate(model, here, names, batch).log_softmax(-1)
    there = open_model(model.model, device="cuda")
    coordinates = project(there, toy_batch(64, seed=5).to("cuda"))
    torch.testing.assert_close(coordinates.values.cpu(), here.values, atol=1e-9, rtol=1e-6)
    found = ablate(there, coordinates, names, batch.to("cuda")).log_softmax(-1)
    assert found.device.type == "cuda"
    torch.testing.assert_close(found.cpu(), expected, atol=1e-6, rtol=1e-6)
    assert measure_stream(there, batch.to("cuda")) is None or there.weights.W_E.device.type == "cuda"


@needs_gpu
@pytest.mark.parametrize("name", ["recall_2l.pt", "recall_rotary_ln.pt", "recall_ln_mlp"])
def test_a_report_from_a_gpu_names_the_same_circuit(name: str) -> None:
    there, here = (
        analyze(DATA / name, "recall", contexts=128, bootstraps=0, device=device) for device in ("cuda", "cpu")
    )
    assert [unit["id"] for unit in there.units] == [unit["id"] for unit in here.units]
    for ours, theirs in zip(there.units, here.units, strict=True):
        assert ours["value"] == pytest.approx(theirs["value"], abs=1e-3)


@needs_gpu
def test_commands_run_on_a_gpu(tmp_path: Path) -> None:
    small = ["--set", "vocab=16", "--set", "pairs=3", "--set", "length=9", "--steps", "20", "--batch", "32"]
    run = tmp_path / "run"
    assert call("train", "recall", "--out", run, *small, "--device", "cuda").exit_code == 0
    assert call("analyze", run, "--out", tmp_path / "report", "--contexts", "64", "--device", "cuda").exit_code == 0
    assert call("heads", DATA / "recall_rotary_ln.pt", "--out", tmp_path / "heads", "--device", "cuda").exit_code == 0


def test_results_follow_the_device_of_the_model() -> None:
    """The device "meta" stands for any that is not the default one."""
    task = make_task("recall")
    weights = open_model(DATA / "recall_2l.pt").weights.to("meta")
    assert {getattr(weights, name).device.type for name in ("W_E", "W_Q", "b_U")} == {"meta"}
    shortformer = model_of(FORMS["shortformer"]).weights.to("meta")
    assert shortformer.pos_Q is not None
    assert shortformer.pos_Q.device.type == "meta"
    for layer in (0, 1):
        assert shortformer.form.hidden(layer, task.n_positions, device=torch.device("meta")).device.type == "meta"
