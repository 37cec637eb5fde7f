"""Models on disk."""

import json

import pytest
import torch

from imir_lens.causal.construction import construct
from imir_lens.causal.files import config_for, load_causal, save_causal
from imir_lens.causal.transformer import CausalConfig
from imir_lens.checkpoints import save_checkpoint
from imir_lens.errors import CheckpointError, OptionError
from imir_lens.models.disentangled import DisentangledConfig, DisentangledTransformer
from imir_lens.tasks.causal_tree import CausalTree
from imir_lens.tasks.lag_chain import LagChain
from imir_lens.tasks.linear_dynamics import LinearDynamics

TASK = CausalTree(d=4, positions=5, examples=3)


@pytest.mark.parametrize("name", ["model.safetensors", "model.pt"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_saved_model_comes_back(tmp_path, name, dtype, generator):
    model = construct(TASK).to(dtype)
    save_causal(tmp_path / name, model)
    loaded = load_causal(tmp_path / name, task=TASK)
    episodes = TASK.sample_episodes(3, generator)
    assert loaded.cfg == model.cfg and not loaded.training
    assert torch.equal(loaded(episodes), model(episodes))


def test_the_config_beside_a_safetensors_file_is_json(tmp_path):
    save_causal(tmp_path / "model.safetensors", construct(TASK))
    saved = json.loads((tmp_path / "config.json").read_text())
    assert saved == {
        "architecture": "imir-lens/causal",
        "d_input": 4,
        "n_positions": 5,
        "n_examples": 3,
        "n_heads": 3,
        "continuous": False,
    }


@pytest.mark.parametrize(
    ("task", "message"),
    [
        (CausalTree(d=6, positions=5, examples=3), "d_input=4, but the task has 6"),
        (CausalTree(d=4, positions=7, examples=3), "n_positions=5, but the task has 7"),
        (LinearDynamics(d=4, positions=5), "continuous=False, but the task has True"),
    ],
)
def test_a_model_of_another_layout_is_refused_with_its_file_named(tmp_path, task, message):
    save_causal(tmp_path / "model.pt", construct(TASK))
    with pytest.raises(CheckpointError, match=message) as refusal:
        load_causal(tmp_path / "model.pt", task=task)
    assert "model.pt" in str(refusal.value) and "\n" not in str(refusal.value)


def test_another_number_of_examples_fits(tmp_path):
    save_causal(tmp_path / "model.pt", construct(TASK))
    assert load_causal(tmp_path / "model.pt", task=CausalTree(d=4, positions=5, examples=8)).cfg.n_examples == 3


def test_weights_that_contradict_their_config_are_refused(tmp_path):
    config = CausalConfig(4, 5, 2)
    save_checkpoint(tmp_path / "model.pt", construct(TASK).state_dict(), config.to_dict())
    with pytest.raises(CheckpointError, match=r"copyers.w_L has shape \[3, 3\], but its cfg asks for \[2, 2\]"):
        load_causal(tmp_path / "model.pt")


def test_a_model_of_another_kind_is_refused(tmp_path):
    other = DisentangledTransformer(DisentangledConfig(d_vocab=4, n_ctx=5, n_layers=1))
    save_checkpoint(tmp_path / "model.pt", other.state_dict(), other.cfg)
    with pytest.raises(CheckpointError, match=r"not a causal transformer: .* found 'imir-lens/disentangled'"):
        load_causal(tmp_path / "model.pt")


def test_a_pickled_model_is_not_loaded(tmp_path):
    torch.save(construct(TASK), tmp_path / "model.pt")
    with pytest.raises(CheckpointError, match="never loaded"):
        load_causal(tmp_path / "model.pt")


def test_sizes_are_read_off_a_task():
    assert config_for(TASK) == CausalConfig(4, 5, 3)
    assert config_for(TASK, n_heads=2).n_heads == 2
    assert config_for(LinearDynamics(d=3, positions=6, examples=2)) == CausalConfig(3, 6, 2, continuous=True)
    with pytest.raises(OptionError, match="at least one example"):
        config_for(LagChain())
