"""Loading: every form round-trips, every damaged or hostile file is one clear line, nothing in a file runs."""

import hashlib
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from imir_lens.checkpoints import (
    Checkpoint,
    checkpoint_series,
    load_checkpoint,
    load_transformer,
    save_checkpoint,
)
from imir_lens.errors import CheckpointError, OptionError, UnsupportedModelError
from imir_lens.lens_model import open_model
from imir_lens.models.config import TransformerConfig
from imir_lens.models.disentangled import DisentangledConfig, DisentangledTransformer

DATA = Path(__file__).parent / "data"
RECALL = DATA / "recall_2l.pt"


@pytest.fixture(scope="module")
def recall() -> Checkpoint:
    return load_checkpoint(RECALL)


@pytest.fixture(scope="module")
def contexts() -> torch.Tensor:
    return torch.from_numpy(np.load(DATA / "recall_contexts.npz")["tokens"][:64]).long()


def _weights(recall: Checkpoint) -> dict[str, torch.Tensor]:
    return {k: v for k, v in recall.state_dict.items() if not k.endswith(("mask", "IGNORE"))}


def _written(folder: Path, config: dict[str, Any]) -> Path:
    (folder / "other.json").write_text(json.dumps(config))
    return folder / "other.json"


def _assert_same_weights(found: Checkpoint, recall: Checkpoint) -> None:
    for key, value in _weights(recall).items():
        assert torch.equal(found.state_dict[key], value), key
    assert TransformerConfig.from_dict(found.config) == TransformerConfig.from_dict(recall.config)


# --- what loads ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["recall_2l.pt", "recall_rotary_ln.pt", "recall_ln_mlp"])
def test_real_checkpoints_reproduce_transformer_lens_logits(name: str, contexts: torch.Tensor) -> None:
    model = load_transformer(DATA / name)
    golden = torch.from_numpy(np.load(DATA / f"{name.removesuffix('.pt')}_logits.npz")["logits"])
    with torch.no_grad():
        found = model(contexts)[:, -1]
    assert not model.training
    assert golden.abs().max() > 5
    assert (found - golden).abs().max() < 1e-5 * golden.abs().max()
    assert not torch.allclose(found, golden.roll(1, 0), atol=1)


def test_a_checkpoint_says_where_it_came_from(recall: Checkpoint) -> None:
    assert recall.source == str(RECALL)
    assert recall.sha256 == hashlib.sha256(RECALL.read_bytes()).hexdigest()
    assert recall.step is None
    assert recall.config["attn_scale"] == 8.0
    json.dumps(recall.config)  # numpy scalars and dtypes have become JSON values


@pytest.mark.parametrize("keys", [("state_dict", "cfg"), ("model", "config"), ("model_state_dict", "cfg")])
def test_dicts_of_weights_and_config_load(tmp_path: Path, recall: Checkpoint, keys: tuple[str, str]) -> None:
    torch.save({keys[0]: recall.state_dict, keys[1]: recall.config, "step": 7}, tmp_path / "a.pt")
    found = load_checkpoint(tmp_path / "a.pt")
    _assert_same_weights(found, recall)
    assert found.step == 7


def test_the_old_torch_format_loads(tmp_path: Path, recall: Checkpoint) -> None:
    payload = {"state_dict": recall.state_dict, "cfg": recall.config}
    torch.save(payload, tmp_path / "a.pth", _use_new_zipfile_serialization=False)
    _assert_same_weights(load_checkpoint(tmp_path / "a.pth"), recall)


def test_a_bare_state_dict_takes_its_config_from_a_file_or_from_beside(tmp_path: Path, recall: Checkpoint) -> None:
    torch.save(recall.state_dict, tmp_path / "bare.pt")
    (tmp_path / "other.json").write_text(json.dumps(recall.config))
    _assert_same_weights(load_checkpoint(tmp_path / "bare.pt", config=tmp_path / "other.json"), recall)
    (tmp_path / "other.json").rename(tmp_path / "config.json")
    _assert_same_weights(load_checkpoint(tmp_path / "bare.pt"), recall)


