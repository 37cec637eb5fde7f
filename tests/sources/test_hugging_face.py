import json
from pathlib import Path

import pytest
import safetensors.torch
import torch
from einops import rearrange
from tiny_models import MODELS, logits_of, saved, tiny_model, tokens, transformers

from imir_lens.checkpoints import load_checkpoint, load_transformer
from imir_lens.errors import CheckpointError, UnsupportedModelError
from imir_lens.models.config import TransformerConfig
from imir_lens.models.transformer import ImirTransformer
from imir_lens.sources.hugging_face import convert


def _largest_difference(ours: torch.Tensor, theirs: torch.Tensor) -> float:
    assert theirs.std() > 0.1, "logits near zero compare nothing"
    return float((ours - theirs).detach().abs().max())


@torch.no_grad()
def _run(state: dict[str, torch.Tensor], config: dict[str, object]) -> torch.Tensor:
    model = ImirTransformer(TransformerConfig.from_dict(config))
    model.load_transformer_lens_state(state)
    return model(tokens())


@torch.no_grad()
@pytest.mark.parametrize("kind", MODELS)
def test_a_saved_model_computes_what_transformers_computes(tmp_path: Path, kind: str) -> None:
    model = tiny_model(kind)
    ours = load_transformer(saved(model, tmp_path))
    assert _largest_difference(ours(tokens()), logits_of(model)) < 1e-4


@torch.no_grad()
def test_models_in_several_files_and_in_torch_files_are_read(tmp_path: Path) -> None:
    model = tiny_model("llama")
    sharded = saved(model, tmp_path / "sharded", max_shard_size="10KB")
    assert len(list(sharded.glob("*.safetensors"))) > 1
    torch_file = saved(model, tmp_path / "torch")
    (torch_file / "model.safetensors").unlink()
    torch.save(model.state_dict(), torch_file / "pytorch_model.bin")
    (torch_file / "training_args.bin").write_bytes(b"never read")
    for path in (sharded, sharded / "model.safetensors.index.json", torch_file, torch_file / "pytorch_model.bin"):
        ours = load_transformer(path)
        assert _largest_difference(ours(tokens()), logits_of(model)) < 1e-4
    hashes = {load_checkpoint(path).sha256 for path in (sharded, torch_file)}
    assert len(hashes) == 2


@torch.no_grad()
def test_half_precision_weights_keep_their_values(tmp_path: Path) -> None:
    folder = saved(tiny_model("llama").bfloat16(), tmp_path)
    ours = load_transformer(folder)
    assert ours.embed.W_E.dtype == torch.float32
    theirs = transformers.AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    assert _largest_difference(ours(tokens()), logits_of(theirs)) < 1e-4


def test_masks_and_tables_of_older_files_are_left_out(tmp_path: Path) -> None:
    model = tiny_model("gpt2")
    state = dict(model.state_dict()) | {
        "transformer.h.0.attn.bias": torch.ones(1, 1, 32, 32, dtype=torch.bool).tril(),
        "transformer.h.0.attn.masked_bias": torch.tensor(-1e4),
    }
    folder = saved(model, tmp_path)
    (folder / "model.safetensors").unlink()
    torch.save(state, folder / "pytorch_model.bin")
    assert _largest_difference(load_transformer(folder)(tokens()), logits_of(model)) < 1e-4


def test_a_model_saved_without_its_head_needs_a_tied_embedding(tmp_path: Path) -> None:
    model = tiny_model("gpt2")
    state = {
        key.removeprefix("transformer."): value for key, value in model.state_dict().items() if "lm_head" not in key
    }
    assert _largest_difference(_run(*convert(state, model.config.to_dict())), logits_of(model)) < 1e-4
    untied = tiny_model("llama")
    with pytest.raises(CheckpointError, match=r"no weight 'lm_head.weight'"):
        convert(untied.model.state_dict(), untied.config.to_dict())


def test_wrong_rotary_order_wrong_groups_and_wrong_head_order_are_far_off() -> None:
    # The comparison above must be able to see the faults that converters are known for.
    llama = tiny_model("llama")
    state, config = convert(llama.state_dict(), llama.config.to_dict())
    theirs = logits_of(llama)
    assert _largest_difference(_run(state, config), theirs) < 1e-4
    assert _largest_difference(_run(state, {**config, "rotary_adjacent_pairs": True}), theirs) > 0.1
    # Queries in the order that gives head h the group h % 2 instead of h // 2.
    shuffled = dict(state)
    for key in state:
        if key.endswith(("attn.W_Q", "attn.b_Q", "attn.W_O")):
            shuffled[key] = rearrange(state[key], "(group head) ... -> (head group) ...", group=2)
    assert _largest_difference(_run(shuffled, config), theirs) > 0.1
    neox = tiny_model("gpt_neox")
    state, config = convert(neox.state_dict(), neox.config.to_dict())
    assert _largest_difference(_run(state, {**config, "rotary_dim": 8}), logits_of(neox)) > 0.1
    assert _largest_difference(_run(state, {**config, "parallel_attn_mlp": False}), logits_of(neox)) > 0.1


