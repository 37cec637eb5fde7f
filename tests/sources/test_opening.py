"""Models of other formats, opened for analysis."""

from pathlib import Path
from typing import Any

import pytest
import torch
from live import needs_native_bridge
from test_live_bridge import bridge_over
from tiny_models import logits_of, saved, tiny_model, tokens

from imir_lens.errors import UnsupportedModelError
from imir_lens.lens_model import open_model


@pytest.mark.parametrize("kind", ["gpt2", "llama", "gpt_neox"])
def test_a_hugging_face_directory_opens_by_its_path(tmp_path: Path, kind: str) -> None:
    model = tiny_model(kind)
    opened = open_model(saved(model, tmp_path))
    theirs = logits_of(model)
    assert (opened.logits(tokens()) - theirs).abs().max() < 1e-4 < theirs.std()


@needs_native_bridge
@pytest.mark.parametrize("kind", ["gpt2", "llama", "gpt_neox"])
def test_a_bridge_over_a_hugging_face_model_opens_in_both_modes(tmp_path: Path, kind: str) -> None:
    bridge = bridge_over(kind, tmp_path)
    raw = open_model(bridge)
    assert (raw.logits(tokens()) - bridge(tokens())).abs().max() < 1e-4
    hash_of_raw = raw.info["sha256"]
    bridge.enable_compatibility_mode()
    folded = open_model(bridge)
    assert (folded.logits(tokens()) - bridge(tokens())).abs().max() < 1e-4
    assert folded.info["sha256"] != hash_of_raw


@needs_native_bridge
def test_a_bridge_with_a_hook_left_on_it_is_refused(tmp_path: Path) -> None:
    bridge = bridge_over("llama", tmp_path)

    def silence(z: torch.Tensor, hook: Any) -> torch.Tensor:
        return torch.zeros_like(z)

    bridge.add_hook("blocks.0.attn.hook_z", silence)
    with pytest.raises(UnsupportedModelError, match="does not compute what its weights say"):
        open_model(bridge)