def test_a_bare_state_dict_tells_its_sizes_and_asks_for_the_rest(tmp_path: Path, recall: Checkpoint) -> None:
    torch.save(recall.state_dict, tmp_path / "bare.pt")
    with pytest.raises(CheckpointError) as error:
        load_checkpoint(tmp_path / "bare.pt")
    message = str(error.value)
    assert "state dict without cfg" in message
    assert "n_layers=2 n_heads=1 d_model=128 d_head=64 d_vocab=64" in message
    assert "pass --config FILE" in message
    line = message.partition("e.g. ")[2].removesuffix(" (in Python: overrides)")
    assert line == "--model use_attn_scale=True --model normalization_type=None"
    # The line that the message gives, as the command line would pass it on, is enough.
    overrides = dict(word.split("=") for word in line.replace("--model ", "").split())
    _assert_same_weights(load_checkpoint(tmp_path / "bare.pt", overrides=overrides), recall)


def test_shapes_tell_a_norm_an_mlp_and_rotary_positions(tmp_path: Path) -> None:
    for name, told, asked in [
        ("recall_rotary_ln.pt", {"normalization_type": "LN", "rotary_dim": 64}, "rotary_adjacent_pairs=False"),
        ("recall_ln_mlp", {"d_mlp": 128, "n_heads": 2}, "act_fn=gelu"),
    ]:
        full = load_checkpoint(DATA / name)
        torch.save(full.state_dict, tmp_path / "bare.pt")
        with pytest.raises(CheckpointError, match=asked):
            load_checkpoint(tmp_path / "bare.pt")
        given = {"use_attn_scale": True, "act_fn": full.config["act_fn"], "rotary_adjacent_pairs": False}
        found = load_checkpoint(tmp_path / "bare.pt", overrides=given)
        assert told.items() <= found.config.items()
        for field in ("n_layers", "n_ctx", "d_vocab_out", "normalization_type", "positional_embedding_type"):
            assert found.config[field] == full.config[field], field


def test_overrides_replace_single_fields(recall: Checkpoint) -> None:
    changed = load_checkpoint(RECALL, overrides={"attn_scale": "4", "model_name": "mine", "seed": "None"})
    assert changed.config == {**recall.config, "attn_scale": 4, "model_name": "mine", "seed": None}


def test_saved_checkpoints_load_as_they_were(tmp_path: Path, recall: Checkpoint) -> None:
    model = load_transformer(RECALL)
    for name in ("a.pt", "a.pth", "deep/folder/model.safetensors"):
        save_checkpoint(tmp_path / name, model.state_dict(), model.cfg)
        _assert_same_weights(load_checkpoint(tmp_path / name), recall)
    assert sorted(p.name for p in tmp_path.rglob("*")) == [
        "a.pt", "a.pth", "config.json", "deep", "folder", "model.safetensors",
    ]  # fmt: skip
    _assert_same_weights(load_checkpoint(tmp_path / "deep/folder"), recall)
    assert torch.load(tmp_path / "a.pt", weights_only=True)["cfg"]["n_layers"] == 2


@pytest.mark.parametrize(
    "options",
    [{}, {"stream": "add"}, {"stream": "add", "d_model": 30}, {"embedding": "centred"}],
    ids=["concat", "add", "narrow", "centred"],
)
@pytest.mark.parametrize("name", ["a.pt", "a.safetensors"])
def test_a_disentangled_model_comes_back(tmp_path: Path, options: dict[str, Any], name: str) -> None:
    config = DisentangledConfig(d_vocab=6, n_ctx=5, n_layers=2, n_heads=2, init_std=1.0, **options)
    model = DisentangledTransformer(config, generator=torch.Generator().manual_seed(1))
    save_checkpoint(tmp_path / name, model.state_dict(), model.cfg)
    found = load_transformer(tmp_path / name)
    assert isinstance(found, DisentangledTransformer)
    assert found.cfg == config
    tokens = torch.arange(10).view(2, 5) % 6
    with torch.no_grad():
        assert torch.equal(found(tokens), model(tokens))
    opened = open_model(tmp_path / name)
    assert opened.info["family"] == "DisentangledTransformer"
    assert opened.info["source"] == str(tmp_path / name)
    assert opened.weights.sha256() == open_model(model).weights.sha256()
    assert torch.equal(opened.logits(tokens), model(tokens))


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ({"stream": "cat"}, "unknown stream 'cat'"),
        ({"n_layers": "2"}, "cfg gives n_layers='2': expected a whole number"),
        ({"n_layers": None}, "cfg of a disentangled model without n_layers"),
        ({"n_layers": 10**7}, "cfg gives n_layers=10,000,000: expected at most 1,000"),
        ({"n_ctx": 10**6, "d_model": None}, "numbers (weights and masks): expected at most"),
        ({"n_ctx": 6}, "a concatenated stream ends 48 wide: leave out d_model=44"),
        ({"n_ctx": 6, "d_model": None}, "embed.W_E has shape [6, 11], but its cfg asks for [6, 12]"),
        ({"embedding": "centred"}, "embed.W_E contradicts its cfg: check embedding='centred'"),
        ({"d_head": 4}, "cfg gives d_head, which a disentangled model does not have"),
    ],
    ids=str,
)
def test_a_disentangled_config_that_does_not_fit_is_refused(tmp_path: Path, change: dict[str, Any], fault: str) -> None:
    config = DisentangledConfig(d_vocab=6, n_ctx=5, n_layers=2)
    model = DisentangledTransformer(config)
    save_checkpoint(tmp_path / "a.pt", model.state_dict(), {**config.to_dict(), **change})
    with pytest.raises(CheckpointError) as error:
        load_transformer(tmp_path / "a.pt")
    assert str(error.value).startswith(f"{tmp_path / 'a.pt'}: ")
    assert fault in str(error.value)


