"""The Python examples of every page of the docs run, where they take long with fewer steps."""

import pytest
import torch
from documented_commands import ROOT, fenced

import imir_lens
from imir_lens.models.planting import plant
from imir_lens.training import default_config

DOCS = ROOT / "docs"
RECALL = ROOT / "tests" / "data" / "recall_2l.pt"
# What makes an example quick; each of these has to be there.
SHORTER = {
    "howto/compare.md": {
        '"recall")': '"recall", contexts=48, bootstraps=0)',
        '"f_v": 0})': '"f_v": 0}, contexts=48, bootstraps=0)',
    },
    "howto/own_task.md": {"steps=800": "steps=8", '"skip-run", task)': '"skip-run", task, contexts=64)'},
    "howto/run_of_checkpoints.md": {'trajectory("run")': 'trajectory("run", contexts=64)'},
    "verify.md": {"steps=1024": "steps=8", 'verify("tree", task)': 'verify("tree", task, contexts=64)'},
}
# Pages whose examples need another package or a module of one's own, and the tests of what they show.
ELSEWHERE = {"sweeps.md": "tests/sweep/test_run.py"}
PAGES = {
    path.relative_to(DOCS).as_posix(): "\n".join(fenced(path.read_text(encoding="utf-8"), "python"))
    for path in sorted(DOCS.rglob("*.md"))
    if fenced(path.read_text(encoding="utf-8"), "python")
}


@pytest.fixture
def place(tmp_path, monkeypatch):
    """The repository's test data, and a plain PyTorch state dict."""
    (tmp_path / "tests").symlink_to(ROOT / "tests")
    torch.save(plain(imir_lens.load_checkpoint(RECALL).state_dict), tmp_path / "mine.pt")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def plain(state):
    mine = {"token": state["embed.W_E"], "position": state["pos_embed.W_pos"], "output": state["unembed.W_U"].T}
    for layer in range(2):
        for name in "QKVO":
            mine[f"{layer}.{name.lower()}"] = state[f"blocks.{layer}.attn.W_{name}"].squeeze(0).T
    return {name: weight.contiguous() for name, weight in mine.items()}


def execute(text: str, name: str) -> dict:
    names = {"__name__": "example"}
    exec(compile(text, name, "exec"), names)
    return names


@pytest.mark.parametrize("name", sorted(set(PAGES) - set(ELSEWHERE)))
def test_the_examples_of_a_page_run(name, place, capsys):
    if name == "howto/run_of_checkpoints.md":
        task = imir_lens.make_task("recall", vocab=20, pairs=2, length=8)
        model = default_config(task, d_model=16, d_head=8)
        imir_lens.train(task, model, run="run", steps=4, checkpoint_every=2, batch=8)
    text = PAGES[name]
    for long, short in SHORTER.get(name, {}).items():
        assert long in text, f"{long!r} is no longer in {name}: change SHORTER"
        text = text.replace(long, short)
    execute(text, name)


def test_there_are_examples_and_one_that_fails_would_be_noticed(place, capsys):
    assert len(PAGES) >= 7
    assert set(SHORTER) | set(ELSEWHERE) <= set(PAGES)
    assert all((ROOT / file).is_file() for file in ELSEWHERE.values())
    (place / "mine.pt").unlink()
    with pytest.raises(FileNotFoundError):
        execute(PAGES["howto/own_weights.md"], "example")


def test_the_reference_circuit_of_the_documented_task_solves_it():
    definition = PAGES["howto/own_task.md"].partition("\ntask = ")[0]
    task = execute(definition.replace("@register\n", ""), "example")["Skip"]()
    batch = task.sample(256, torch.Generator().manual_seed(0))
    look, match, copy, away = task.reference_circuit

    def accuracy(size: float) -> float:
        circuit = {look: size, match: 60.0, copy: 30.0, away: -20.0}
        logits = plant(task, circuit, n_layers=2, n_heads=1)(batch.tokens)
        return float((logits[:, -1].argmax(-1) == batch.targets[:, 0]).float().mean())

    assert accuracy(6.0) > 0.99
    assert accuracy(0.1) < 0.5
