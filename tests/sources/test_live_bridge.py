from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from live import live_bridge, needs_native_bridge
from tiny_models import saved, tiny_model, tokens, transformers

from imir_lens.checkpoints import load_checkpoint
from imir_lens.compat import bridge_class
from imir_lens.errors import UnsupportedModelError
from imir_lens.models.transformer import ImirTransformer
from imir_lens.sources.live_bridge import state_and_config_of_bridge

KINDS = ("gpt2", "gpt2 untied, other activation", "llama", "llama tied", "llama with biases", "gpt_neox", "mistral")


def local_tokenizer(folder: Path) -> Any:
    """A tokenizer from a folder: without one, a bridge looks for it on the network."""
    tokenizers = pytest.importorskip("tokenizers")
    words = tokenizers.models.WordLevel({f"word{i}": i for i in range(40)}, unk_token="word0")
    made = transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizers.Tokenizer(words), bos_token="word1", eos_token="word2", pad_token="word0"
    )
    made.save_pretrained(folder)
    return transformers.AutoTokenizer.from_pretrained(folder)


def bridge_over(kind: str, folder: Path) -> Any:
    """A TransformerBridge over a tiny model that was saved to a folder."""
    model = tiny_model(kind)
    saved(model, folder)
    return bridge_class().boot_transformers(
        str(folder), hf_model=model, tokenizer=local_tokenizer(folder / "tokenizer"), device="cpu"
    )


def _ours(bridge: Any) -> ImirTransformer:
    state, config = state_and_config_of_bridge(bridge)
    model = ImirTransformer(config)
    model.load_transformer_lens_state(state)
    return model


@torch.no_grad()
@needs_native_bridge
@pytest.mark.parametrize("kind", KINDS)
def test_a_bridge_and_its_translation_compute_the_same_in_both_modes(tmp_path: Path, kind: str) -> None:
    bridge = bridge_over(kind, tmp_path)
    raw = bridge(tokens())
    unfolded = _ours(bridge)
    assert (unfolded(tokens()) - raw).abs().max() < 1e-4 < raw.std()
    bridge.enable_compatibility_mode()
    folded = _ours(bridge)
    assert (folded(tokens()) - bridge(tokens())).abs().max() < 1e-4
    # Folding moved numbers: the two translations are not one.
    assert (folded.blocks[0].ln1.w == 1).all()
    assert (unfolded.blocks[0].ln1.w != 1).any()
    assert (folded.W_Q - unfolded.W_Q).abs().max() > 0.01


@torch.no_grad()
@needs_native_bridge
def test_weights_read_the_wrong_way_round_would_show(tmp_path: Path) -> None:
    bridge = bridge_over("gpt2", tmp_path)
    state, config = state_and_config_of_bridge(bridge)
    square = "blocks.0.attn.W_O"
    as_linear = state[square].permute(2, 0, 1).reshape(state[square].shape)
    model = ImirTransformer(config)
    model.load_transformer_lens_state({**state, square: as_linear})
    assert (model(tokens()) - bridge(tokens())).abs().max() > 0.1


def test_other_bridges_are_refused_by_what_they_wrap() -> None:
    cfg = SimpleNamespace(architecture="other")
    wrapped = torch.nn.Linear(2, 2)
    with pytest.raises(UnsupportedModelError, match="TransformerBridge over a Linear is not supported"):
        state_and_config_of_bridge(SimpleNamespace(cfg=cfg, original_model=wrapped))
    t5 = SimpleNamespace(config=SimpleNamespace(to_dict=lambda: {"model_type": "t5"}))
    with pytest.raises(UnsupportedModelError, match="Hugging Face model of type 't5'"):
        state_and_config_of_bridge(SimpleNamespace(cfg=cfg, original_model=t5))


@torch.no_grad()
@needs_native_bridge
def test_native_bridges_are_translated_too() -> None:
    sizes = {"d_model": 24, "d_head": 8, "n_heads": 3, "n_layers": 2, "n_ctx": 24, "d_vocab": 40}
    bridge = live_bridge(
        {**sizes, "attn_only": True, "normalization_type": None, "positional_embedding_type": "rotary"}
    )
    theirs = bridge(tokens())
    assert (_ours(bridge)(tokens()) - theirs).abs().max() < 1e-4 < theirs.std()


@needs_native_bridge
def test_saved_weights_of_such_a_bridge_are_refused_with_what_to_give_instead(tmp_path: Path) -> None:
    # Whether a square weight is [input, output] or [output, input] is not in the file.
    bridge = bridge_over("gpt2", tmp_path)
    config = {"n_heads": 3, "architecture": bridge.cfg.architecture}
    torch.save({"state_dict": bridge.state_dict(), "cfg": config}, tmp_path / "bridge.pt")
    with pytest.raises(UnsupportedModelError, match="give the live bridge, or the directory"):
        load_checkpoint(tmp_path / "bridge.pt")