@pytest.mark.parametrize(
    ("kind", "change", "fault"),
    [
        ("llama", {"rope_parameters": {"rope_type": "llama3", "factor": 8.0, "rope_theta": 1e4}}, "rescaled rotary"),
        ("llama", {"rope_scaling": {"type": "linear", "factor": 2.0}}, "rescaled rotary"),
        ("llama", {"mlp_bias": True}, "biases inside a gated MLP"),
        ("llama", {"hidden_act": "quick_gelu"}, r"hidden_act='quick_gelu'.*not supported"),
        ("llama", {"quantization_config": {"bits": 4}}, "quantised weights"),
        ("mistral", {"sliding_window": 16}, "sliding_window=16"),
        ("llama", {"layer_types": ["full_attention", "sliding_attention"]}, "attention that differs by layer"),
        ("gpt2", {"scale_attn_by_inverse_layer_idx": True}, "a score scale that changes with the layer"),
        ("gpt2", {"add_cross_attention": True}, "cross-attention"),
        ("llama", {"model_type": "gemma"}, "type 'gemma'.* is not supported yet: expected one of gpt2"),
    ],
)
def test_what_is_not_computed_is_refused(tmp_path: Path, kind: str, change: dict[str, object], fault: str) -> None:
    folder = saved(tiny_model(kind), tmp_path)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | change))
    with pytest.raises(UnsupportedModelError, match=fault) as error:
        load_checkpoint(folder)
    assert str(error.value).startswith(str(folder / "model.safetensors"))


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ({"num_hidden_layers": 1}, r"10 weights have no place|9 weights have no place"),
        ({"num_hidden_layers": 3}, r"no weight 'model.layers.2.self_attn.q_proj.weight'"),
        ({"num_hidden_layers": 10**9}, r"n_layers|no weight 'model.layers.2"),
        ({"num_key_value_heads": 3}, "expected a divisor of n_heads"),
        ({"hidden_size": 10**12}, "expected at most|asks for"),
        ({"hidden_size": "24"}, "hidden_size='24': expected a whole number"),
        ({"vocab_size": None}, "vocab_size=None: expected a positive whole number"),
        ({"vocab_size": 41}, r"shape \[40, 24\], but the config asks for \[41, 24\]"),
        ({"rope_parameters": {"rope_theta": -1.0}}, "rope_theta=-1.0: expected a positive number"),
        ({"rope_parameters": 5}, "rope_parameters=5: expected an object"),
        ({"layer_types": 5}, "layer_types=5: expected a list"),
        ({"tie_word_embeddings": True}, "correct tie_word_embeddings"),
        ({"tie_word_embeddings": "yes"}, "expected True or False"),
    ],
)
def test_configs_that_contradict_the_weights_are_refused(tmp_path: Path, change: dict[str, object], fault: str) -> None:
    folder = saved(tiny_model("llama"), tmp_path)
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | change))
    with pytest.raises(CheckpointError, match=fault) as error:
        load_transformer(folder)
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("index", "fault"),
    [
        ({}, "expected a 'weight_map'"),
        ({"weight_map": {"a": "../a.safetensors"}}, "expected files beside it"),
        ({"weight_map": {"a": "model.safetensors.index.json"}}, "expected files beside it"),
        ({"weight_map": {"a": "b.safetensors"}}, r"b.safetensors: no such file"),
        ({"weight_map": {"b": "a.safetensors"}}, r"names 'b', which is in none of its files"),
    ],
)
def test_indices_that_lie_are_refused(tmp_path: Path, index: dict[str, object], fault: str) -> None:
    safetensors.torch.save_file({"a": torch.ones(2)}, tmp_path / "a.safetensors")
    (tmp_path / "config.json").write_text('{"model_type": "llama"}')
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(CheckpointError, match=fault):
        load_checkpoint(tmp_path)


def test_long_contexts_get_small_tables_unless_asked_for(tmp_path: Path) -> None:
    model = tiny_model("llama")
    _, config = convert(model.state_dict(), model.config.to_dict() | {"max_position_embeddings": 131072})
    assert config["n_ctx"] == 2048
    _, config = convert(model.state_dict(), model.config.to_dict(), overrides={"n_ctx": 7})
    assert config["n_ctx"] == 7
    folder = saved(model, tmp_path)
    assert load_transformer(folder, overrides={"n_ctx": "16"}).cfg.n_ctx == 16
