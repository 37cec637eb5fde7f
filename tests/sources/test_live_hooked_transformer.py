"""Translated weights in TransformerLens' own HookedTransformer, where it exists."""

from pathlib import Path

import pytest
import torch
from live import live_hooked, needs_hooked_transformer
from tiny_models import MODELS, logits_of, saved, tiny_model, tokens

from imir_lens.checkpoints import load_checkpoint
from imir_lens.models.config import TransformerConfig


@torch.no_grad()
@needs_hooked_transformer
@pytest.mark.filterwarnings("ignore:HookedTransformer is deprecated")
@pytest.mark.parametrize("kind", MODELS)
def test_a_hooked_transformer_computes_what_transformers_computes(tmp_path: Path, kind: str) -> None:
    model = tiny_model(kind)
    checkpoint = load_checkpoint(saved(model, tmp_path))
    live = live_hooked(TransformerConfig.from_dict(checkpoint.config).to_dict()).eval()
    loaded = live.load_state_dict(checkpoint.state_dict, strict=False)
    assert not loaded.unexpected_keys
    assert all(key.endswith((".mask", ".IGNORE", ".rotary_sin", ".rotary_cos")) for key in loaded.missing_keys)
    theirs = logits_of(model)
    assert (live(tokens()) - theirs).abs().max() < 1e-4 < theirs.std()