def test_extra_values_come_back(tmp_path: Path, recall: Checkpoint) -> None:
    optimizer = torch.optim.AdamW([torch.nn.Parameter(torch.ones(3))])
    extra = {"step": 12, "optimizer": optimizer.state_dict(), "rng": torch.get_rng_state()}
    save_checkpoint(tmp_path / "last.pt", recall.state_dict, recall.config, extra=extra)
    found = load_checkpoint(tmp_path / "last.pt")
    assert found.step == 12
    assert found.extra["optimizer"]["param_groups"][0]["lr"] == 1e-3
    assert torch.equal(found.extra["rng"], extra["rng"])


def test_a_run_directory_is_its_last_step(tmp_path: Path, recall: Checkpoint) -> None:
    for step in (1000, 20, 300):
        changed = {**recall.state_dict, "unembed.b_U": torch.full((64,), float(step))}
        save_checkpoint(tmp_path / f"checkpoints/step_{step:08d}.pt", changed, recall.config, extra={"step": step})
    (tmp_path / "run.json").write_text("{}")
    (tmp_path / "checkpoints/.step_99999999.pt.x.tmp").write_bytes(b"half")
    found = load_checkpoint(tmp_path)
    assert (found.step, float(found.state_dict["unembed.b_U"][0])) == (1000, 1000.0)
    assert found.source == str(tmp_path)
    assert [(step, path.name) for step, path in checkpoint_series(tmp_path)] == [
        (20, "step_00000020.pt"),
        (300, "step_00000300.pt"),
        (1000, "step_00001000.pt"),
    ]
    assert checkpoint_series(tmp_path / "checkpoints") == checkpoint_series(tmp_path)


def test_a_series_of_safetensors_sorts_by_number(tmp_path: Path, recall: Checkpoint) -> None:
    for step in (9, 10, 100):
        save_checkpoint(tmp_path / f"step_{step}.safetensors", recall.state_dict, recall.config)
    assert [step for step, _ in checkpoint_series(tmp_path)] == [9, 10, 100]
    assert load_checkpoint(tmp_path).step == 100


def test_a_folder_with_config_and_pth_loads(tmp_path: Path, recall: Checkpoint) -> None:
    torch.save(recall.state_dict, tmp_path / "model_final.pth")
    (tmp_path / "config.json").write_text(json.dumps(recall.config))
    _assert_same_weights(load_checkpoint(tmp_path), recall)


def test_native_bridge_files_load_as_the_same_weights(tmp_path: Path, recall: Checkpoint) -> None:
    state = {"unembed.bias": recall.state_dict["unembed.b_U"], "unembed.weight": recall.state_dict["unembed.W_U"].T}
    state |= {"embed.weight": recall.state_dict["embed.W_E"], "pos_embed.weight": recall.state_dict["pos_embed.W_pos"]}
    for layer in range(2):
        for name in "QKV":
            prefix, old = f"blocks.{layer}.attn.{name.lower()}", f"blocks.{layer}.attn."
            state[f"{prefix}.weight"] = recall.state_dict[f"{old}W_{name}"].permute(0, 2, 1).reshape(64, 128)
            state[f"{prefix}.bias"] = recall.state_dict[f"{old}b_{name}"].reshape(64)
        state[f"blocks.{layer}.attn.o.weight"] = recall.state_dict[f"blocks.{layer}.attn.W_O"].reshape(64, 128).T
        state[f"blocks.{layer}.attn.o.bias"] = recall.state_dict[f"blocks.{layer}.attn.b_O"]
    config = {**recall.config, "architecture": "TransformerLensNative", "attn_scale": -1.0, "is_stateful": False}
    torch.save({"state_dict": state, "cfg": config}, tmp_path / "bridge.pt")
    found = load_checkpoint(tmp_path / "bridge.pt")
    for key, value in _weights(recall).items():
        assert torch.equal(found.state_dict[key], value), key
    tokens = torch.arange(48).view(2, 24)
    with torch.no_grad():
        assert torch.equal(load_transformer(tmp_path / "bridge.pt")(tokens), load_transformer(RECALL)(tokens))
    # Heads that are groups of one are the same model, under the names of groups.
    torch.save({"state_dict": state, "cfg": {**config, "n_key_value_heads": 1}}, tmp_path / "grouped.pt")
    assert "blocks.0.attn._W_K" in load_checkpoint(tmp_path / "grouped.pt").state_dict
    with torch.no_grad():
        assert torch.equal(load_transformer(tmp_path / "grouped.pt")(tokens), load_transformer(RECALL)(tokens))
    assert open_model(tmp_path / "grouped.pt").weights.sha256() == open_model(RECALL).weights.sha256()
    for wrong in (0, "1"):
        with pytest.raises(CheckpointError, match="expected a positive n_key_value_heads in its config"):
            load_checkpoint(tmp_path / "grouped.pt", config=_written(tmp_path, {**config, "n_key_value_heads": wrong}))
    torch.save(state, tmp_path / "bare.pt")
    with pytest.raises(CheckpointError, match=r"bare.pt: a TransformerBridge state dict without its config"):
        load_checkpoint(tmp_path / "bare.pt")
    with pytest.raises(UnsupportedModelError, match="use_local_attn=True"):
        load_transformer(tmp_path / "bridge.pt", overrides={"use_local_attn": True})
    with pytest.raises(UnsupportedModelError, match=r"bridge.pt: a TransformerBridge over 'GPT2LMHeadModel'"):
        load_checkpoint(tmp_path / "bridge.pt", overrides={"architecture": "GPT2LMHeadModel"})


# --- saving ---------------------------------------------------------------------------------------------------------


def test_a_failed_save_leaves_the_old_file_and_nothing_else(
    tmp_path: Path, recall: Checkpoint, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "last.pt"
    save_checkpoint(file, recall.state_dict, recall.config, extra={"step": 1})
    before = file.read_bytes()

    def full_disk(_: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full_disk)
    with pytest.raises(OptionError, match=r"last.pt: cannot be written: No space left on device"):
        save_checkpoint(file, recall.state_dict, recall.config, extra={"step": 2})
    assert file.read_bytes() == before
    assert list(tmp_path.iterdir()) == [file]


def test_what_could_not_be_loaded_again_is_not_written(tmp_path: Path, recall: Checkpoint) -> None:
    for name, extra, fault in [
        ("a.pt", {"where": Path("x")}, "not written, it could not be loaded again"),
        ("a.pt", {"cfg": {}}, "extra may not use the names cfg"),
        ("a.safetensors", {"step": 1}, "keeps weights only, not step"),
        ("a.bin", {}, "expected a name ending in .pt, .pth or .safetensors, found '.bin'"),
    ]:
        with pytest.raises(OptionError, match=fault):
            save_checkpoint(tmp_path / name, recall.state_dict, recall.config, extra=extra)
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "file").write_text("")
    with pytest.raises(OptionError, match="cannot be written"):
        save_checkpoint(tmp_path / "file/a.pt", recall.state_dict, recall.config)


def test_transposed_and_tied_weights_are_saved(tmp_path: Path, recall: Checkpoint) -> None:
    tied = {**recall.state_dict, "unembed.W_U": recall.state_dict["embed.W_E"].T}
    save_checkpoint(tmp_path / "model.safetensors", tied, recall.config)
    found = load_checkpoint(tmp_path).state_dict
    assert torch.equal(found["unembed.W_U"], found["embed.W_E"].T)
    assert found["unembed.W_U"].abs().sum() > 0
